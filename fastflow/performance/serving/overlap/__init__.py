"""Overlap inside a device: nano-batches whose products, attention and exchanges run at the same time."""
