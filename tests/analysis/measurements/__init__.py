"""Tests of `fastflow.analysis.measurements`."""
