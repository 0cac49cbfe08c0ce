"""Calibration: a chip's physical scalars, fitted to measurements."""
