"""Result columns of points that serve."""

from __future__ import annotations

import numpy as np

from fastflow.serving.serve import Served
from fastflow.tables import Columns, Inputs, repeated


def served_columns(inputs: Inputs, served: Served) -> Columns:
    """Return the result columns of every point; NaN, or an empty text, where a point has no results."""
    meets = served.short == ""
    has_limit = (inputs["serve.slo.ttft"] > 0.0) | (inputs["serve.slo.tpot"] > 0.0)
    reason = np.where(served.reason != "", served.reason, served.short)
    columns: Columns = dict(served.columns) | {
        "devices": inputs["system.devices"],
        "meets_slo": np.ma.MaskedArray(meets & (served.reason == ""), mask=~has_limit),
        "feasible": reason == "",
        "reason": reason,
        "no_effect": repeated(np.array([""]), reason.size),  # as far as inputs alone can say
    }
    for name in {"simulated", "stationary"} & set(columns):
        columns[name] = np.ma.MaskedArray(columns[name] > 0.0, mask=np.isnan(columns[name]))
    return columns
