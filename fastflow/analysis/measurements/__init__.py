"""Measurements: files of them, predictions beside them and their errors, and chips fitted to them."""
