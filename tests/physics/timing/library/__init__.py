"""Tests of `fastflow.physics.timing.library`."""
