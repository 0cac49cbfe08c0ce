"""Whether predictions choose the best layout, or server, of served points with the same load.

The *regret* of a job is the share of the best measured throughput that the candidate of the highest predicted
throughput does not reach. Kendall's tau is as in `layout_choice`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import pandas as pd

from fastflow.analysis.measurements.choices import LOAD, Choice
from fastflow.analysis.validation.layout_choice import kendall_tau, mean_tau
from fastflow.core.tables import Floats
from fastflow.schema.quantities import THROUGHPUT

_VALUES = [THROUGHPUT.measured, THROUGHPUT.predicted]


class ThroughputChoice(NamedTuple):
    """How well predictions choose among the candidates of jobs."""

    jobs: int  # with several candidates
    candidates: int
    tau: float  # mean of the jobs that have pairs to rank; NaN of none
    mean_regret: float
    median_regret: float
    max_regret: float


def throughput_choice(rows: pd.DataFrame, choice: Choice) -> ThroughputChoice | None:
    """Return how well candidates of the same job are ranked, None where no job has two.

    Rows that are equal in all columns but `line` count once. The throughput of a candidate is the mean of its
    other rows, such as those of several versions of a server. rows: of a validation.
    """
    regrets, taus, count = [], [], 0
    for measured, predicted in _jobs(rows, choice):
        regrets.append(throughput_regret(measured, predicted))
        taus.append(kendall_tau(measured, predicted))
        count += measured.size
    if not regrets:
        return None
    return ThroughputChoice(
        jobs=len(regrets),
        candidates=count,
        tau=mean_tau(taus),
        mean_regret=float(np.mean(regrets)),
        median_regret=float(np.median(regrets)),
        max_regret=float(np.max(regrets)),
    )


def _jobs(rows: pd.DataFrame, choice: Choice) -> Iterator[tuple[Floats, Floats]]:
    """Yield the measured and the predicted throughput of the candidates of each job with several [1/s]."""
    if not {*_VALUES, choice.column, "concurrency", "devices"} <= set(rows):
        return
    points = rows.drop(columns="line", errors="ignore").drop_duplicates()
    points = points[points[_VALUES].notna().all(axis=1)]
    points = points.assign(**{LOAD: points["concurrency"] / points["devices"]})
    of_job = [name for name in choice.job_columns if name in points]
    candidates = points.groupby([*of_job, choice.column], dropna=False, observed=True)[_VALUES].mean()
    for _, job in candidates.groupby(level=of_job, dropna=False, observed=True):
        if len(job) > 1:
            measured, predicted = (job[name].to_numpy(np.float64) for name in _VALUES)
            yield measured, predicted


def throughput_regret(measured: Floats, predicted: Floats) -> float:
    """Return by which share the candidate of the highest prediction is measured below the best.

    Of several that are predicted equally high, their mean. measured, predicted: [1/s], (candidates,).
    """
    chosen = measured[predicted == predicted.max()].mean()
    return float(1.0 - chosen / measured.max())
