"""Tests of `fastflow.physics.network.routing`."""
