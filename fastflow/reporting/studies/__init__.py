"""Studies of the paper and of today's models: claims, judged on a dataset, and a figure (sections 2, 9)."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from fastflow.reporting.studies.claims import Claim

STUDIES = (
    "backtest", "fig01", "fig09", "fig10", "fig11", "llm_strategies", "llm_technology", "serving_technology",
)  # fmt: skip
"""Names that a study's `report:` may have; each is a module of this room."""
SEARCHED = ("fig10", "fig11")
"""Those that judge the ranking of a search."""


class Report(NamedTuple):
    """How a dataset is judged and drawn."""

    columns: tuple[str, ...]
    """What is read of the dataset."""
    claims: Callable[[pd.DataFrame], list[Claim]]
    """The paper's claims, judged by rows in point order."""
    draw: Callable[[pd.DataFrame], Figure]
    """The figure; to be called by `style.render`, which sets what it looks like."""


def report_of(name: str) -> Report:
    """Return the report of one of `STUDIES`."""
    module = import_module(f"fastflow.reporting.studies.{name}")
    return Report(module.COLUMNS, module.claims, module.draw)
