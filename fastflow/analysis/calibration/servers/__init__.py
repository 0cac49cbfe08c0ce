"""Calibration of a server: the figures of its host, fitted to benchmarks whose requests are sent to it."""
