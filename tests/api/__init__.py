"""Tests of `fastflow.api`."""
