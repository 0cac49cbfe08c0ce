"""Tests of `fastflow.engine.grid`."""
