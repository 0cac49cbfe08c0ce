"""Tests of `fastflow.performance.serving`."""
