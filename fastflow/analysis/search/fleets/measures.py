"""Objectives of a search over fleets: result columns, of which less or more is better."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple

import numpy as np

from fastflow.analysis.search.optimizers.objective import INVERSES
from fastflow.config.messages import one_of, suggestion
from fastflow.core.errors import InputError
from fastflow.core.tables import Floats
from fastflow.schema import result_column

DEVICES = "devices"
"""The objective by default."""
USUAL = (
    DEVICES, "usd_per_h", "token_usd", "joules_per_token", "system_W", "carbon_g_per_token", "ttft_p99_s",
    "tpot_p99_s", "e2e_p99_s", "goodput_per_s", "tokens_per_s_per_device", "tokens_per_s_per_MW",
)  # fmt: skip
"""Objectives that messages name."""
MAXIMISED = frozenset((
    "requests_per_s", "tokens_per_s", "tokens_per_s_per_device", "tokens_per_s_per_user",
    "tokens_per_s_per_MW", "prefill_tokens_per_s", "goodput_per_s", "prefix_hit_rate", "tier_hit_rate",
))  # fmt: skip
"""Result columns of which more is better."""
_OTHER_NAMES = {name: column for column, name in INVERSES.items()}
"""Objectives of searches of designs that are the inverse of a column."""


class Measure(NamedTuple):
    """A result column as an objective."""

    name: str

    @property
    def sign(self) -> float:
        """-1 where more is better, else 1."""
        return -1.0 if self.name in MAXIMISED else 1.0

    @property
    def unit(self) -> str:
        """Its unit."""
        return result_column(self.name).unit

    def of(self, columns: Mapping[str, object], points: int) -> Floats:
        """Return its values where less is better; NaN where it is missing, (points,)."""
        column = columns.get(self.name)
        if column is None:
            return np.full(points, np.nan)
        values = np.ma.filled(np.ma.asarray(column, dtype=np.float64), np.nan)
        return self.sign * values


def read_measure(key: str, value: object, columns: Collection[str]) -> Measure:
    """Return the measure of a name; columns: results of points that are numbers. Raises InputError."""
    name = _OTHER_NAMES.get(value, value) if isinstance(value, str) else None
    if name not in columns:
        hint = suggestion(str(value), columns)
        allowed = f"a result column of servers that is a number, such as {one_of(USUAL)[7:]}{hint}"
        raise InputError(key, "null" if value is None else str(value), allowed)
    return Measure(str(name))
