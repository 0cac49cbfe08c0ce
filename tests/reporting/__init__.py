"""Tests of `fastflow.reporting`."""
