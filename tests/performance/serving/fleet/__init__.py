"""Tests of `fastflow.performance.serving.fleet`."""
