"""Tests of `fastflow.physics.parallelism`."""
