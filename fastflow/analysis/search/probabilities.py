"""Probabilities of the ranks of designs, and of their place on a front: `uncertainty=on`."""

from __future__ import annotations

from functools import partial
from typing import cast

import numpy as np
import pyarrow as pa

from fastflow.analysis.search.optimizers.objective import TIMES, measure
from fastflow.analysis.search.optimizers.serving_objective import measure_served
from fastflow.analysis.search.run import SearchResult
from fastflow.core.pareto import nondominated
from fastflow.core.tables import Columns, Floats, Ints
from fastflow.core.uncertainty.percentiles import chance
from fastflow.engine.dataset.schema import result_field
from fastflow.engine.grid.grid import Share
from fastflow.engine.run.monte_carlo import samples_by
from fastflow.engine.run.predict import predict_points
from fastflow.performance.prediction import Prediction
from fastflow.performance.serving import is_serving
from fastflow.performance.serving.predict import ServingResult
from fastflow.schema.uncertainty import CHANCE, ON_FRONT

MAX_SAMPLED_ROWS = 64
"""Sampled rows of a ranking or a front, at most; the chance of the others is null."""


def with_chance_of_first(result: SearchResult, ranking: pa.Table, rows: Ints) -> pa.Table:
    """Return a ranking with the probability that the first of competing designs is better than each other.

    rows: of the history, (rows of the ranking,). The ranking is unchanged without uncertainty.
    """
    if result.candidates.grid.uncertainty is None:
        return ranking
    rank = ranking["rank"].to_numpy()
    reason = np.array(ranking["reason"].to_pylist(), dtype=object)
    sampled = np.flatnonzero((rank <= MAX_SAMPLED_ROWS) & (reason == ""))
    chances = np.full(rank.size, np.nan)
    samples = _sample_designs(result, rows[sampled], result.options.objective)
    values = dict(zip(sampled.tolist(), samples, strict=True))
    first = 0
    for row in sampled.tolist():
        first = row if rank[row] == 1 else first
        if first in values and row != first:
            chances[row] = chance(values[first], values[row])
    return _with_column(ranking, CHANCE.name, chances)


def with_chance_on_front(result: SearchResult, front: pa.Table) -> pa.Table:
    """Return a front with the probability that a design is dominated by no other, if there is uncertainty."""
    second = result.options.pareto
    if result.candidates.grid.uncertainty is None or second is None:
        return front
    design = front["design"].to_numpy()
    groups = result.candidates.group[front["candidate"].to_numpy()]
    chances = np.full(design.size, np.nan)
    for group in np.unique(groups):
        rows = np.flatnonzero(groups == group)[:MAX_SAMPLED_ROWS]
        samples = [
            _sample_designs(result, design[rows], objective)
            for objective in (result.options.objective, second)
        ]
        num_nondominated = np.zeros(rows.size)
        for first, other in zip(samples[0].T, samples[1].T, strict=True):
            known = np.flatnonzero(np.isfinite(first) & np.isfinite(other))
            num_nondominated[known[nondominated(first[known], other[known])]] += 1.0
        chances[rows] = num_nondominated / samples[0].shape[1]
    return _with_column(front, ON_FRONT.name, chances)


def _with_column(table: pa.Table, name: str, column: Floats) -> pa.Table:
    return table.append_column(result_field(name), pa.array(column, from_pandas=True))


def _sample_designs(result: SearchResult, rows: Ints, objective: str) -> Floats:
    """Return samples of an objective of designs, (rows, samples); rows: of the history."""
    candidates, history = result.candidates, result.history.table().take(rows)
    grid, candidate = candidates.grid, history["candidate"].to_numpy()
    assert grid.uncertainty is not None
    designs = np.column_stack([history[key].to_numpy() for key in candidates.space.keys])
    samples = np.full((rows.size, grid.uncertainty.samples), np.nan)
    for row in range(rows.size):
        point = int(candidates.point[candidate[row]])
        (share,) = grid.shares(point, point + 1)
        for _, inputs in candidates.inputs(candidate[row : row + 1], designs[row : row + 1]):
            samples[row] = _sample_design(result, share, inputs, objective)
    return samples


def _sample_design(result: SearchResult, share: Share, inputs: Columns, objective: str) -> Floats:
    objective_of = partial(_objective_of, objective=objective)
    samples: Floats = samples_by(result.candidates.grid, inputs, share, objective_of, TIMES[objective])[0]
    return samples


def _objective_of(inputs: Columns, objective: str) -> Floats:
    """Return an objective of the points of some input columns."""
    points = predict_points(inputs)
    if is_serving(inputs):
        return measure_served(points.resolved, cast("ServingResult", points.prediction), objective)
    return measure(cast("Prediction", points.prediction), objective)
