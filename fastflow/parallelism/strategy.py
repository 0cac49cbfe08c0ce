"""Parallel strategies and their notation: `RC-4-2-d3-p2`, `CR-8-d4-p1`, `d512` (Section 3.3)."""

from __future__ import annotations

import re
from math import prod
from typing import NamedTuple

import numpy as np

from fastflow.distinct import vocabulary
from fastflow.errors import InputError
from fastflow.tables import Ints, Texts

NO_KERNEL, ROW_COLUMN, COLUMN_ROW = 0, 1, 2
NOTATION = "RC-KP1-KP2, CR-KP1 or neither, then dDP and pLP, such as RC-4-2-d3-p2, CR-8-d4 or d512"
AUTO = "auto"  # stands for the best of `every_strategy`
MOST_DEVICES = 10**15  # far below what 64-bit integers count
_PATTERN = re.compile(
    r"(?!-)(?:RC-(\d{1,99})-(\d{1,99})|CR-(\d{1,99}))?(?:(?:^|-)d(\d{1,99}))?(?:(?:^|-)p(\d{1,99}))?",
    re.ASCII,
)


class Strategy(NamedTuple):
    """One strategy: how a distributed GEMM is cut, and the degrees of each kind of parallelism."""

    kernel: int  # NO_KERNEL, ROW_COLUMN or COLUMN_ROW
    kp1: int
    kp2: int
    dp: int
    lp: int

    @property
    def devices(self) -> int:
        """Devices that the strategy uses."""
        return self.kp1 * self.kp2 * self.dp * self.lp

    def __str__(self) -> str:
        """Write the strategy the way `parse` reads it, degrees of 1 left out."""
        parts = {ROW_COLUMN: f"RC-{self.kp1}-{self.kp2}", COLUMN_ROW: f"CR-{self.kp1}"}
        words = [parts[self.kernel]] if self.kernel != NO_KERNEL else []
        words += [f"d{self.dp}"] if self.dp > 1 or self.kernel == NO_KERNEL else []
        words += [f"p{self.lp}"] if self.lp > 1 else []
        return "-".join(words)


class Strategies(NamedTuple):
    """Strategies as columns; int64, shape (points,)."""

    kernel: Ints
    kp1: Ints
    kp2: Ints
    dp: Ints
    lp: Ints

    @property
    def devices(self) -> Ints:
        """Devices that each strategy uses."""
        return self.kp1 * self.kp2 * self.dp * self.lp


def parse(text: str, key: str = "parallel.strategy") -> Strategy:
    """Read a strategy in the paper's notation; `key` is where it was written.

    Raises InputError when the text is no strategy or a degree is 0.
    """
    match = _PATTERN.fullmatch(text)
    groups = match.groups() if match else ()
    degrees = [int(group) for group in groups if group is not None]
    if not degrees or 0 in degrees:
        raise InputError(key, text, NOTATION)
    if prod(degrees) > MOST_DEVICES:
        raise InputError(key, text, f"a strategy that uses at most {MOST_DEVICES:,} devices")
    row, column, inner, dp, lp = (int(group) if group else 1 for group in groups)
    if groups[0]:
        return Strategy(kernel=ROW_COLUMN, kp1=row, kp2=column, dp=dp, lp=lp)
    return Strategy(kernel=COLUMN_ROW if groups[2] else NO_KERNEL, kp1=inner, kp2=1, dp=dp, lp=lp)


def parse_column(texts: Texts) -> tuple[Strategies, Texts]:
    """Read a column of strategies; return them, and each as it is printed, shape (points,)."""
    known, place = vocabulary(texts)
    parsed = [parse(text) for text in known]
    degrees = np.array(parsed, dtype=np.int64)[place]
    printed = np.array([str(strategy) for strategy in parsed])[place]
    kernel, kp1, kp2, dp, lp = np.ascontiguousarray(degrees.T)
    return Strategies(kernel=kernel, kp1=kp1, kp2=kp2, dp=dp, lp=lp), printed


def misfit(strategies: Strategies, devices: Ints, layers: Ints) -> Texts:
    """Say for every point why its strategy does not suit `devices` devices or `layers` layers; or ""."""
    reason = np.full(devices.size, "", dtype=object)
    for i in np.flatnonzero((devices % strategies.devices != 0) | (strategies.lp > layers)):
        strategy = Strategy(*(int(column[i]) for column in strategies))
        if strategy.lp > layers[i]:
            allowed = f"a strategy with at most {layers[i]} pipeline stages, one for each layer of the model"
        else:
            allowed = (
                f"a number of devices ({strategy.devices} here) that divides system.devices={devices[i]}"
            )
        reason[i] = str(InputError("parallel.strategy", strategy, allowed))
    return reason.astype(str)


def _factorisations(number: int, parts: int) -> list[tuple[int, ...]]:
    """Return every way to write a number as an ordered product of some factors."""
    if parts == 1:
        return [(number,)]
    small = [low for low in range(1, int(number**0.5) + 1) if number % low == 0]
    divisors = sorted({*small, *(number // low for low in small)})
    return [(first, *rest) for first in divisors for rest in _factorisations(number // first, parts - 1)]


def every_strategy(devices: int, layers: int) -> list[Strategy]:
    """Return the strategy space (3.3): each strategy that takes all devices, with at most a stage a layer.

    One that cuts a kernel into a single piece is left out, since it is the one without the cut.
    """
    found = [Strategy(kernel=NO_KERNEL, kp1=1, kp2=1, dp=dp, lp=lp) for dp, lp in _factorisations(devices, 2)]
    found += [
        Strategy(kernel=COLUMN_ROW, kp1=kp1, kp2=1, dp=dp, lp=lp)
        for kp1, dp, lp in _factorisations(devices, 3)
        if kp1 > 1
    ]
    found += [
        Strategy(kernel=ROW_COLUMN, kp1=kp1, kp2=kp2, dp=dp, lp=lp)
        for kp1, kp2, dp, lp in _factorisations(devices, 4)
        if kp1 * kp2 > 1
    ]
    return [strategy for strategy in found if strategy.lp <= layers]
