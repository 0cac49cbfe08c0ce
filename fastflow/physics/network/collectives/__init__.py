"""Times of collectives."""
