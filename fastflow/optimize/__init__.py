"""SOE: the search for the best strategy (Sections 3.2 and 3.3)."""
