"""`parallel.within`: bounds of the layouts that `parallel.strategy=auto` of a transformer tries.

A bound is `NAME<=N`, `NAME>=N` or `NAME=N`; N may be `machine`: the devices of a package. Bounds are parted
by commas. Tensor parallelism stays inside a machine of several devices unless one of them is of it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from math import inf
from typing import NamedTuple

from fastflow.core.errors import InputError

KEY, ANY, MACHINE = "parallel.within", "any", "machine"
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
    """Read bounds; raises InputError where the text is none, or where nothing can be within them."""
    found = [] if text == ANY else [_BOUND.fullmatch(part) for part in text.split(",")]
    bounds = tuple(Bound(*match.groups()) for match in found if match)
    if len(bounds) < len(found):
        raise InputError(KEY, text, _ALLOWED)
    for name, (low, high) in limits(tuple(one for one in bounds if one.value != MACHINE), 1).items():
        if low > high:
            raise InputError(KEY, text, f"bounds between which {name} has a value")
    return bounds


def limits(bounds: tuple[Bound, ...], machine: int) -> Mapping[str, tuple[float, float]]:
    """Return the least and the most of each of NAMES; machine: devices of a package."""
    if not any(one.name == "tp" for one in bounds) and machine > 1:
        bounds = (Bound("tp", "<=", MACHINE), *bounds)
    found = {}
    for name in NAMES:
        own = [
            (one.sign, machine if one.value == MACHINE else int(one.value))
            for one in bounds
            if one.name == name
        ]
        low = max((value for sign, value in own if sign in _LOW), default=1)
        found[name] = (low, min((value for sign, value in own if sign in _HIGH), default=inf))
    return found
