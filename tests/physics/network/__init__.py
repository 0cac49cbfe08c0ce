"""Tests of `fastflow.physics.network`."""
