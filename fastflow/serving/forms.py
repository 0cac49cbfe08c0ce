"""Both forms of a prediction: the fast one, or the simulation where asked for or the fast one is not near."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from fastflow.serving.lengths import arrivals_of_files, in_blocks
from fastflow.serving.load import TOO_LONG, Loads
from fastflow.tables import Bools, Columns, Inputs, Ints


def predict_requests(
    inputs: Inputs,
    loads: Loads,
    servers: Ints,
    can: Bools,
    steady: Callable[[Ints], Any],
    simulate: Callable[[Ints, Loads], Any],
) -> Columns:
    """Return what requests of points see, `refused` and `simulated` among it; NaN of points that cannot.

    servers: that share a point's requests. steady, simulate: tables of both forms for some rows; the first
    one says which it is `near`. What arrives when a file says is always simulated.
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
        write(
            fast._asdict() | {"stationary": np.where(rate > 0.0, 1.0, np.nan), "overload": 0.0 * rate}, rows
        )
        walks[rows[(fast.refused != TOO_LONG) & ~fast.near]] = True
    rows = np.flatnonzero(can & walks)
    if rows.size:
        for block, sent in in_blocks(inputs, loads, servers, rows):
            write(simulate(block, sent)._asdict(), block)
    columns.pop("near", None)
    return columns | {"simulated": 1.0 * walks} if columns else columns
