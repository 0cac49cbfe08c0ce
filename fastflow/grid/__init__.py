"""What was asked for: overrides and studies as axes, combinations composed, points decoded to columns."""
