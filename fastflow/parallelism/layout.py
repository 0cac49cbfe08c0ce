"""How the layers of every kind are laid out over the devices of a pipeline stage.

A strategy's kernel and data parallelism holds for all layers, unless a kind of layer (embedding,
hidden, softmax) has its own: an LSTM with a vocabulary of 800K wants its softmax cut otherwise than its
cells. A kind's own cut takes the same devices, so that every layer has all of its stage.
"""

from __future__ import annotations

from functools import reduce
from operator import and_
from typing import NamedTuple

import numpy as np

from fastflow.columns.inputs import ALL_TO_ALL
from fastflow.errors import InputError
from fastflow.parallelism.layout_file import KEY as FILE
from fastflow.parallelism.layout_file import read_layout
from fastflow.parallelism.mesh import devices_along
from fastflow.parallelism.splits import (
    SEQUENCE,
    ULYSSES,
    assignment_of,
    assignments,
    axes_that_split,
    number_of,
)
from fastflow.parallelism.strategy import COLUMN_ROW, TENSOR, Strategies, Strategy, parse
from fastflow.tables import Bools, Inputs, Ints, Texts
from fastflow.workload.cutting import COLS, ROWS
from fastflow.workload.graph import LAYER_KINDS

SAME = "same"  # as `parallel.strategy` says


class Layouts(NamedTuple):
    """How each kind of layer is laid out; int64."""

    assignment: Ints  # what every axis cuts, of splits.assignments, (points, kinds of layer)
    degrees: Ints  # of mesh.AXES, the same stages for all kinds, (points, kinds of layer, axes)

    def _along(self, side: str) -> Ints:
        """Return the devices among which a side of an activation is split, (points, kinds of layer)."""
        found, every = np.ones_like(self.assignment), assignments()
        for number in np.flatnonzero(np.bincount(self.assignment.ravel())).tolist():
            devices = devices_along(self.degrees, axes_that_split(every[number], side))
            found = np.where(self.assignment == number, devices, found)
        return found

    @property
    def row_shards(self) -> Ints:
        """Ways in which the rows of a layer are cut (data parallelism, RC's KP1), as ranks."""
        return self._along(ROWS)

    @property
    def ranks(self) -> Ints:
        """Devices that share the columns of a layer (RC's KP2, CR's KP1), (points, kinds of layer)."""
        return self._along(COLS)

    @property
    def differ(self) -> Bools:
        """Whether kinds of layer are laid out differently, shape (points,)."""
        same = (self.degrees == self.degrees[:, :1]).all(axis=(1, 2))
        differ: Bools = ~(same & (self.assignment == self.assignment[:, :1]).all(axis=1))
        return differ


def lay_out(inputs: Inputs, strategies: Strategies) -> tuple[Layouts, Texts]:
    """Return every point's layouts, and why one does not suit its strategy (or "").

    inputs: `parallel.embedding`, `.hidden` and `.softmax`, each `same` or a strategy without stages; where
    that has no data parallelism, the devices that the cut leaves share the batch. Raises InputError.
    """
    kinds = len(LAYER_KINDS)
    layouts = Layouts(*(np.repeat(column[:, None], kinds, axis=1) for column in strategies))
    is_tensor = strategies.assignment == TENSOR
    asked = {SEQUENCE: inputs["parallel.sequence"], ULYSSES: inputs["parallel.context"] == ALL_TO_ALL}
    for chosen in ([SEQUENCE], [ULYSSES], [SEQUENCE, ULYSSES]):
        alike = reduce(and_, ((column == (cut in chosen)) for cut, column in asked.items()), is_tensor)
        if alike.any():
            layouts.assignment[alike] = number_of(assignment_of("TP", *chosen))
    reason = np.full(strategies.assignment.size, "", dtype=object)
    for kind, name in enumerate(LAYER_KINDS):
        key = f"parallel.{name}"
        for i in np.flatnonzero(inputs[key] != SAME):
            stages = int(strategies.lp[i])
            available = int(strategies.devices[i] // stages)
            own = parse_layout(str(inputs[key][i]), key)
            cut = own.devices // own.dp
            if own.dp == 1 and available % cut == 0:
                own = own._replace(dp=available // cut)
            if own.devices != available and reason[i] == "":
                devices = "one device" if available == 1 else f"{available} devices"
                allowed = f"a cut that uses the {devices} of a layer under the strategy"
                reason[i] = str(InputError(key, inputs[key][i], allowed))
            layouts.assignment[i, kind] = own.kernel
            layouts.degrees[i, kind] = own._replace(lp=stages).degrees
    for p in np.flatnonzero(layouts.differ & (layouts.assignment > COLUMN_ROW).any(axis=1)).tolist():
        allowed = "same for all kinds of layer, but where all are cut by RC, by CR or not at all"
        key = next(f"parallel.{name}" for name in LAYER_KINDS if inputs[f"parallel.{name}"][p] != SAME)
        reason[p] = reason[p] or str(InputError(key, inputs[key][p], allowed))
    for p in np.flatnonzero(inputs["parallel.per_layer"]).tolist():  # nothing has chosen
        allowed = "false, unless parallel.strategy=auto and parallel.layout=null"
        reason[p] = reason[p] or str(InputError("parallel.per_layer", "true", allowed))
    for p, path in enumerate(inputs.get(FILE, ())):
        layouts.assignment[p] = read_layout(str(path))
    return layouts, reason.astype(str)


def parse_layout(text: str, key: str) -> Strategy:
    """Read the cut of one kind of layer; raises InputError where it is none or has pipeline stages."""
    if text == SAME:
        return Strategy()
    own = parse(text, key)
    if own.lp > 1:
        raise InputError(
            key, text, "a cut without pipeline stages; parallel.strategy sets those for all layers"
        )
    return own
