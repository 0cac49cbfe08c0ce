"""Result columns of points that serve."""

from __future__ import annotations

import numpy as np

from fastflow.serving.serve import Served
from fastflow.serving.slo import COMPARED, has_limit
from fastflow.tables import Columns, Inputs, repeated


def served_columns(inputs: Inputs, served: Served) -> Columns:
    """Return the result columns of every point; NaN, or an empty text, where a point has no results."""
    meets = served.short == ""
    compared = np.any([~np.isnan(served.columns[name]) for name in COMPARED.values()], axis=0)
    judged = has_limit(inputs) & (compared | (served.reason != ""))  # a pass may not have the time of a limit
    reason = np.where(served.reason != "", served.reason, served.short)
    columns: Columns = dict(served.columns) | {
        "devices": inputs["system.devices"],
        "meets_slo": np.ma.MaskedArray(meets & (served.reason == ""), mask=~judged),
        "feasible": reason == "",
        "reason": reason,
        "no_effect": repeated(np.array([""]), reason.size),  # as far as inputs alone can say
    }
    if "simulated" in columns:
        simulated = columns["simulated"]
        columns["simulated"] = np.ma.MaskedArray(simulated > 0.0, mask=np.isnan(simulated))
    return columns
