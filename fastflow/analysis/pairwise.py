"""How likely each point of a grid is better than each other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from fastflow.config.composer import Composer
from fastflow.config.messages import one_of, sets
from fastflow.core.errors import InputError
from fastflow.core.tables import Ints
from fastflow.core.uncertainty.percentiles import chance
from fastflow.engine.dataset.schema import frame_of
from fastflow.engine.grid import limits
from fastflow.engine.grid.plan import plan
from fastflow.engine.grid.run import naming_errors, refuse_others
from fastflow.engine.run.execute import collect
from fastflow.engine.run.monte_carlo import samples_of
from fastflow.schema import BANDED, result_column

_MAX_POINTS = 512  # points
_MORE_IS_BETTER = ("tokens_per_s", "tokens_per_s_per_device", "tokens_per_s_per_MW", "requests_per_s",
                   "compute_flops", "dram_Bps", "dram_capacity_B")  # fmt: skip


def chances_of(composer: Composer, overrides: Sequence[str], objective: str) -> pd.DataFrame:
    """Return how likely each point (row) is better than another (column); `fastflow.probability_better`."""
    if objective not in BANDED:
        raise InputError("objective", objective, one_of(BANDED))
    has_uncertainty = sets(overrides, "uncertainty")
    run = plan(composer, overrides if has_uncertainty else (*overrides, "uncertainty=on"))
    refuse_others(run)
    if run.grid.uncertainty is None:
        raise InputError("uncertainty", "off", "on: chances are of what is uncertain")
    limits.check(
        "points", f"{run.grid.points:,}", run.grid.points, _MAX_POINTS, "points of which all are compared"
    )
    if run.grid.points == 1:
        raise InputError("points", 1, "two points or more: chances are of one against another")
    with naming_errors(composer, run):
        exact = frame_of(*collect(run._replace(grid=run.grid._replace(uncertainty=None))))
        known = _points_with(exact, objective)
        draws = samples_of(run.grid, known.tolist(), [objective])
    samples = np.array([draw[objective] for draw in draws])
    more = objective in _MORE_IS_BETTER
    matrix = np.full((len(exact), len(exact)), np.nan)
    matrix[np.ix_(known, known)] = [chance(sample[None], samples, more) for sample in samples]
    np.fill_diagonal(matrix, np.nan)
    points = _point_index(exact, run.grid.keys or ["point"])
    frame = pd.DataFrame(matrix, index=points, columns=points)
    unknown = np.setdiff1d(np.arange(len(exact)), known)
    reason = exact["reason"].tolist()
    for index in unknown.tolist():
        reason[index] = reason[index] or f"has no {objective}"
    frame.attrs = {"objective": objective, "unit": result_column(objective).unit, "reason": reason}
    return frame


def _points_with(exact: pd.DataFrame, objective: str) -> Ints:
    """Return the points whose exact prediction has the objective; raises InputError where none has."""
    if objective in exact and exact[objective].notna().any():
        return np.flatnonzero(exact[objective].notna())
    if exact["reason"].all() and exact["time_s"].isna().all():
        reason = exact["reason"].iloc[0]
        raise InputError("objective", objective, f"points that have it, and none has; point 0: {reason}")
    others = [name for name in BANDED if name in exact and exact[name].notna().any()]
    raise InputError("objective", objective, f"a result of these points, which have none: {one_of(others)}")


def _point_index(exact: pd.DataFrame, keys: list[str]) -> pd.Index:
    """Return an index of the points: the values of some columns."""
    names: pd.Index[Any]
    names = (
        pd.Index(exact[keys[0]], name=keys[0]) if len(keys) == 1 else pd.MultiIndex.from_frame(exact[keys])
    )
    return names
