"""Figures of datasets: an overview of any grid, a search, a validation; and what all figures look like."""

FORMATS = ("svg", "png", "pdf")
"""Kinds of file that a figure can be."""
