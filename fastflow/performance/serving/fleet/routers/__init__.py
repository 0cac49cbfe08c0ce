"""Routers, a module each: `choose(view, limits, request, now)` returns a rank of the fleet.

`limits` are of `schema.routing.Limits`. A router of another package is compiled too (docs/extending.md).
"""
