"""How likely the designs that a search has found are what their figures say: `uncertainty=on`."""

from __future__ import annotations

from functools import partial
from typing import cast

import numpy as np
import pyarrow as pa

from fastflow.analysis.search.optimizers.objective import TIMES, measure
from fastflow.analysis.search.optimizers.serving_objective import measure_served
from fastflow.analysis.search.run import Answer
from fastflow.core.pareto import nondominated
from fastflow.core.tables import Columns, Floats, Ints
from fastflow.core.uncertainty.percentiles import chance
from fastflow.engine.dataset.schema import field_of
from fastflow.engine.grid.grid import Share
from fastflow.engine.run.monte_carlo import samples_by
from fastflow.engine.run.predict import predict_points
from fastflow.performance.prediction import Prediction
from fastflow.performance.serving import serves
from fastflow.performance.serving.predict import Served
from fastflow.schema.uncertainty import CHANCE, ON_FRONT

MOST = 64
"""Rows of a ranking or a front that are sampled; the others have no chance."""


def with_chance_of_first(answer: Answer, ranking: pa.Table, rows: Ints) -> pa.Table:
    """Return a ranking with how likely the first design of those that compete is better than each one.

    rows: of the history, (rows of the ranking,). The ranking as it is where nothing is uncertain.
    """
    if answer.candidates.grid.uncertainty is None:
        return ranking
    rank = ranking["rank"].to_numpy()
    reason = np.array(ranking["reason"].to_pylist(), dtype=object)
    sampled = np.flatnonzero((rank <= MOST) & (reason == ""))
    found = np.full(rank.size, np.nan)
    samples = _samples(answer, rows[sampled], answer.options.objective)
    values = dict(zip(sampled.tolist(), samples, strict=True))
    head = 0
    for row in sampled.tolist():
        head = row if rank[row] == 1 else head
        if head in values and row != head:
            found[row] = chance(values[head], values[row])
    return _with(ranking, CHANCE.name, found)


def with_chance_on_front(answer: Answer, front: pa.Table) -> pa.Table:
    """Return a front with how likely each design is beaten by no other of it, where that is uncertain."""
    second = answer.options.pareto
    if answer.candidates.grid.uncertainty is None or second is None:
        return front
    design = front["design"].to_numpy()
    groups = answer.candidates.group[front["candidate"].to_numpy()]
    found = np.full(design.size, np.nan)
    for group in np.unique(groups):
        rows = np.flatnonzero(groups == group)[:MOST]
        both = [_samples(answer, design[rows], one) for one in (answer.options.objective, second)]
        stays = np.zeros(rows.size)
        for one, other in zip(both[0].T, both[1].T, strict=True):
            known = np.flatnonzero(np.isfinite(one) & np.isfinite(other))
            stays[known[nondominated(one[known], other[known])]] += 1.0
        found[rows] = stays / both[0].shape[1]
    return _with(front, ON_FRONT.name, found)


def _with(table: pa.Table, name: str, column: Floats) -> pa.Table:
    return table.append_column(field_of(name, "float"), pa.array(column, from_pandas=True))


def _samples(answer: Answer, rows: Ints, objective: str) -> Floats:
    """Return samples of an objective of designs, (rows, samples); rows: of the history."""
    candidates, history = answer.candidates, answer.history.table().take(rows)
    grid, whose = candidates.grid, history["candidate"].to_numpy()
    assert grid.uncertainty is not None
    designs = np.column_stack([history[key].to_numpy() for key in candidates.space.keys])
    found = np.full((rows.size, grid.uncertainty.samples), np.nan)
    for row in range(rows.size):
        point = int(candidates.point[whose[row]])
        (share,) = grid.shares(point, point + 1)
        for _, inputs in candidates.inputs(whose[row : row + 1], designs[row : row + 1]):
            found[row] = _sampled(answer, share, inputs, objective)
    return found


def _sampled(answer: Answer, share: Share, inputs: Columns, objective: str) -> Floats:
    measured = partial(_measured, objective=objective)
    found: Floats = samples_by(answer.candidates.grid, inputs, share, measured, TIMES[objective])[0]
    return found


def _measured(inputs: Columns, objective: str) -> Floats:
    """Return an objective of points that are given as input columns."""
    points = predict_points(inputs)
    if serves(inputs):
        return measure_served(points.resolved, cast("Served", points.prediction), objective)
    return measure(cast("Prediction", points.prediction), objective)
