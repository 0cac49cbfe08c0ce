"""Tests of `fastflow.reporting.terminal`."""
