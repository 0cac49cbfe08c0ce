"""Tests of `fastflow.physics.workload.models.transformer.config_json`."""
