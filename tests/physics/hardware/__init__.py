"""Tests of `fastflow.physics.hardware`."""
