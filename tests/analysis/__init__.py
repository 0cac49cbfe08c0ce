"""Tests of `fastflow.analysis`."""
