"""Figures of datasets: an overview of any grid, a search, a validation; and the style of all figures."""

FORMATS = ("svg", "png", "pdf")
"""Kinds of file that a figure can be."""
