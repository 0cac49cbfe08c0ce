"""Tests of `fastflow.analysis.measurements.kinds`."""
