"""Tests of `fastflow.performance.serving.disaggregated`."""
