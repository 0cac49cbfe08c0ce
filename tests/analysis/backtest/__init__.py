"""Tests of `fastflow.analysis.backtest`."""
