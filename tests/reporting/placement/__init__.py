"""Tests of `fastflow.reporting.placement`."""
