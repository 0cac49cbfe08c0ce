"""Tests of `fastflow.reporting.html`."""
