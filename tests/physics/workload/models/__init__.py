"""Tests of `fastflow.physics.workload.models`."""
