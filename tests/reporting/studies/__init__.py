"""Tests of `fastflow.reporting.studies`."""
