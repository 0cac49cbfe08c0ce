"""Figures of predictions."""
