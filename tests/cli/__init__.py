"""Tests of `fastflow.cli`."""
