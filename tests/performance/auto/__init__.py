"""Tests of `fastflow.performance.auto`."""
