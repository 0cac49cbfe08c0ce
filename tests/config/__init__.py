"""Tests of `fastflow.config`."""
