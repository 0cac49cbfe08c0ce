"""Tests of `fastflow.physics.workload`."""
