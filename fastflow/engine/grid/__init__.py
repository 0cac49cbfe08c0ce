"""Grids: overrides and studies become axes, and ranges of points become input columns."""
