"""Searches of designs: what competes, which of it is worth a search, every design scored, the best ones."""
