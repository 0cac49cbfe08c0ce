"""SOE, the search and optimisation engine: strategies ranked, designs searched (Sections 3.2 and 7)."""
