"""A grid of points: what varies, and how a range of points becomes input columns.

Points are numbered in the written order of the axes, the last one fastest (as itertools.product).
An axis over a config group, or over a leaf that something else in the configuration may depend on,
is *composed*: Hydra composes once for each combination of those. Any other axis is a *column*: its
values are read once, and NumPy spreads them over the points.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastflow.engine.inputs import Scalar, to_column

Columns = dict[str, NDArray[np.generic]]


class Axis(NamedTuple):
    """One thing that varies over the grid."""

    key: str
    """The config group or dotted key, without Hydra's `+`."""
    size: int
    """The number of its values."""
    composed: bool


class Batch(NamedTuple):
    """Combinations of composed axes that have the same inputs, so that they can share a call of the model."""

    columns: Columns
    """Dotted key to value of each combination, shape (combinations of the batch,)."""


class Grid(NamedTuple):
    """A planned grid. Plain arrays alone, so that a process or a cluster can be sent one."""

    axes: tuple[Axis, ...]
    batches: tuple[Batch, ...]
    batch: NDArray[np.int64]
    """The batch of each combination of composed axes, shape (combinations,)."""
    row: NDArray[np.int64]
    """The row in its batch of each combination, shape (combinations,)."""
    labels: dict[str, NDArray[np.str_]]
    """Group, or composed axis that is no input, to each combination's choice, shape (combinations,)."""
    columns: Columns
    """Dotted key to the values of a column axis."""
    fingerprint: str
    overrides: tuple[str, ...]
    compositions: int
    levels: int
    """On-chip memory levels of the chip that has most of them."""

    @property
    def shape(self) -> tuple[int, ...]:
        """The number of values of each axis, in written order."""
        return tuple(axis.size for axis in self.axes)

    @property
    def points(self) -> int:
        """The number of points."""
        total = 1
        for count in self.shape:
            total *= count
        return total

    def digits(self, points: NDArray[np.int64]) -> list[NDArray[np.int64]]:
        """Return the place of points on each axis, in written order; each of shape (points,)."""
        digits, rest = [], points
        for count in reversed(self.shape):
            digits.append(rest % count)
            rest = rest // count
        return digits[::-1]

    def combinations(self, points: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the combination of composed axes that points belong to, shape (points,)."""
        combination = np.zeros_like(points)
        for axis, digit in zip(self.axes, self.digits(points), strict=True):
            if axis.composed:
                combination = combination * axis.size + digit
        return combination

    def inputs(self, batch: int, points: NDArray[np.int64]) -> Columns:
        """Return the model's inputs for points of one batch: dotted key to array of shape (points,)."""
        rows = self.row[self.combinations(points)]
        inputs = {key: values[rows] for key, values in self.batches[batch].columns.items()}
        for axis, digit in zip(self.axes, self.digits(points), strict=True):
            if not axis.composed:
                inputs[axis.key] = self.columns[axis.key][digit]
        return inputs


def batches_of(
    combinations: Sequence[Mapping[str, Scalar]],
) -> tuple[tuple[Batch, ...], NDArray[np.int64], NDArray[np.int64]]:
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
        first = combinations[rows[0]]
        batches.append(Batch({key: to_column(key, [combinations[i][key] for i in rows]) for key in first}))
    return tuple(batches), batch, row
