"""Throughput of servers in a closed loop, from the two times that a file has of each point."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fastflow.core.tables import Floats, Ints, Texts

TTFT, TPOT = "ttft", "tpot"
"""Parts of a served point: time to the first token, and per token after it."""


def closed_loop_throughput(
    concurrency: NDArray[Any], osl: NDArray[Any], ttft: Floats, tpot: Floats, devices: NDArray[Any]
) -> Floats:
    """Return the output tokens a second and device of a closed loop [1/s], (rows,), by Little's law.

    `concurrency` requests are in flight, each for the time of its answer: J. D. C. Little, A Proof for the
    Queuing Formula L = lambda W, Operations Research 9, 1961. osl: mean tokens of an answer; ttft, tpot: [s].
    """
    return np.asarray(concurrency * osl / (ttft + osl * tpot) / devices, dtype=np.float64)


def time_of_line(line: Ints, part: Texts, measured: Floats, name: str) -> Floats:
    """Return the measured time of a part for all rows of its line [s], (rows,), NaN where a line has none.

    Of several, the first. line, part, measured: of rows.
    """
    times = pd.Series(np.where(part == name, measured, np.nan))
    return times.groupby(line).transform("first").to_numpy(np.float64)
