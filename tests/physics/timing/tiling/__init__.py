"""Tests of `fastflow.physics.timing.tiling`."""
