"""The simulation of a fleet: servers with prefix caches, tiers of memory below them, and a router."""
