"""Parallel strategies and their notation: `RC-4-2-d3-p2`, `CR-8-d4`, `TP-8-c2-d4-p4x2`, `d512` (3.3)."""

from __future__ import annotations

import re
from functools import lru_cache
from math import prod
from typing import NamedTuple

import numpy as np

from fastflow.distinct import vocabulary
from fastflow.errors import InputError
from fastflow.parallelism.mesh import AXES, PIPELINE, axes, devices_along
from fastflow.parallelism.splits import NAMES, WAYS
from fastflow.tables import Ints, Reasons, Texts

NO_KERNEL, ROW_COLUMN, COLUMN_ROW, TENSOR = map(NAMES.index, ("", "RC", "CR", "TP"))
NOTATION = (
    "RC-KP1-KP2, CR-KP1, TP-TP (then cCP and eEP), 2D-KP1-KP2, 3D-KP1-KP2-TP or none of them, then dDP and "
    "pLP or pLPxCHUNKS, such as RC-4-2-d3-p2, CR-8-d4, TP-8-c2-d4-p4x2 or d512; EP divides DP"
)
AUTO = "auto"  # stands for the best of `every_strategy`
MOST_DEVICES = 10**15  # far below what 64-bit integers count
_LETTERS = {"cp": "c", "ep": "e", "dp": "d", "lp": "p"}
"""Axes whose degree follows a letter; it is 1 where there is none."""
_LETTERED = "".join(rf"(?:(?:^|-){letter}(?P<{axis}>\d{{1,99}}))?" for axis, letter in _LETTERS.items())
# of each kernel cut, the axes whose degrees it lists
_CUT_AXES = {name: tuple(cut.axis for cut in way if cut.axis not in _LETTERS) for name, way in WAYS.items()}
_CUTS = "|".join(rf"{name}(?:-\d{{1,99}}){{{len(of)}}}" for name, of in _CUT_AXES.items() if of)
_PATTERN = re.compile(rf"(?!-)(?P<cut>{_CUTS})?{_LETTERED}(?:x(?P<chunks>\d{{1,99}}))?", re.ASCII)


class Strategy(NamedTuple):
    """One strategy: how a distributed GEMM is cut, and the degree of every axis of the mesh."""

    kernel: int = NO_KERNEL  # of splits.NAMES
    kp1: int = 1
    kp2: int = 1
    tp: int = 1
    cp: int = 1
    ep: int = 1
    dp: int = 1  # those beside ep
    lp: int = 1
    chunks: int = 1  # of layers, a stage

    @property
    def degrees(self) -> tuple[int, ...]:
        """Degrees in the order of mesh.AXES."""
        return self[1:-1]

    @property
    def devices(self) -> int:
        """Devices that the strategy uses."""
        return prod(self.degrees)

    def __str__(self) -> str:
        """Write the strategy the way `parse` reads it, degrees of 1 left out."""
        name = NAMES[self.kernel]
        words = [name] if name else []
        words += [str(getattr(self, axis)) for axis in _CUT_AXES[name]]
        written = self._replace(dp=self.dp * self.ep)
        degrees = {axis: getattr(written, axis) for axis in _LETTERS}
        words += [
            f"{_LETTERS[axis]}{degree}"
            for axis, degree in degrees.items()
            if degree > 1 or (axis == "dp" and not name)
        ]
        return "-".join(words) + (f"x{self.chunks}" if self.chunks > 1 else "")


class Strategies(NamedTuple):
    """Strategies as columns; int64."""

    assignment: Ints  # what every axis cuts, of splits.assignments, (points,)
    degrees: Ints  # of mesh.AXES, (points, axes)
    chunks: Ints  # of layers, a stage, (points,)

    @property
    def lp(self) -> Ints:
        """Pipeline stages, (points,)."""
        return self.degrees[:, PIPELINE].copy()

    @property
    def devices(self) -> Ints:
        """Devices that each strategy uses, (points,)."""
        return devices_along(self.degrees, axes(*AXES))


@lru_cache(maxsize=4096)
def parse(text: str, key: str = "parallel.strategy") -> Strategy:
    """Read a strategy in the paper's notation; `key` is where it was written.

    Raises InputError when the text is no strategy or a degree is 0.
    """
    match = _PATTERN.fullmatch(text)
    found = match.groupdict() if match else {}
    name, *own = (found.pop("cut", None) or "").split("-")
    given = {axis: int(degree) for axis, degree in found.items() if degree is not None}
    given |= zip(_CUT_AXES[name], map(int, own), strict=True)
    foreign = given.keys() - {"dp", "lp", "chunks"} - {cut.axis for cut in WAYS[name]}
    unstaged = "chunks" in given and ("lp" not in given or given["chunks"] > 1 == given["lp"])
    if not given or 0 in given.values() or foreign or unstaged or given.get("dp", 1) % given.get("ep", 1):
        raise InputError(key, text, NOTATION)
    given["dp"] = given.get("dp", 1) // given.get("ep", 1)
    strategy = Strategy(NAMES.index(name), **given)
    if strategy.devices * strategy.chunks > MOST_DEVICES:
        raise InputError(key, text, f"a strategy that uses at most {MOST_DEVICES:,} devices")
    return strategy


def parse_column(texts: Texts) -> tuple[Strategies, Texts]:
    """Read a column of strategies; return them, and each as it is printed, shape (points,)."""
    known, place = vocabulary(texts)
    parsed = [parse(text) for text in known]
    kernel = np.array([strategy.kernel for strategy in parsed], dtype=np.int64)[place]
    degrees = np.array([strategy.degrees for strategy in parsed], dtype=np.int64)[place]
    chunks = np.array([strategy.chunks for strategy in parsed], dtype=np.int64)[place]
    printed = np.array([str(strategy) for strategy in parsed])[place]
    return Strategies(assignment=kernel, degrees=degrees, chunks=chunks), printed


def misfit(strategies: Strategies, devices: Ints, layers: Ints) -> Texts:
    """Say for every point why its strategy does not suit `devices` devices or `layers` layers; or ""."""
    reason = Reasons(devices.size)
    virtual = strategies.lp * strategies.chunks
    for i in np.flatnonzero((devices % strategies.devices != 0) | (virtual > layers)):
        strategy = Strategy(int(strategies.assignment[i]), *strategies.degrees[i].tolist())
        strategy = strategy._replace(chunks=int(strategies.chunks[i]))
        if strategy.chunks > 1 and virtual[i] > layers[i]:
            allowed = f"a strategy with at most {layers[i]} chunks over all stages, one for each layer"
        elif strategy.lp > layers[i]:
            allowed = f"a strategy with at most {layers[i]} pipeline stages, one for each layer of the model"
        else:
            allowed = (
                f"a number of devices ({strategy.devices} here) that divides system.devices={devices[i]}"
            )
        reason.add(i, str(InputError("parallel.strategy", strategy, allowed)))
    return reason.texts()


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
    return [
        Strategy(kernel, **dict(zip(_CUT_AXES[NAMES[kernel]], cuts, strict=True)), dp=dp, lp=lp)
        for kernel in (NO_KERNEL, COLUMN_ROW, ROW_COLUMN)
        for *cuts, dp, lp in _factorisations(devices, len(_CUT_AXES[NAMES[kernel]]) + 2)
        if lp <= layers and (prod(cuts) > 1 or not cuts)
    ]
