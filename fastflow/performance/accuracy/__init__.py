"""Typical errors of predictions: classes of validation, and the table of their errors."""
