"""Validation: predictions beside measurements."""
