"""`parallel.search_bounds`: bounds of the layouts that `parallel.strategy=auto` of a transformer tries.

A bound is `NAME<=N`, `NAME>=N` or `NAME=N`; N may be `machine`: the devices of a package. Commas separate
bounds. Tensor parallelism is inside a machine of several devices unless a bound names tp.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from math import inf
from typing import NamedTuple

from fastflow.core.errors import InputError

KEY, ANY, MACHINE = "parallel.search_bounds", "any", "machine"
NAMES = ("tp", "cp", "ep", "dp", "pp", "chunks", "microbatch")
_ALLOWED = (
    f"{ANY}, or bounds of {', '.join(NAMES)}, each by a number or {MACHINE}, such as "
    f'"tp<=8, pp<=16, cp=1" or "ep<={MACHINE}"'
)
_BOUND = re.compile(rf"\s*({'|'.join(NAMES)})\s*(<=|>=|=)\s*([1-9]\d{{0,9}}|{MACHINE})\s*", re.ASCII)
_LOW, _HIGH = (">=", "="), ("<=", "=")


class Bound(NamedTuple):
    """One bound as it is written."""

    name: str  # of NAMES
    sign: str
    value: str


@lru_cache(maxsize=256)
def parse(text: str) -> tuple[Bound, ...]:
    """Read bounds; raises InputError for an invalid text, or for bounds that no layout can meet."""
    matches = [] if text == ANY else [_BOUND.fullmatch(part) for part in text.split(",")]
    bounds = tuple(Bound(*match.groups()) for match in matches if match)
    if len(bounds) < len(matches):
        raise InputError(KEY, text, _ALLOWED)
    for name, (low, high) in limits(tuple(bound for bound in bounds if bound.value != MACHINE), 1).items():
        if low > high:
            raise InputError(KEY, text, f"bounds between which {name} has a value")
    return bounds


def limits(bounds: tuple[Bound, ...], machine: int) -> Mapping[str, tuple[float, float]]:
    """Return the least and the most of each of NAMES; machine: devices of a package."""
    if not any(bound.name == "tp" for bound in bounds) and machine > 1:
        bounds = (Bound("tp", "<=", MACHINE), *bounds)
    result = {}
    for name in NAMES:
        values = [
            (bound.sign, machine if bound.value == MACHINE else int(bound.value))
            for bound in bounds
            if bound.name == name
        ]
        low = max((value for sign, value in values if sign in _LOW), default=1)
        result[name] = (low, min((value for sign, value in values if sign in _HIGH), default=inf))
    return result
