"""Tests of `fastflow.performance.serving.simulator`."""
