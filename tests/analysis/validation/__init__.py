"""Tests of `fastflow.analysis.validation`."""
