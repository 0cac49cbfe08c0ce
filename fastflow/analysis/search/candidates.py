"""Candidates of a search: the points of a grid under their strategies, in groups that compete."""

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
from fastflow.performance.serving import is_serving
from fastflow.physics.parallelism.candidates import CHOSEN
from fastflow.physics.parallelism.strategy import AUTO

COMPARE = {"strategies": ("parallel",), "software": ("parallel", "model", "precision"), "all": ("",)}
"""The groups and sections whose choices compete, by the name for it; "" stands for all."""
_STRATEGY = CHOSEN[0]
MAX_LAYOUTS = 48  # of a transformer, as many as the second rung of successive halving takes


class Candidates(NamedTuple):
    """Candidates of a search; shape (candidates,)."""

    grid: Grid
    point: Ints
    strategy: Texts
    extra_choices: Columns  # choices besides the strategy, if any point is a transformer: (candidates,) each
    group: Ints  # candidates of the same number compete
    templates: Floats  # shares of the configured chips, (candidates, shares)
    space: Space

    @property
    def labels(self) -> dict[str, NDArray[Any]]:
        """Columns that distinguish candidates: choices, swept keys, the strategy; (candidates,) each."""
        names = {*self.grid.labels, *self.grid.keys} - {_STRATEGY}
        ordered = [name for name in (*CHOICES, *self.grid.keys) if name in names]
        columns = {name: _column_of(self.grid, name)[self.point] for name in dict.fromkeys(ordered)}
        return columns | {"strategy": self.strategy}

    def inputs(self, rows: Ints, designs: Floats) -> Iterator[tuple[Ints, Columns]]:
        """Yield indices of rows that share a call of the model, and their inputs with the designs' shares.

        rows: which candidates, (designs,); designs: (designs, shares).
        """
        for index, share in self.grid.shares_of(self.point[rows]):
            candidate = rows[index]
            inputs = self.grid.inputs(share)
            inputs[_STRATEGY] = self.strategy[candidate]
            inputs.update(take(self.extra_choices, candidate))
            yield index, dict(with_designs(inputs, designs[index], self.space))


def _column_of(grid: Grid, name: str) -> NDArray[Any]:
    """Return a label or an input of every point of a grid; as texts unless all values are numbers."""
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


def candidates_of(grid: Grid, compare: str) -> Candidates:
    """Return the candidates of a grid: its points under their strategy, or under every one for `auto`.

    Of a transformer those are the `MAX_LAYOUTS` best layouts on the configured breakdown. compare: a key of
    COMPARE. Raises InputError where chips have different shares, or pin quantities that follow from shares.
    """
    points: list[int] = []
    chosen: list[tuple[Any, ...]] = []
    templates: list[Floats] = []
    spaces: set[tuple[str, ...]] = set()
    space = None
    for share in grid.shares(0, grid.points):
        inputs = grid.inputs(share)
        _refuse_pinned(inputs)
        if inputs["parallel.per_layer"].any():
            raise InputError("parallel.per_layer", "true", "false: a search tries strategies for all layers")
        space = space_of(inputs)
        spaces.add(space.keys)
        if not space.keys:
            allowed = "a chip whose budgets have shares, as pathfinding: a search finds them"
            raise InputError("chip", inputs.get("chip.name", ["nothing"])[0], allowed)
        templates_of_points = np.column_stack([inputs[key] for key in space.keys])
        for index, point in enumerate(share.points.tolist()):
            for choice in _strategy_choices(take(inputs, np.array([index]))):
                points.append(point)
                chosen.append(choice)
                templates.append(templates_of_points[index])
        for key in set(grid.keys) & set(space.keys):
            raise InputError(
                key, "several values", "one value; a search starts there and finds the best shares itself"
            )
    if len(spaces) != 1 or space is None:
        raise CompositionError("the chips have different on-chip levels; search them one by one")
    order = np.argsort(points, kind="stable")
    point = np.array(points, dtype=np.int64)[order]
    group = _competing_groups(grid, point, compare)
    templates_of_points = np.array(templates)[order]
    columns = {
        key: np.array(column)[order] for key, column in zip(CHOSEN, zip(*chosen, strict=True), strict=True)
    }
    strategy = columns.pop(_STRATEGY)
    extra_choices = columns if grid.has_layer_runs else {}
    return Candidates(
        grid, point, strategy, extra_choices, group=group, templates=templates_of_points, space=space
    )


def _strategy_choices(inputs: Columns) -> list[tuple[Any, ...]]:
    """Return the possible choices of a point, a value for each of CHOSEN; inputs: (1,)."""
    from fastflow.performance.auto.rank import strategy_spaces
    from fastflow.performance.auto.serving import best_servers
    from fastflow.performance.auto.transformer import best_layouts
    from fastflow.performance.serving.disaggregated.predict import PREFILL_STRATEGY, is_disaggregated
    from fastflow.physics.workload import has_layer_runs

    configured = tuple(inputs[key][0].item() for key in CHOSEN)
    if is_serving(inputs) and is_disaggregated(inputs)[0]:
        for key in (_STRATEGY, PREFILL_STRATEGY):
            if inputs[key][0] == AUTO:
                allowed = "a strategy where prefill has devices of its own: a search does not split devices"
                raise InputError(key, AUTO, allowed)
    if configured[0] != AUTO:
        return [configured]
    if is_serving(inputs):
        layouts = best_servers(inputs)[_STRATEGY][:MAX_LAYOUTS]
        return [(layout, *configured[1:]) for layout in layouts.tolist()]
    if not has_layer_runs(inputs):
        return [(str(strategy), *configured[1:]) for strategy in next(strategy_spaces(inputs))]
    choices = best_layouts(inputs).best
    return list(zip(*(choices[key][:MAX_LAYOUTS].tolist() for key in CHOSEN), strict=True))


def _refuse_pinned(inputs: Columns) -> None:
    """Refuse chips with pinned quantities, except for the bandwidth of networks; raises InputError."""
    for key in inputs:
        if key.startswith("chip.pinned.") and key.split(".")[2] not in ("intra_Bps", "inter_Bps"):
            allowed = (
                "a chip generated from its shares, such as pathfinding; calibration=none generates this one"
            )
            raise InputError("chip", inputs["chip.name"][0], f"{allowed} ({key} is set)")


def _competing_groups(grid: Grid, point: Ints, compare: str) -> Ints:
    """Number the groups of competing candidates: their keys that do not compete have equal values."""
    other_keys = [key for key in grid.keys if not {"", key.partition(".")[0]} & set(COMPARE[compare])]
    columns = [
        np.unique(_column_of(grid, key).astype(str), return_inverse=True)[1][point] for key in other_keys
    ]
    if not columns:
        return np.zeros(point.size, dtype=np.int64)
    unique, first, group = np.unique(np.column_stack(columns), axis=0, return_index=True, return_inverse=True)
    order = np.empty(len(unique), dtype=np.int64)
    order[np.argsort(first)] = np.arange(len(unique))  # in the order in which they come
    return order[group.ravel()]
