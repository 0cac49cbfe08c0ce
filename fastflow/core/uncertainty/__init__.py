"""Uncertainty: distributions of input parameters and of the model's error, and percentiles of results."""
