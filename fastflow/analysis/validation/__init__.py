"""Validation: predictions compared with measurements."""
