"""Tests of `fastflow.physics.schedule`."""
