"""Tests of `fastflow.performance.accuracy`."""
