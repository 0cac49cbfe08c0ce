"""Tests of `fastflow.engine`."""
