"""Tests of `fastflow.engine.run`."""
