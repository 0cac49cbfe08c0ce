"""Searches for the best design: candidates, screening, scoring, history and answer."""
