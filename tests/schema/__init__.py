"""Tests of `fastflow.schema`."""
