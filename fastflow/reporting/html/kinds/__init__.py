"""Pages of datasets, a file for each kind."""

from __future__ import annotations

from fastflow.config.messages import COMMAND_LINE
from fastflow.core.errors import InputError
from fastflow.engine.dataset.kinds import SENSITIVITY, kind_of_table
from fastflow.engine.dataset.reader import Dataset
from fastflow.reporting.html.content import Page
from fastflow.reporting.html.kinds import backtest, grid, search, sensitivity, validation


def page_of(dataset: Dataset, study: str = "", config_dir: str | None = None) -> Page:
    """Return the page of any dataset of fastflow; raises InputError.

    study: whose claims judge a grid; config_dir: the user's library, which its points need.
    """
    kind = kind_of_table(dataset.schema)
    if study and (kind or dataset.about("measurements")):
        allowed = "none: this dataset is no grid, and no search"
        raise InputError("study", study, allowed, COMMAND_LINE)
    if dataset.about("measurements"):
        return validation.page_of(dataset)
    if kind:
        return sensitivity.page_of(dataset) if kind == SENSITIVITY else backtest.page_of(dataset)
    if "score" in dataset.schema.names and not study:
        return search.page_of(dataset, config_dir)
    return grid.page_of(dataset, study, config_dir)
