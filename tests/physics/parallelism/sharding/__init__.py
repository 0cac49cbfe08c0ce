"""Tests of `fastflow.physics.parallelism.sharding`."""
