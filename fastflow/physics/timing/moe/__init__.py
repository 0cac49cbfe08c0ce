"""Times of layers of experts."""
