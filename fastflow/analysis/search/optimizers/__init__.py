"""SOE, the search and optimization engine: methods that find the best design (Sections 3.2 and 7)."""
