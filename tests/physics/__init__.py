"""Tests of `fastflow.physics`."""
