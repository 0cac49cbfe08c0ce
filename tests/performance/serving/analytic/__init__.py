"""Tests of `fastflow.performance.serving.analytic`."""
