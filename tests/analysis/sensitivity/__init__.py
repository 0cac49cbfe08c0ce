"""Tests of `fastflow.analysis.sensitivity`."""
