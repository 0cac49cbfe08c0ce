"""Families of neural networks, a file each."""
