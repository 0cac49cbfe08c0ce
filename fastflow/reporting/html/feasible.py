"""What a page says first of how many of its points are feasible, and what it ranks where none is."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from fastflow.config.messages import pluralize
from fastflow.core.tables import Floats
from fastflow.reporting.html.content import Headline
from fastflow.reporting.terminal.digest import counts_of_codes

NOT_FEASIBLE = " (not feasible)"
"""After the label of a best point, where no point is feasible."""
MEMORY_COLUMNS = ("footprint_B", "dram_offered_B")
"""What a device needs, and has: a headline on points without enough memory reads them."""


def any_feasible(frame: pd.DataFrame) -> bool:
    """Say whether any point is feasible; without the column, all are."""
    return "feasible" not in frame or bool(frame["feasible"].astype(bool).any())


def feasible_headline(frame: pd.DataFrame) -> Headline:
    """Return how many points are feasible; of none, why, and which of them lacks least memory."""
    feasible = frame["feasible"].astype(bool)
    if feasible.any():
        return Headline("Feasible", f"{int(feasible.sum()):,} of {len(frame):,}", _first_reason(frame))
    timed = frame["time_s"].notna() if "time_s" in frame else pd.Series(True, frame.index)
    lacking = _lack_of_memory(frame)
    num_lacking, num_untimed = int((lacking > 1.0).sum()), int((~timed).sum())
    parts = [
        f"{count:,} {text}"
        for count, text in (
            (num_lacking, "need more memory than a device has"),
            (num_untimed, "have no time"),
            (len(frame) - num_lacking - num_untimed, "have other reasons"),
        )
        if count
    ]
    nearest = nearest_to_feasible(frame)
    if nearest >= 0 and lacking[nearest] > 1.0:
        parts.append(f"least is lacking at {_reason(frame.iloc[nearest])}")
    else:
        parts.append(_first_reason(frame))
    return Headline("Feasible", f"none of {pluralize(len(frame), 'point')}", "; ".join(parts))


def nearest_to_feasible(frame: pd.DataFrame) -> int:
    """Return the index of the point that lacks least memory; -1 where no memory is known."""
    lacking = _lack_of_memory(frame)
    return -1 if np.isnan(lacking).all() else int(np.nanargmin(lacking))


def _lack_of_memory(frame: pd.DataFrame) -> Floats:
    """Return the memory that each point needs over what a device has, NaN where unknown; (points,)."""
    if not {*MEMORY_COLUMNS} <= {*frame}:
        return np.full(len(frame), np.nan)
    needed, has = (frame[name].to_numpy(dtype=np.float64, na_value=np.nan) for name in MEMORY_COLUMNS)
    lacking: Floats = np.divide(needed, has, out=np.full(len(frame), np.nan), where=has > 0.0)
    return lacking


def _first_reason(frame: pd.DataFrame) -> str:
    """Return how many points have which code of reasons, if several, and the reason of the first."""
    others = frame[~frame["feasible"].astype(bool)]
    if others.empty:
        return "every point has a time, fits its memory and is within its limits"
    codes = counts_of_codes(others).removeprefix(": ")
    return f"{codes}; {_reason(others.iloc[0])}" if codes else _reason(others.iloc[0])


def _reason(row: pd.Series[Any]) -> str:
    return f"point {row['point']:,}: {row['reason']}" if "point" in row else str(row["reason"])
