"""Tests of `fastflow.physics.timing.moe`."""
