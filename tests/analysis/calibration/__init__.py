"""Tests of `fastflow.analysis.calibration`."""
