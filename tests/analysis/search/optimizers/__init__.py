"""Tests of `fastflow.analysis.search.optimizers`."""
