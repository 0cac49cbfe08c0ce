"""Tests of `fastflow.physics.timing`."""
