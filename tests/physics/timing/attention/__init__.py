"""Tests of `fastflow.physics.timing.attention`."""
