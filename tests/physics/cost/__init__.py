"""Tests of `fastflow.physics.cost`."""
