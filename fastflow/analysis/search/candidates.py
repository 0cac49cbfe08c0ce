"""Candidates of a search: the points of a grid under their strategies, and which of them compete."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastflow.analysis.search.optimizers.design_space import Space, space_of
from fastflow.analysis.search.optimizers.objective import with_designs
from fastflow.core.errors import CompositionError, InputError
from fastflow.core.tables import Columns, Floats, Ints, Texts, take
from fastflow.engine.dataset.schema import kind_of
from fastflow.engine.grid.grid import Grid
from fastflow.engine.grid.plan import CHOICES
from fastflow.performance.serving import serves
from fastflow.physics.parallelism.candidates import CHOSEN
from fastflow.physics.parallelism.strategy import AUTO

COMPETE = {"strategies": ("parallel",), "software": ("parallel", "model", "precision"), "all": ("",)}
"""The groups and sections whose choices compete, by the name for it; "" stands for every one."""
_STRATEGY = CHOSEN[0]
MOST_LAYOUTS = 48  # of a transformer, as many as the second rung of successive halving takes


class Candidates(NamedTuple):
    """Candidates of a search; shape (candidates,)."""

    grid: Grid
    point: Ints
    strategy: Texts
    beside: Columns  # what is chosen beside it, where any point is of a transformer: (candidates,) each
    group: Ints  # those of one number compete
    templates: Floats  # shares of their own chips, (candidates, shares)
    space: Space

    @property
    def labels(self) -> dict[str, NDArray[Any]]:
        """What tells candidates apart: choices of groups, what is swept, the strategy; (candidates,) each."""
        names = {*self.grid.labels, *self.grid.keys} - {_STRATEGY}
        ordered = [name for name in (*CHOICES, *self.grid.keys) if name in names]
        columns = {name: _of_points(self.grid, name)[self.point] for name in dict.fromkeys(ordered)}
        return columns | {"strategy": self.strategy}

    def inputs(self, rows: Ints, designs: Floats) -> Iterator[tuple[Ints, Columns]]:
        """Yield the places of rows that share a call of the model, and their inputs with the designs in them.

        rows: which candidates, (designs,); designs: (designs, shares).
        """
        for place, share in self.grid.shares_of(self.point[rows]):
            own = rows[place]
            inputs = self.grid.inputs(share)
            inputs[_STRATEGY] = self.strategy[own]
            inputs.update(take(self.beside, own))
            yield place, dict(with_designs(inputs, designs[place], self.space))


def _of_points(grid: Grid, name: str) -> NDArray[Any]:
    """Return a label, or an input, of every point of a grid; texts where it is no number in all."""
    if name in grid.labels:
        return grid.label(name, 0, grid.points)
    values = np.full(grid.points, None, dtype=object)
    for share in grid.shares(0, grid.points):
        inputs = grid.inputs(share, name)
        if name in inputs:
            values[share.points] = inputs[name].tolist()
    kind = kind_of(name, grid)
    numbers = {"float": np.float64, "int": np.int64}.get(kind)
    known = all(value is not None for value in values)
    return values.astype(numbers) if numbers and known else values.astype(str)


def candidates_of(grid: Grid, compete: str) -> Candidates:
    """Return what a grid's points come to under their strategies: all there are, where one is `auto`.

    Of a transformer those are the `MOST_LAYOUTS` best layouts on the chip's own breakdown. compete: of
    COMPETE. Raises InputError where chips have different shares, or pin what their shares would
    make.
    """
    points: list[int] = []
    chosen: list[tuple[Any, ...]] = []
    templates: list[Floats] = []
    spaces: set[tuple[str, ...]] = set()
    space = None
    for share in grid.shares(0, grid.points):
        inputs = grid.inputs(share)
        _check_pins(inputs)
        if inputs["parallel.per_layer"].any():
            raise InputError("parallel.per_layer", "true", "false: a search tries strategies for all layers")
        space = space_of(inputs)
        spaces.add(space.keys)
        if not space.keys:
            allowed = "a chip whose budgets have shares, as pathfinding: a search finds them"
            raise InputError("chip", inputs.get("chip.name", ["nothing"])[0], allowed)
        own = np.column_stack([inputs[key] for key in space.keys])
        for place, point in enumerate(share.points.tolist()):
            for choice in _choices(take(inputs, np.array([place]))):
                points.append(point)
                chosen.append(choice)
                templates.append(own[place])
        for key in set(grid.keys) & set(space.keys):
            raise InputError(
                key, "several values", "one value; a search starts there and finds the best shares itself"
            )
    if len(spaces) != 1 or space is None:
        raise CompositionError("the chips have different on-chip levels; search them one by one")
    order = np.argsort(points, kind="stable")
    point = np.array(points, dtype=np.int64)[order]
    group = _groups(grid, point, compete)
    own = np.array(templates)[order]
    columns = {
        key: np.array(column)[order] for key, column in zip(CHOSEN, zip(*chosen, strict=True), strict=True)
    }
    strategy = columns.pop(_STRATEGY)
    beside = columns if grid.has_layer_runs else {}
    return Candidates(grid, point, strategy, beside, group=group, templates=own, space=space)


def _choices(inputs: Columns) -> list[tuple[Any, ...]]:
    """Return what may be chosen for a point, of each of CHOSEN; inputs: (1,)."""
    from fastflow.performance.auto.rank import spaces_of
    from fastflow.performance.auto.serving import in_order
    from fastflow.performance.auto.transformer import best_layouts
    from fastflow.performance.serving.disaggregated.predict import PREFILL_STRATEGY, is_apart
    from fastflow.physics.workload import has_layer_runs

    given = tuple(inputs[key][0].item() for key in CHOSEN)
    if serves(inputs) and is_apart(inputs)[0]:
        for key in (_STRATEGY, PREFILL_STRATEGY):
            if inputs[key][0] == AUTO:
                allowed = "a strategy where prefill has devices of its own: a search does not split devices"
                raise InputError(key, AUTO, allowed)
    if given[0] != AUTO:
        return [given]
    if serves(inputs):
        layouts = in_order(inputs)[_STRATEGY][:MOST_LAYOUTS]
        return [(layout, *given[1:]) for layout in layouts.tolist()]
    if not has_layer_runs(inputs):
        return [(str(strategy), *given[1:]) for strategy in next(spaces_of(inputs))]
    best = best_layouts(inputs).best
    return list(zip(*(best[key][:MOST_LAYOUTS].tolist() for key in CHOSEN), strict=True))


def _check_pins(inputs: Columns) -> None:
    """Refuse chips whose shares decide nothing; what networks reach may be known."""
    for key in inputs:
        if key.startswith("chip.pinned.") and key.split(".")[2] not in ("intra_Bps", "inter_Bps"):
            allowed = "a chip generated from its shares, such as pathfinding; pins=none generates this one"
            raise InputError("chip", inputs["chip.name"][0], f"{allowed} ({key} is set)")


def _groups(grid: Grid, point: Ints, compete: str) -> Ints:
    """Number the candidates that compete: those that agree in whatever does not."""
    rest = [key for key in grid.keys if not {"", key.partition(".")[0]} & set(COMPETE[compete])]
    columns = [np.unique(_of_points(grid, key).astype(str), return_inverse=True)[1][point] for key in rest]
    if not columns:
        return np.zeros(point.size, dtype=np.int64)
    kinds, first, group = np.unique(np.column_stack(columns), axis=0, return_index=True, return_inverse=True)
    rank = np.empty(len(kinds), dtype=np.int64)
    rank[np.argsort(first)] = np.arange(len(kinds))  # in the order in which they come
    return rank[group.ravel()]
