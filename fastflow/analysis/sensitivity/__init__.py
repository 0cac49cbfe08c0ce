"""Sensitivity: which inputs a result depends on, and how much."""
