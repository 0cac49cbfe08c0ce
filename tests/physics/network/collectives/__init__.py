"""Tests of `fastflow.physics.network.collectives`."""
