"""Parallel strategies and their notation: `RC-4-2-d3-p2`, `CR-8-d4`, `TP-8-c2-d4-p4x2`, `d512` (3.3)."""

from __future__ import annotations

import re
from functools import lru_cache
from math import prod
from typing import Any, NamedTuple

import numpy as np

from fastflow.core.dedupe import factorize
from fastflow.core.errors import InputError
from fastflow.core.reasons.codes import Code, rejected
from fastflow.core.reasons.columns import ReasonColumn, Reasons
from fastflow.core.tables import Bools, Ints, Texts
from fastflow.physics.parallelism.mesh import AXES, PIPELINE, axes, devices_along
from fastflow.physics.parallelism.plans import NAMES, PLANS

NO_KERNEL, ROW_COLUMN, COLUMN_ROW, TENSOR = map(NAMES.index, ("", "RC", "CR", "TP"))
NOTATION = (
    "RC-KP1-KP2, CR-KP1, TP-TP (then cCP and eEP), 2D-KP1-KP2, 3D-KP1-KP2-TP or none of them, then dDP and "
    "pPP or pPPxCHUNKS, such as RC-4-2-d3-p2, CR-8-d4, TP-8-c2-d4-p4x2 or d512"
)
AUTO = "auto"  # stands for the best of `every_strategy`
MAX_DEVICES = 10**15  # far below what 64-bit integers count
_LETTERS = {"cp": "c", "ep": "e", "dp": "d", "pp": "p"}
"""Axes whose degree follows a letter; it is 1 where there is none."""
_LETTERED = "".join(rf"(?:(?:^|-){letter}(?P<{axis}>\d{{1,99}}))?" for axis, letter in _LETTERS.items())
# of each plan, the axes whose degrees it lists
_PLAN_AXES = {
    name: tuple(sharding.axis for sharding in plan if sharding.axis not in _LETTERS)
    for name, plan in PLANS.items()
}
_PLAN_PATTERN = "|".join(rf"{name}(?:-\d{{1,99}}){{{len(of)}}}" for name, of in _PLAN_AXES.items() if of)
_PATTERN = re.compile(rf"(?!-)(?P<plan>{_PLAN_PATTERN})?{_LETTERED}(?:x(?P<chunks>\d{{1,99}}))?", re.ASCII)
_MAX_ADVICE_LENGTH = 60  # characters of a text that gets a suggestion
_LOOSE = re.compile(
    rf"[-_ ]*(?:(?P<plan>{'|'.join(name.lower() for name, of in _PLAN_AXES.items() if of)})"
    r"[-_ ]*(?P<sizes>\d+(?:[-_ ]+\d+)*)|(?P<axis>[cedp])p?[-_ ]*(?P<degree>\d+(?:x\d+)?))",
    re.ASCII,
)
"""A part of a strategy in small letters, as people may write it: tp8, dp-4, pp2."""


class Strategy(NamedTuple):
    """One strategy: the plan of a distributed GEMM, and the degree of every axis of the mesh."""

    kernel: int = NO_KERNEL  # of plans.NAMES
    kp1: int = 1
    kp2: int = 1
    tp: int = 1
    cp: int = 1
    ep: int = 1  # devices that share experts, taken from the other axes
    dp: int = 1
    pp: int = 1
    chunks: int = 1  # of layers, a stage

    @property
    def degrees(self) -> tuple[int, ...]:
        """Degrees in the order of mesh.AXES, where tensor parallelism shards each expert."""
        return self.on_mesh(whole_experts=False)[0]

    @property
    def devices(self) -> int:
        """Devices that the strategy uses."""
        return prod(self._replace(ep=1)[1:-1])

    def on_mesh(self, whole_experts: bool) -> tuple[tuple[int, ...], int]:
        """Return degrees in the order of mesh.AXES, and the axes other than ep that shard experts, as bits.

        Experts are sharded along tp, where it does not divide each expert (`whole_experts`), then along cp,
        then along some devices of dp, which are the mesh's axis ep: neighbours first, as Megatron-core's
        RankGenerator numbers them. All devices of tp and cp share experts, or none. Where no axes fit, ep is
        1 (see `invalid_strategy`).
        """
        for names in (("tp", "cp"), ("tp",), ("cp",), ()) if whole_experts else (("cp",), ()):
            along = prod(getattr(self, axis) for axis in names)
            ep = self.ep // along
            if self.ep % along == 0 and self.dp % ep == 0:
                expert_axes = axes(*(axis for axis in names if getattr(self, axis) > 1))
                return self._replace(ep=ep, dp=self.dp // ep)[1:-1], expert_axes
        return self._replace(ep=1)[1:-1], 0

    def halved(self) -> Strategy:
        """Return a strategy of DualPipe as one of half as many stages, with two chunks each.

        Every stage of one direction is on the same devices as a stage of the other one, in two copies of the
        model with half of the batch each: twice the data parallelism (deepseek-ai/DualPipe; "cut-in-half").
        A strategy without an even number of stages of one chunk stays as it is.
        """
        if self.pp % 2 or self.chunks > 1:
            return self
        return self._replace(pp=self.pp // 2, chunks=2, dp=2 * self.dp)

    def __str__(self) -> str:
        """Write the strategy in the notation of `parse`, without degrees of 1."""
        name = NAMES[self.kernel]
        words = [name] if name else []
        words += [str(getattr(self, axis)) for axis in _PLAN_AXES[name]]
        degrees = {axis: getattr(self, axis) for axis in _LETTERS}
        words += [
            f"{_LETTERS[axis]}{degree}"
            for axis, degree in degrees.items()
            if degree > 1 or (axis == "dp" and not name)
        ]
        return "-".join(words) + (f"x{self.chunks}" if self.chunks > 1 else "")


class Strategies(NamedTuple):
    """Strategies as columns; int64."""

    assignment: Ints  # dimensions that every axis shards, of plans.assignments, (points,)
    degrees: Ints  # of mesh.AXES, (points, axes)
    chunks: Ints  # of layers, a stage, (points,)
    experts: Ints  # expert parallelism, along ep and expert_axes, (points,)
    expert_axes: Ints  # axes other than ep that shard experts, as bits, (points,)

    @property
    def pp(self) -> Ints:
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
    groups = match.groupdict() if match else {}
    name, *sizes = (groups.pop("plan", None) or "").split("-")
    degrees = {axis: int(degree) for axis, degree in groups.items() if degree is not None}
    degrees |= zip(_PLAN_AXES[name], map(int, sizes), strict=True)
    unknown_axes = degrees.keys() - {"dp", "pp", "chunks"} - {sharding.axis for sharding in PLANS[name]}
    invalid_chunks = "chunks" in degrees and ("pp" not in degrees or degrees["chunks"] > 1 == degrees["pp"])
    if not degrees or 0 in degrees.values() or unknown_axes or invalid_chunks:
        raise InputError(key, text, NOTATION + _advice(text))
    strategy = Strategy(NAMES.index(name), **degrees)
    if max(strategy.devices * strategy.chunks, strategy.ep) > MAX_DEVICES:
        raise InputError(key, text, f"a strategy that uses at most {MAX_DEVICES:,} devices")
    return strategy


def _advice(text: str) -> str:
    """Return "; did you mean X?" for a strategy without hyphens or with other letters; else nothing."""
    plan, degrees, begin = "", {}, 0
    while begin < len(text) <= _MAX_ADVICE_LENGTH:
        part = _LOOSE.match(text.lower(), begin)
        if part is None or (plan if part["plan"] else part["axis"] in degrees):
            return ""
        if part["plan"]:
            plan = "-".join([part["plan"].upper(), *re.findall(r"\d+", part["sizes"])])
        else:
            degrees[part["axis"]] = part["degree"]
        begin = part.end()
    lettered = [f"{letter}{degrees[letter]}" for letter in _LETTERS.values() if letter in degrees]
    meant = "-".join([*([plan] if plan else []), *lettered])
    if meant in ("", text):
        return ""
    try:
        parse(meant)
    except InputError:
        return ""
    return f"; did you mean {meant}?"


@lru_cache(maxsize=16384)
def _mesh_forms(strategy: Strategy) -> tuple[tuple[tuple[int, ...], ...], tuple[int, ...]]:
    """Return degrees and expert axes where TP shards each expert and where not."""
    sharded, unsharded = strategy.on_mesh(False), strategy.on_mesh(True)
    return (sharded[0], unsharded[0]), (sharded[1], unsharded[1])


@lru_cache(maxsize=16384)
def _printed(text: str) -> str:
    """Return a strategy as it is printed."""
    return str(parse(text))


def parse_column(
    texts: Texts, whole_experts: Bools | None = None, is_dual: Bools | None = None
) -> tuple[Strategies, Texts]:
    """Read a column of strategies; return them, and each as it is printed, shape (points,).

    whole_experts: whether tensor parallelism does not shard each expert, (points,); is_dual: whether a
    strategy is one of DualPipe, which is returned `halved`, (points,).
    """
    if is_dual is not None and is_dual.any():
        strategies, printed = parse_column(texts, whole_experts)
        halves = _columns(texts, whole_experts, is_halved=True)
        merged = (
            np.where(is_dual if whole.ndim == 1 else is_dual[:, None], half, whole)
            for half, whole in zip(halves, strategies, strict=True)
        )
        return Strategies(*merged), printed
    distinct, inverse = factorize(texts)
    return _columns(texts, whole_experts), np.array([_printed(text) for text in distinct])[inverse]


def _columns(texts: Texts, whole_experts: Bools | None, is_halved: bool = False) -> Strategies:
    """Return strategies as columns."""
    distinct, inverse = factorize(texts)
    parsed = [parse(text).halved() if is_halved else parse(text) for text in distinct]
    variant = (
        np.zeros(texts.size, dtype=np.int64) if whole_experts is None else whole_experts.astype(np.int64)
    )
    forms = [_mesh_forms(strategy) for strategy in parsed]

    def column(values: list[Any]) -> Ints:
        return np.array(values, dtype=np.int64)[inverse]

    return Strategies(
        assignment=column([strategy.kernel for strategy in parsed]),
        degrees=np.array([degrees for degrees, _ in forms], dtype=np.int64)[inverse, variant],
        chunks=column([strategy.chunks for strategy in parsed]),
        experts=column([strategy.ep for strategy in parsed]),
        expert_axes=np.array([expert_axes for _, expert_axes in forms], dtype=np.int64)[inverse, variant],
    )


def invalid_strategy(
    strategies: Strategies,
    printed: Texts,
    devices: Ints,
    layers: Ints,
    key: str = "parallel.strategy",
    devices_key: Texts | None = None,
) -> ReasonColumn:
    """Say for every point why its strategy does not suit its devices, layers or experts, (points,).

    key: of the strategies; devices_key: how a reason names each point's devices, by default `system.devices`.
    """
    reason = Reasons(devices.size)
    virtual, used, stages = strategies.pp * strategies.chunks, strategies.devices, strategies.pp
    expert_parallel = strategies.degrees[:, AXES.index("ep")].copy()
    for axis in ("tp", "cp"):
        is_expert_axis = strategies.expert_axes & axes(axis) > 0
        expert_parallel *= np.where(is_expert_axis, strategies.degrees[:, AXES.index(axis)], 1)
    invalid = (devices % used != 0) | (virtual > layers) | (expert_parallel != strategies.experts)
    for i in np.flatnonzero(invalid):
        conflicts: list[tuple[str, object]] = []
        if strategies.chunks[i] > 1 and virtual[i] > layers[i]:
            allowed = f"a strategy with at most {layers[i]} chunks over all stages, one for each layer"
        elif stages[i] > layers[i]:
            allowed = f"a strategy with at most {layers[i]} pipeline stages, one for each layer of the model"
        elif expert_parallel[i] != strategies.experts[i]:
            allowed = _expert_parallel_sizes(parse(str(printed[i])))
        else:
            name = "system.devices" if devices_key is None else devices_key[i]
            allowed = f"a number of devices ({used[i]} here) that divides {name}={devices[i]}, or {AUTO}"
            conflicts = [(str(name), devices[i])]
        reason.add(i, rejected(Code.STRATEGY, key, printed[i], allowed, conflicts=conflicts))
    return reason.column()


def _expert_parallel_sizes(strategy: Strategy) -> str:
    """Return the allowed sizes of a strategy's expert parallelism, in words."""
    texts = [f"an e that divides {strategy.dp}"]
    if strategy.cp > 1:
        texts += [f"{strategy.cp} times such a one"]
    if strategy.tp > 1:
        texts += [f"with parallel.expert_tensor_parallel=false {strategy.tp} times that"]
    return ", or ".join(texts)


def divisors(number: int) -> list[int]:
    """Return the divisors of a number, in growing order."""
    low = [divisor for divisor in range(1, int(number**0.5) + 1) if number % divisor == 0]
    return sorted({*low, *(number // divisor for divisor in low)})


def _factorisations(number: int, parts: int) -> list[tuple[int, ...]]:
    """Return every ordered product of `parts` factors that equals a number."""
    if parts == 1:
        return [(number,)]
    return [
        (first, *rest) for first in divisors(number) for rest in _factorisations(number // first, parts - 1)
    ]


def every_strategy(devices: int, layers: int) -> list[Strategy]:
    """Return the strategy space (3.3): each strategy on all devices, with at most a stage a layer.

    A plan with degrees of 1 is left out, since it equals the strategy without a plan.
    """
    return [
        Strategy(kernel, **dict(zip(_PLAN_AXES[NAMES[kernel]], degrees, strict=True)), dp=dp, pp=pp)
        for kernel in (NO_KERNEL, COLUMN_ROW, ROW_COLUMN)
        for *degrees, dp, pp in _factorisations(devices, len(_PLAN_AXES[NAMES[kernel]]) + 2)
        if pp <= layers and (prod(degrees) > 1 or not degrees)
    ]
