"""Tests of `fastflow.performance`."""
