"""Simulated configurations of a search: batches of points on threads, and which points remain to be tried."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from fastflow.analysis.search.fleets.constraints import Constraint, missed, stop_at
from fastflow.analysis.search.fleets.measures import MAXIMISED, Measure
from fastflow.core.pareto import nondominated
from fastflow.core.reasons.codes import Code
from fastflow.core.tables import Bools, Columns, Floats, Ints, Texts
from fastflow.engine.dataset.schema import ResultTable
from fastflow.engine.grid.grid import Grid
from fastflow.engine.run.chunks import rows_of
from fastflow.engine.run.workers import CancellationToken, ThreadPool
from fastflow.performance.serving.bounds import fleet_bounds

BATCH, LEAST_BATCH = 16, 4
"""Points that are simulated before others are excluded: at most, and where their bounds differ. A constant:
what is simulated does not depend on the machine."""


class Problem(NamedTuple):
    """What a search looks for."""

    grid: Grid
    measures: tuple[Measure, ...]
    """The objective, and with a front the second one."""
    constraints: tuple[Constraint, ...]


class Workers(NamedTuple):
    """Threads of a search."""

    pool: ThreadPool
    token: CancellationToken


class Simulated:
    """Configurations of a problem under one trace, each of them simulated or not.

    - `bounds`: Floats, the least possible value of each measure, -inf where none is known, (measures, points)
    - `values`: Floats, of simulated points, NaN of others, (measures, points)
    - `is_known`: Bools, whether a point is simulated, (points,)
    - `is_stopped`: Bools, whether its simulation was stopped early, (points,)
    - `missed`: Texts, which constraint a simulated point misses, "" for none, (points,)
    - `excluded`: Bools, whether a bound shows that a point misses a constraint, (points,)
    """

    def __init__(self, problem: Problem, workers: Workers, changed: Mapping[str, str | int]) -> None:
        """Compute the bounds; changed: values in place of inputs, by key. Raises InputError."""
        self.problem, self.workers, self.changed = problem, workers, changed
        points = problem.grid.points
        known = _bounds(problem.grid, changed)
        self.bounds: Floats = np.array([_least(measure, known, points) for measure in problem.measures])
        self.excluded: Bools = np.zeros(points, dtype=np.bool_)
        for constraint in problem.constraints:
            bound = known.get(constraint.name)
            if bound is not None and constraint.is_upper != (constraint.name in MAXIMISED):
                self.excluded |= constraint.excludes(bound)
        self.values: Floats = np.full(self.bounds.shape, np.nan)
        self.is_known: Bools = np.zeros(points, dtype=np.bool_)
        self.is_stopped: Bools = np.zeros(points, dtype=np.bool_)
        self.missed: Texts = np.full(points, "", dtype=object)
        self._tables: list[ResultTable] = []
        self._row: dict[int, tuple[int, int]] = {}

    @property
    def meets(self) -> Bools:
        """Say which points are simulated and meet all constraints, (points,)."""
        met: Bools = self.is_known & (self.missed == "")
        return met & ~np.isnan(self.values).any(axis=0)

    @property
    def front(self) -> Ints:
        """The points that no other beats in all measures, by the first; of equal ones the first."""
        points = np.flatnonzero(self.meets)
        front: Ints = points[nondominated(self.values[0, points], self.values[-1, points])]
        return front

    @property
    def remaining(self) -> Ints:
        """The points that may still matter, in the order of their bounds."""
        points = np.flatnonzero(~self.is_known & ~self.excluded)
        bounds, best = self.bounds[:, points], self.values[:, self.front]
        no_worse = (best[:, :, None] <= bounds[:, None, :]).all(axis=0)
        better = (best[:, :, None] < bounds[:, None, :]).any(axis=0)
        points = points[~(no_worse & better).any(axis=0)]
        ordered: Ints = points[np.lexsort((points, *self.bounds[::-1, points]))]
        return ordered

    def search(self, advance: Callable[[int], None]) -> None:
        """Simulate points until no other can be better; advance: called with numbers of finished points."""
        finished = int(self.is_known.sum())
        while (remaining := self.remaining).size:
            self.simulate(remaining[: batch_size(self.bounds[:, remaining])])
            now = self.is_known.size - self.remaining.size
            advance(now - finished)
            finished = now
        advance(self.is_known.size - finished)

    def simulate(self, points: Ints) -> None:
        """Simulate points that are not known yet; raises InputError, and Stopped after an interrupt."""
        points = points[~self.is_known[points]]
        if not points.size:
            return
        pieces = np.array_split(points, min(points.size, self.workers.pool.size))
        work = partial(_simulate, self.problem, self.changed, self.workers.token)
        for piece, table in zip(pieces, self.workers.pool.map(work, pieces), strict=True):
            self._add(piece, table)

    def _add(self, points: Ints, table: ResultTable) -> None:
        """Keep the results of points."""
        for row, point in enumerate(points.tolist()):
            self._row[point] = len(self._tables), row
        self._tables.append(table)
        self.is_known[points] = True
        self.values[:, points] = [measure.of(table, points.size) for measure in self.problem.measures]
        feasible = np.ma.filled(table["feasible"], False).astype(np.bool_)
        reason = np.where(feasible, "", np.ma.filled(table["reason"], "").astype(object))
        reason[~feasible & (reason == "")] = "not feasible"
        self.missed[points] = missed(self.problem.constraints, table, reason)
        self.is_stopped[points] = np.ma.filled(table["reason_code"], "") == Code.STOPPED.label

    def best(self) -> int:
        """Return the best point by the first measure of those that meet all constraints; -1 for none."""
        front = self.front
        return int(front[0]) if front.size else -1

    def value(self, point: int, name: str) -> Any:
        """Return the value of a result column of a simulated point; None where it is missing."""
        table, row = self._row[point]
        value = self._tables[table][name][row]
        return None if value is np.ma.masked else value.item() if isinstance(value, np.generic) else value

    def rows(self, points: Sequence[int]) -> list[dict[str, Any]]:
        """Return all columns of simulated points, a row each; None where a value is missing."""
        return [{name: self.value(point, name) for name in self._tables[0]} for point in points]


def batch_size(bounds: Floats) -> int:
    """Return how many points to simulate at a time.

    bounds: of the remaining points in order, (measures, points).
    """
    equal = int((bounds == bounds[:, :1]).all(axis=0).sum())
    return min(int(bounds.shape[1]), max(min(equal, BATCH), LEAST_BATCH))


def _simulate(
    problem: Problem, changed: Mapping[str, str | int], token: CancellationToken, points: Ints
) -> ResultTable:
    """Simulate some points in this thread; those that cannot meet the constraints any more are stopped.

    Bands of uncertainty need whole runs.
    """
    grid = problem.grid
    limits = None if grid.uncertainty is not None else stop_at(problem.constraints)
    with token:
        return rows_of(grid, points, changed, limits)


def _bounds(grid: Grid, changed: Mapping[str, str | int]) -> Columns:
    """Return the bounds of result columns, (points,) each; raises InputError."""
    bounds: Columns = {}
    for share in grid.shares(0, grid.points):
        inputs = grid.inputs(share)
        inputs |= {key: np.full(share.points.size, value) for key, value in changed.items()}
        for name, column in fleet_bounds(inputs).items():
            bounds.setdefault(name, np.full(grid.points, np.nan))[share.points] = column
    return bounds


def _least(measure: Measure, bounds: Columns, points: int) -> Floats:
    """Return the least possible values of a measure, -inf where no bound is known."""
    values = measure.of(bounds, points)
    return np.where(np.isnan(values), -np.inf, values)
