"""Whether predictions choose well: rows of the same job, in several layouts, ranked as they were measured.

*Regret* is how much longer the layout that is predicted fastest was measured to take than the best one that
was measured. Kendall's tau is the share of pairs of layouts in the measured order less that of pairs in the
opposite one, of those that differ in both times (M. G. Kendall, A New Measure of Rank Correlation, Biometrika
30, 1938). The *error of a comparison* is how far the predicted ratio of the times of two layouts is from the
measured one, in the median of all pairs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd

from fastflow.core.tables import Floats

_OF_FILE = "file."  # before a column of the file that has the name of a result


class LayoutChoice(NamedTuple):
    """How well predictions choose among the measured layouts of jobs."""

    jobs: int  # with several layouts
    rows: int
    tau: float  # mean of the jobs that have pairs to rank; NaN of none
    mean_regret: float
    median_regret: float
    max_regret: float
    comparison_error: float


def layout_choice(rows: pd.DataFrame, job_columns: Sequence[str]) -> LayoutChoice | None:
    """Return how well layouts of the same job are ranked, None where no job has two with different times.

    rows: with `measured_s` and `predicted_s` [s], NaN where a row has none; job_columns: in which rows of a
    job agree, those that there are.
    """
    of_job = [name if name in rows else f"{_OF_FILE}{name}" for name in job_columns]
    of_job = [name for name in of_job if name in rows]
    both = rows[rows["measured_s"].notna() & rows["predicted_s"].notna()]
    if not of_job or both.empty:
        return None
    count, taus, regrets, compared = 0, [], [], []
    for _, job in both.groupby(of_job, dropna=False, observed=True):
        measured, predicted = (job[name].to_numpy(np.float64) for name in ("measured_s", "predicted_s"))
        if np.unique(predicted).size < 2:
            continue
        count += measured.size
        regrets.append(regret(measured, predicted))
        taus.append(kendall_tau(measured, predicted))
        compared.append(comparison_errors(measured, predicted))
    if not regrets:
        return None
    return LayoutChoice(
        jobs=len(regrets),
        rows=count,
        tau=mean_tau(taus),
        mean_regret=float(np.mean(regrets)),
        median_regret=float(np.median(regrets)),
        max_regret=float(np.max(regrets)),
        comparison_error=float(np.median(np.concatenate(compared))),
    )


def regret(measured: Floats, predicted: Floats) -> float:
    """Return how much longer the row that is predicted fastest takes than the fastest, as a share.

    Of several that are predicted equally fast, their mean. measured, predicted: [s], (rows,).
    """
    chosen = measured[predicted == predicted.min()].mean()
    return float(chosen / measured.min() - 1.0)


def comparison_errors(measured: Floats, predicted: Floats) -> Floats:
    """Return how far the predicted ratio of the times of two rows is from the measured one, as a share.

    measured, predicted: [s], (rows,); (pairs,).
    """
    ratio = np.log(predicted / measured)
    off = np.abs(np.subtract.outer(ratio, ratio))[np.triu_indices(ratio.size, 1)]
    return np.asarray(np.expm1(off))


def kendall_tau(measured: Floats, predicted: Floats) -> float:
    """Return Kendall's tau of rows that differ in both times; NaN where no two do."""
    signs = [np.sign(np.subtract.outer(times, times)) for times in (measured, predicted)]
    product = (signs[0] * signs[1])[np.triu_indices(measured.size, 1)]
    differing = product[product != 0.0]
    return float(differing.mean()) if differing.size else float("nan")


def mean_tau(taus: Sequence[float]) -> float:
    """Return the mean tau of the jobs that have pairs to rank; NaN where none has."""
    ranked = [tau for tau in taus if not np.isnan(tau)]
    return float(np.mean(ranked)) if ranked else float("nan")
