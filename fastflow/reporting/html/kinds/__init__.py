"""Pages of datasets, a file for each kind."""

from __future__ import annotations

from fastflow.config.messages import COMMAND_LINE
from fastflow.core.errors import InputError
from fastflow.engine.dataset.kinds import GRID, OF_FLEETS, OF_SEARCH, OF_VALIDATION, SENSITIVITY
from fastflow.engine.dataset.reader import Dataset
from fastflow.reporting.html.content import Page
from fastflow.reporting.html.kinds import backtest, fleets, grid, search, sensitivity, validation


def page_of(dataset: Dataset, study: str = "", config_dir: str | None = None) -> Page:
    """Return the page of any dataset of fastflow; raises InputError.

    study: whose claims judge a grid; config_dir: the user's library, which its points need.
    """
    kind = dataset.kind
    if study and kind not in (GRID, *OF_SEARCH):
        allowed = "none: this dataset is no grid, and no search"
        raise InputError("study", study, allowed, COMMAND_LINE)
    if kind in OF_FLEETS:
        return fleets.page_of(dataset)
    if kind in OF_VALIDATION:
        return validation.page_of(dataset)
    if kind == SENSITIVITY:
        return sensitivity.page_of(dataset)
    if kind == GRID or study:
        return grid.page_of(dataset, study, config_dir)
    return search.page_of(dataset, config_dir) if kind in OF_SEARCH else backtest.page_of(dataset)
