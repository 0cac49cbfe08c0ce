"""Both forms of a prediction: the fast one, or the simulation.

That is taken where it is asked for, where the fast form is not near, and where a limit is of a percentile of
requests, which the fast form does not have.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from fastflow.core.tables import Bools, Columns, Inputs, Ints
from fastflow.performance.serving.overload import OVERLOAD
from fastflow.performance.serving.requests.lengths import arrivals_of_files, has_layer_runs
from fastflow.performance.serving.requests.load import TOO_LONG, Loads
from fastflow.performance.serving.slo import needs_requests


def predict_requests(
    inputs: Inputs,
    loads: Loads,
    servers: Ints,
    can: Bools,
    steady: Callable[[Ints], Any],
    simulate: Callable[[Ints, Loads], Columns],
) -> Columns:
    """Return what requests of points see, `refused` and `simulated` among it; NaN of points that cannot.

    servers: that share a point's requests. steady, simulate: what both forms say of some rows: a table, which
    also says where it is `near`, and whose simulation takes too `long`; and columns. What arrives when a file
    says is always simulated.
    """
    walks = inputs["serve.simulate"] | (arrivals_of_files(inputs) > 0)
    columns: Columns = {}

    def write(found: Columns, rows: Ints) -> None:
        for name, column in found.items():
            columns.setdefault(name, np.full(walks.size, np.nan))[rows] = column

    rows = np.flatnonzero(can & ~walks)
    if rows.size:
        fast = steady(rows)
        rate = loads.rate[rows]
        state = {"stationary": np.where(rate > 0.0, 1.0, np.nan), OVERLOAD: 0.0 * rate}
        write(fast._asdict() | state, rows)
        needed = ~fast.near | (needs_requests(inputs)[rows] & ~fast.long)
        walks[rows[(fast.refused != TOO_LONG) & needed]] = True
    rows = np.flatnonzero(can & walks)
    if rows.size:
        for block, sent in has_layer_runs(inputs, loads, servers, rows):
            write(simulate(block, sent), block)
    for name in ("near", "long"):
        columns.pop(name, None)
    return columns | {"simulated": 1.0 * walks} if columns else columns
