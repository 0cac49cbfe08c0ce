"""Tests of `fastflow.physics.workload.models.transformer`."""
