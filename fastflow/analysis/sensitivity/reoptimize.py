"""The best strategy of every change of a point, among those that are best for the point itself."""

from __future__ import annotations

import numpy as np

from fastflow.analysis.sensitivity.elasticity import Evaluate
from fastflow.core.tables import Columns, Inputs, take
from fastflow.performance.auto.per_layer import PER_LAYER, STRATEGY
from fastflow.performance.auto.rank import rank
from fastflow.physics.parallelism.strategy import AUTO
from fastflow.physics.workload import has_layer_runs

CANDIDATES = 8
"""Strategies that compete: a change of some percent makes no other one the best (tests)."""


def has_candidates(inputs: Inputs) -> bool:
    """Say whether the strategies of a point are a list, and one is to be chosen: not so of a transformer."""
    return bool(inputs[STRATEGY][0] == AUTO and not inputs[PER_LAYER][0] and not has_layer_runs(inputs))


def among_the_best(inputs: Inputs, evaluate: Evaluate) -> Evaluate:
    """Return what evaluates points under the best of CANDIDATES; inputs: of the one point that they change.

    The best one fits the memory if any does, and is the fastest of those, as with `parallel.strategy=auto`.
    """
    strategies = next(rank(inputs))[:CANDIDATES]
    count = strategies.size

    def chosen(columns: Columns) -> Columns:
        points = next(iter(columns.values())).size
        row = np.repeat(np.arange(points), count)
        results = evaluate(take(columns, row) | {STRATEGY: np.tile(strategies, points)})
        time = np.ma.filled(np.ma.asarray(results["time_s"], dtype=np.float64), np.nan)
        order = np.lexsort(
            (np.where(np.isnan(time), np.inf, time), ~results["feasible"].astype(np.bool_), row)
        )
        return {name: column[order[::count]] for name, column in results.items()}

    return chosen
