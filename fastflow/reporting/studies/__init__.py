"""Studies of the paper and of today's models: claims, judged on a dataset, and a figure (sections 2, 9)."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from fastflow.reporting.studies.claims import Claim


class Report(NamedTuple):
    """How a dataset is judged and drawn."""

    columns: tuple[str, ...]
    """Columns that are read of the dataset."""
    claims: Callable[[pd.DataFrame], list[Claim]]
    """The paper's claims, judged by rows in point order."""
    draw: Callable[[pd.DataFrame], Figure]
    """Draws the figure; `style.render` calls it with the style set."""


def report_of(name: str) -> Report:
    """Return the report of one of `schema.studies.STUDIES`."""
    module = import_module(f"fastflow.reporting.studies.{name}")
    return Report(module.COLUMNS, module.claims, module.draw)
