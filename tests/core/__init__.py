"""Tests of `fastflow.core`."""
