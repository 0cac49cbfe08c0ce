"""Tests of `fastflow.performance.serving.passes`."""
