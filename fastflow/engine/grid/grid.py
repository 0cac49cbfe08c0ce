"""A grid of points: what varies, and how a range of points becomes input columns.

A grid is one or more *blocks*, one after the other (a study may unite several). The points of a
block are numbered in the written order of its axes, the last one fastest (as itertools.product).
An axis over a config group, or over a leaf that something else in the configuration may depend on,
is *composed*: Hydra composes once for each combination of those. Any other axis is a *column*: its
values are read once, and NumPy broadcasts them to the points. Only requested points are
expanded.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import prod
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastflow.config.messages import pluralize
from fastflow.config.model_inputs import Scalar, to_column
from fastflow.core.dedupe import unique_rows
from fastflow.core.tables import Columns, broadcast_column, is_broadcast, is_constant
from fastflow.core.uncertainty.sampling import Uncertainty
from fastflow.physics.hardware.packages import DEVICES

Unset = Mapping[str, Mapping[str, Scalar | None]]
"""A user's key or group, to the inputs that depend on it, with their values without it; None: no input."""


def together(keys: Sequence[str]) -> str:
    """Name the keys of an axis: "mem", or "(mem, net)" for several."""
    return keys[0] if len(keys) == 1 else f"({', '.join(keys)})"


class Axis(NamedTuple):
    """An axis of the grid: a key, or several that a study zips."""

    keys: tuple[str, ...]
    """Config groups or dotted keys, without Hydra's `+`."""
    size: int
    """The number of its values."""
    composed: bool


class Block(NamedTuple):
    """A product of axes."""

    axes: tuple[Axis, ...]
    columns: Columns
    """Dotted key to the values of each key of a column axis, shape (the axis's size,)."""
    first_point: int
    first_combination: int

    @property
    def shape(self) -> tuple[int, ...]:
        """The number of values of each axis, in written order."""
        return tuple(axis.size for axis in self.axes)

    @property
    def points(self) -> int:
        """The number of points."""
        return prod(self.shape)

    def digits(self, points: NDArray[np.int64]) -> list[NDArray[np.int64]]:
        """Return the index of points on each axis, in written order; each of shape (points,)."""
        digits, rest = [], points - self.first_point
        for count in reversed(self.shape):
            if rest.size > 1 and (rest == rest[0]).all():
                rest = rest[:1]  # on the remaining axes, all points have the same index
            digit = rest % count
            digits.append(digit if rest.size == points.size else broadcast_column(digit, points.size))
            rest = rest // count
        return digits[::-1]

    def combinations(self, points: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the combination of composed axes that points belong to, shape (points,)."""
        combination = np.zeros_like(points)
        for axis, digit in zip(self.axes, self.digits(points), strict=True):
            if axis.composed:
                combination = combination * axis.size + digit
        return self.first_combination + combination

    def first_point_of(self, combination: int) -> int:
        """Return the first point of a combination of composed axes."""
        rest, point, step = combination - self.first_combination, 0, 1
        for axis in reversed(self.axes):
            if axis.composed:
                point += step * (rest % axis.size)
                rest //= axis.size
            step *= axis.size
        return self.first_point + point


class InputBatch(NamedTuple):
    """Combinations of composed axes that have the same inputs, so that they can share a call of the model."""

    columns: Columns
    """Dotted key to the value of each combination, (combinations of the batch,), or (1,) if all are equal."""


class Share(NamedTuple):
    """Some points of a range that share a call of the model."""

    block: Block
    batch: int
    points: NDArray[np.int64]


class Provenance(NamedTuple):
    """The origin of the results of a grid."""

    fingerprint: str
    """The SHA-256 of all inputs of the results."""
    overrides: tuple[str, ...]
    user_overrides: tuple[str, ...]
    """The user's overrides of a study that pairs values or joins grids, which `overrides` cannot express."""


class Grid(NamedTuple):
    """A planned grid: plain arrays alone, so that it can be sent to a process or a cluster."""

    blocks: tuple[Block, ...]
    batches: tuple[InputBatch, ...]
    batch: NDArray[np.int64]
    """The batch of each combination of composed axes, shape (combinations,)."""
    row: NDArray[np.int64]
    """The row in its batch of each combination, shape (combinations,)."""
    labels: dict[str, NDArray[np.str_]]
    """Group, or composed key that is no input, to each combination's choice, shape (combinations,)."""
    provenance: Provenance
    compositions: int
    levels: int
    """The largest number of on-chip memory levels of any chip."""
    has_layer_runs: bool = False
    """Whether a model has runs of equal layers."""
    served: str = ""
    """The points that serve: schema.ALL, schema.SOME or ""."""
    report: str = ""
    """The study of the paper that judges and draws it, if any."""
    uncertainty: Uncertainty | None = None
    """The uncertainty of its inputs, None where results have no bands."""
    unset: Mapping[int, Unset] = {}
    """For some combinations, the inputs without each of the user's keys."""
    no_effect: str | None = None
    """The user's keys without effect in the whole grid; None: a column of each point says it."""
    stock: NDArray[np.bool_] = np.zeros(0, np.bool_)
    """Whether the chip of each combination is an unmodified chip of the library; (0,): none is."""

    @property
    def points(self) -> int:
        """The number of points."""
        return sum(block.points for block in self.blocks)

    @property
    def keys(self) -> list[str]:
        """Everything that varies, in written order."""
        return list(dict.fromkeys(key for block in self.blocks for axis in block.axes for key in axis.keys))

    @property
    def chooses_devices(self) -> bool:
        """Whether the number of devices of any point is `auto`, which is always composed."""
        columns = (batch.columns.get(DEVICES) for batch in self.batches)
        return any(column is not None and bool((column == 0).any()) for column in columns)

    @property
    def first_key(self) -> str:
        """The first key that varies; the union of a study whose grids are of a point each."""
        return next(iter(self.keys), "hydra.sweeper.union")

    def describe(self) -> str:
        """Describe the number of points and the axes."""
        products = [
            " x ".join(f"{axis.size:,} {together(axis.keys)}" for axis in block.axes) or "1"
            for block in self.blocks
        ]
        spanned = f": {' + '.join(products)}" if self.keys else ""
        return f"{pluralize(self.points, 'point')}{spanned}"

    def shares(self, start: int, stop: int) -> Iterator[Share]:
        """Yield points start to stop by block and batch, in the order of points within each."""
        for block in self.blocks:
            low, high = max(start, block.first_point), min(stop, block.first_point + block.points)
            if low < high:
                points = np.arange(low, high, dtype=np.int64)
                batch = self.batch[block.combinations(points)]
                for number in np.unique(batch).tolist():
                    yield Share(block, number, points[batch == number])

    def shares_of(self, points: NDArray[np.int64]) -> Iterator[tuple[NDArray[np.int64], Share]]:
        """Yield the shares of points in any order, by block and batch, and the positions of their points."""
        for block in self.blocks:
            inside = np.flatnonzero(
                (points >= block.first_point) & (points < block.first_point + block.points)
            )
            if inside.size:
                batch = self.batch[block.combinations(points[inside])]
                for number in np.unique(batch).tolist():
                    positions = inside[batch == number]
                    yield positions, Share(block, number, points[positions])

    def inputs(self, share: Share, section: str | tuple[str, ...] = "") -> Columns:
        """Return the model's inputs of some points, or sections of them: dotted key to array (points,)."""
        rows = self.row[share.block.combinations(share.points)]
        first, inverse = unique_rows([rows], rows.size)
        inputs = {
            key: broadcast_column(values, rows.size)
            if values.size == 1
            else _gather(values[rows[first]], inverse)
            for key, values in self.batches[share.batch].columns.items()
            if key.startswith(section)
        }
        for axis, digit in zip(share.block.axes, share.block.digits(share.points), strict=True):
            if not axis.composed:
                swept = {key: share.block.columns[key] for key in axis.keys if key.startswith(section)}
                inputs |= {
                    key: broadcast_column(values[digit[:1]], digit.size)
                    if is_broadcast(digit)
                    else values[digit]
                    for key, values in swept.items()
                }
        return inputs

    def is_stock(self, share: Share) -> NDArray[np.bool_]:
        """Say whether the chips of some points are of the library, with no figure changed; (points,)."""
        if not self.stock.any():
            return broadcast_column(np.zeros(1, np.bool_), share.points.size)
        if self.stock.all():
            return broadcast_column(np.ones(1, np.bool_), share.points.size)
        return self.stock[share.block.combinations(share.points)]

    def first_point_of(self, combination: int) -> int:
        """Return the first point of a combination of composed axes."""
        block = next(block for block in reversed(self.blocks) if block.first_combination <= combination)
        return block.first_point_of(combination)

    def first_points(self) -> NDArray[np.int64]:
        """Return the first point of every batch, in order, (batches,)."""
        first = (int(np.argmax(self.batch == batch)) for batch in range(len(self.batches)))
        return np.array([self.first_point_of(combination) for combination in first], dtype=np.int64)

    def first_inputs(self) -> Columns:
        """Return the model's inputs of the first point: dotted key to array (1,)."""
        return self.inputs(next(self.shares(0, 1)))

    def label(self, name: str, start: int, stop: int) -> NDArray[Any]:
        """Return a label of points start to stop as texts, shape (stop - start,)."""
        return self.label_columns([name], np.arange(start, stop, dtype=np.int64))[name]

    def label_columns(self, names: Iterable[str], points: NDArray[np.int64]) -> Columns:
        """Return several labels of points, in any order, as texts; (points,) each."""
        rows = np.empty(points.size, dtype=np.int64)
        for block in self.blocks:
            inside = (points >= block.first_point) & (points < block.first_point + block.points)
            rows[inside] = block.combinations(points[inside])
        first, inverse = unique_rows([rows], rows.size)
        return {name: _gather(self.labels[name][rows[first]].astype(object), inverse) for name in names}


def _gather(values: NDArray[Any], inverse: NDArray[np.int64]) -> NDArray[Any]:
    """Return values[inverse], (points,); a broadcast column if all values are equal."""
    if inverse.size and is_constant(values):
        return broadcast_column(values[:1], inverse.size)
    return values[inverse]


def batches_of(
    combinations: Sequence[Mapping[str, Scalar]],
) -> tuple[tuple[InputBatch, ...], NDArray[np.int64], NDArray[np.int64]]:
    """Group combinations by their set of keys and their workload.

    Returns the batches, and for each combination its batch and its row in it.
    """
    members: dict[tuple[frozenset[str], object], list[int]] = {}
    for i, inputs in enumerate(combinations):
        members.setdefault((frozenset(inputs), inputs.get("model.name")), []).append(i)
    batch, row = np.zeros(len(combinations), np.int64), np.zeros(len(combinations), np.int64)
    batches = []
    for b, rows in enumerate(members.values()):
        batch[rows], row[rows] = b, np.arange(len(rows))
        points = [combinations[i] for i in rows]
        columns = {key: to_column(key, [point[key] for point in points]) for key in points[0]}
        if len(points) > 1:
            columns = {key: values[:1] if is_constant(values) else values for key, values in columns.items()}
        batches.append(InputBatch(columns))
    return tuple(batches), batch, row
