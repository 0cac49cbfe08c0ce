"""Both methods of a prediction: the analytic one, or the simulation.

A point is simulated where `serve.simulate` says so, where the analytic form is not near the simulation or
does not know the server's policy, and where a limit is of a percentile of requests, which the analytic form
does not have.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from fastflow.core.tables import Bools, Columns, Floats, Inputs, Ints
from fastflow.performance.serving.encoder_pool.devices import has_encoders
from fastflow.performance.serving.overload import OVERLOAD
from fastflow.performance.serving.policy import simulated_policies
from fastflow.performance.serving.requests.lengths import arrivals_of_files, blocks_with_requests
from fastflow.performance.serving.requests.load import TAKEN, TOO_LONG, Loads
from fastflow.performance.serving.slo import needs_requests


def predict_requests(
    inputs: Inputs,
    loads: Loads,
    servers: Ints,
    valid: Bools,
    steady: Callable[[Ints], Any],
    simulate: Callable[[Ints, Loads], Columns],
) -> Columns:
    """Return columns of points' requests, `refused` and `simulated` included; NaN where a point is not valid.

    servers: that share a point's requests; valid: points to predict. steady, simulate: predict some rows: as
    a table, which also says where it is `near` and whose simulation takes too `long`; and as columns.
    Requests that arrive at the times of a file are always simulated, and policies of packages and queues of
    encoders, which the analytic form does not know.
    """
    simulated = inputs["serve.simulate"] | (arrivals_of_files(inputs) > 0)
    simulated = simulated | (simulated_policies(inputs) != "") | has_encoders(inputs)
    columns: Columns = {}

    def write(result: Columns, rows: Ints) -> None:
        for name, column in result.items():
            columns.setdefault(name, np.full(simulated.size, np.nan))[rows] = column

    rows = np.flatnonzero(valid & ~simulated)
    if rows.size:
        analytic = steady(rows)
        rate = loads.rate[rows]
        state = {"stationary": np.where(rate > 0.0, 1.0, np.nan), OVERLOAD: 0.0 * rate}
        write(analytic._asdict() | state, rows)
        needs_simulation = ~analytic.near | (needs_requests(inputs)[rows] & ~analytic.long)
        simulated[rows[(analytic.refused != TOO_LONG) & needs_simulation]] = True
    rows = np.flatnonzero(valid & simulated)
    if rows.size:
        for block, block_loads in blocks_with_requests(inputs, loads, servers, rows):
            write(simulate(block, block_loads), block)
    for name in ("near", "long"):
        columns.pop(name, None)
    return columns | {"simulated": 1.0 * simulated} if columns else columns


def without_refused(columns: Columns, refused: Floats | Ints) -> Columns:
    """Return columns of points' requests with NaN where servers refuse their load; texts are as they are.

    refused: load.TAKEN, or why they do, (points,).
    """
    return {
        name: column if column.dtype.kind == "U" else np.where(refused == TAKEN, column, np.nan)
        for name, column in columns.items()
    }
