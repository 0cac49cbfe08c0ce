"""Tests of `fastflow.physics.site`."""
