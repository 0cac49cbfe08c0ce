"""Tests of `fastflow.physics.parallelism.memory`."""
