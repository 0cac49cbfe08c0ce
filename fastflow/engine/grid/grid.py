"""A grid of points: what varies, and how a range of points becomes input columns.

A grid is one or more *blocks*, one after the other (a study may unite several). The points of a
block are numbered in the written order of its axes, the last one fastest (as itertools.product).
An axis over a config group, or over a leaf that something else in the configuration may depend on,
is *composed*: Hydra composes once for each combination of those. Any other axis is a *column*: its
values are read once, and NumPy spreads them over the points. Nothing is ever expanded but the
points that are asked for.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import prod
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastflow.config.messages import counted
from fastflow.config.model_inputs import Scalar, to_column
from fastflow.core.dedupe import unique_rows
from fastflow.core.tables import Columns, broadcast_column, is_broadcast
from fastflow.core.uncertainty.sampling import Uncertainty

Unset = Mapping[str, Mapping[str, Scalar | None]]
"""A user's key or group, to the inputs that follow from it as they would be without it; None: none."""


def together(keys: Sequence[str]) -> str:
    """Name what varies together: one key, or several as "(mem, net)"."""
    return keys[0] if len(keys) == 1 else f"({', '.join(keys)})"


class Axis(NamedTuple):
    """What varies together over the grid: one key, or several that a study zips."""

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
        """Return the place of points on each axis, in written order; each of shape (points,)."""
        digits, rest = [], points - self.first_point
        for count in reversed(self.shape):
            if rest.size > 1 and (rest == rest[0]).all():
                rest = rest[:1]  # on the axes that are left, neighbours are at one place
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
    """Dotted key to the value of each combination, (combinations of the batch,), or (1,) if all have one."""


class Share(NamedTuple):
    """Some points of a range that share a call of the model."""

    block: Block
    batch: int
    points: NDArray[np.int64]


class Grid(NamedTuple):
    """A planned grid. Plain arrays alone, so that a process or a cluster can be sent one."""

    blocks: tuple[Block, ...]
    batches: tuple[InputBatch, ...]
    batch: NDArray[np.int64]
    """The batch of each combination of composed axes, shape (combinations,)."""
    row: NDArray[np.int64]
    """The row in its batch of each combination, shape (combinations,)."""
    labels: dict[str, NDArray[np.str_]]
    """Group, or composed key that is no input, to each combination's choice, shape (combinations,)."""
    fingerprint: str
    overrides: tuple[str, ...]
    compositions: int
    levels: int
    """On-chip memory levels of the chip that has most of them."""
    stacked: bool = False
    """Whether a model is made of layers that stand for several."""
    served: str = ""
    """Which of the points serve: schema.ALL, schema.SOME or none."""
    report: str = ""
    """The study of the paper that it is drawn and judged as, if any."""
    uncertainty: Uncertainty | None = None
    """What of it is not exact, None where results have no bands."""
    unset: Mapping[int, Unset] = {}
    """Combination to what its inputs would be without the user's keys, of some combinations."""
    no_effect: str | None = None
    """Which of the user's keys have no effect in all of it; None: each point says so of itself."""
    stock: NDArray[np.bool_] = np.zeros(0, np.bool_)
    """Whether the chip of each combination is one of the library, none of whose figures is changed; (0,):
    no chip is."""
    given: tuple[str, ...] = ()
    """What the user gave of a study that pairs values or joins grids, of which `overrides` says neither."""

    @property
    def points(self) -> int:
        """The number of points."""
        return sum(block.points for block in self.blocks)

    @property
    def keys(self) -> list[str]:
        """Everything that varies, in written order."""
        return list(dict.fromkeys(key for block in self.blocks for axis in block.axes for key in axis.keys))

    def describe(self) -> str:
        """Say how many points there are, and what spans them."""
        products = [
            " x ".join(f"{axis.size:,} {together(axis.keys)}" for axis in block.axes) or "1"
            for block in self.blocks
        ]
        spanned = f": {' + '.join(products)}" if self.keys else ""
        return f"{counted(self.points, 'point')}{spanned}; {counted(self.compositions, 'composition')}"

    def shares(self, start: int, stop: int) -> Iterator[Share]:
        """Yield points start to stop by block and batch, in the order of points within each."""
        for block in self.blocks:
            low, high = max(start, block.first_point), min(stop, block.first_point + block.points)
            if low < high:
                points = np.arange(low, high, dtype=np.int64)
                batch = self.batch[block.combinations(points)]
                for number in np.unique(batch).tolist():
                    yield Share(block, number, points[batch == number])

    def among(self, points: NDArray[np.int64]) -> Iterator[tuple[NDArray[np.int64], Share]]:
        """Yield the places of points that are given in any order, by block and batch, and their share."""
        for block in self.blocks:
            inside = np.flatnonzero(
                (points >= block.first_point) & (points < block.first_point + block.points)
            )
            if inside.size:
                batch = self.batch[block.combinations(points[inside])]
                for number in np.unique(batch).tolist():
                    places = inside[batch == number]
                    yield places, Share(block, number, points[places])

    def inputs(self, share: Share, section: str | tuple[str, ...] = "") -> Columns:
        """Return the model's inputs of some points, or sections of them: dotted key to array (points,)."""
        rows = self.row[share.block.combinations(share.points)]
        first, place = unique_rows([rows], rows.size)
        inputs = {
            key: broadcast_column(values, rows.size)
            if values.size == 1
            else _spread(values[rows[first]], place)
            for key, values in self.batches[share.batch].columns.items()
            if key.startswith(section)
        }
        for axis, digit in zip(share.block.axes, share.block.digits(share.points), strict=True):
            if not axis.composed:
                own = {key: share.block.columns[key] for key in axis.keys if key.startswith(section)}
                inputs |= {
                    key: broadcast_column(values[digit[:1]], digit.size)
                    if is_broadcast(digit)
                    else values[digit]
                    for key, values in own.items()
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
        return np.array([self.first_point_of(one) for one in first], dtype=np.int64)

    def first_inputs(self) -> Columns:
        """Return the model's inputs of the first point: dotted key to array (1,)."""
        return self.inputs(next(self.shares(0, 1)))

    def label(self, name: str, start: int, stop: int) -> NDArray[Any]:
        """Return a label of points start to stop as texts, shape (stop - start,)."""
        return self.labelled([name], start, stop)[name]

    def labelled(self, names: Iterable[str], start: int, stop: int) -> Columns:
        """Return several labels of points start to stop as texts, each of shape (stop - start,)."""
        combinations = [
            block.combinations(np.arange(low, high, dtype=np.int64))
            for block in self.blocks
            if (low := max(start, block.first_point)) < (high := min(stop, block.first_point + block.points))
        ]
        rows = np.concatenate(combinations)
        first, place = unique_rows([rows], rows.size)
        return {name: _spread(self.labels[name][rows[first]].astype(object), place) for name in names}


def _is_one(values: NDArray[Any]) -> bool:
    """Return whether a column has one value alone."""
    return values.size == 1 or bool((values == values[0]).all())


def _spread(values: NDArray[Any], place: NDArray[np.int64]) -> NDArray[Any]:
    """Return a column of values at places, (points,): `broadcast_column` if there is but one."""
    if place.size and _is_one(values):
        return broadcast_column(values[:1], place.size)
    return values[place]


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
            columns = {key: values[:1] if _is_one(values) else values for key, values in columns.items()}
        batches.append(InputBatch(columns))
    return tuple(batches), batch, row
