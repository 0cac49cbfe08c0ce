"""Search over serving fleets for the requests of a trace (docs/fleets.md)."""
