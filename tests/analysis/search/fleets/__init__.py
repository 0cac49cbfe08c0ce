"""Tests of `fastflow.analysis.search`."""
