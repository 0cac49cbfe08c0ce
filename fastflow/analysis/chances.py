"""`fastflow.chances`: how likely each point of a grid is better than each other."""

from __future__ import annotations

import os

import numpy as np
import pandas as pd

from fastflow.columns import BANDED, find_result
from fastflow.configuration.composer import Composer
from fastflow.configuration.library import hydra_rules
from fastflow.configuration.wording import one_of
from fastflow.errors import InputError
from fastflow.evaluation.sampled import samples_of
from fastflow.grid import limits
from fastflow.grid.plan import plan
from fastflow.grid.run import explaining, refuse_others
from fastflow.uncertainty.bands import chance

_MOST = 512  # points
_MORE_IS_BETTER = ("tokens_per_s", "tokens_per_s_per_device", "requests_per_s", "compute_flops", "dram_Bps",
                   "dram_capacity_B")  # fmt: skip


def chances(
    *overrides: str, objective: str = "time_s", config_dir: str | os.PathLike[str] | None = None
) -> pd.DataFrame:
    """Return how likely each point (row) is better than each other (column); see `fastflow.chances`."""
    if objective not in BANDED:
        raise InputError("objective", objective, one_of(BANDED))
    with hydra_rules():
        composer = Composer.of_library(config_dir)
        given = any(text.lstrip("+").partition("=")[0] == "uncertainty" for text in overrides)
        run = plan(composer, overrides if given else (*overrides, "uncertainty=on"))
        refuse_others(run)
        if run.grid.uncertainty is None:
            raise InputError("uncertainty", "off", "on: chances are of what is uncertain")
        limits.check(
            "points", f"{run.grid.points:,}", run.grid.points, _MOST, "points of which all are compared"
        )
        with explaining(composer, run):
            found = samples_of(run.grid, range(run.grid.points), [objective])
    samples = np.array([one[objective] for one in found])
    more = objective in _MORE_IS_BETTER
    matrix = np.array([chance(one[None], samples, more) for one in samples])
    np.fill_diagonal(matrix, np.nan)
    column = find_result(objective)
    assert column is not None
    points = pd.RangeIndex(run.grid.points, name="point")
    frame = pd.DataFrame(matrix, index=points, columns=points)
    frame.attrs = {"objective": objective, "unit": column.unit}
    return frame
