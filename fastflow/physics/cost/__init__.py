"""What devices and systems cost to build and to run, in US dollars (docs/cost.md)."""
