"""Figures of datasets: an overview of any grid, a search, a validation; and the style of all figures."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from fastflow.core.registry import Registry

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from fastflow.engine.dataset.reader import Dataset

FORMATS = ("svg", "png", "pdf")
"""Kinds of file that a figure can be."""
CHARTS: Registry[Callable[[Dataset], Figure]] = Registry(
    "chart",
    "charts",
    callable,
    "a function that takes a dataset and returns a matplotlib figure",
    modules={name: f"{__name__}.{name}:draw_dataset" for name in ("overview", "search", "serving")},
)
"""Charts of whole datasets, by the names that `chart` takes; each raises InputError for other datasets."""
