"""Tests of `fastflow.physics.workload.ops`."""
