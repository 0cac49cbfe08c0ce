"""The best strategy of every change of a point, among the best strategies of the point."""

from __future__ import annotations

import numpy as np

from fastflow.analysis.sensitivity.elasticity import Evaluate
from fastflow.core.tables import Columns, Inputs, take
from fastflow.performance.auto.per_layer import PER_LAYER, STRATEGY
from fastflow.performance.auto.rank import rank
from fastflow.physics.parallelism.strategy import AUTO
from fastflow.physics.workload import has_layer_runs

CANDIDATES = 8
"""Strategies that compete: after a change of some percent the best is among them (tests)."""


def has_candidates(inputs: Inputs) -> bool:
    """Say whether a point has a list of strategies to choose from; a transformer has none."""
    return bool(inputs[STRATEGY][0] == AUTO and not inputs[PER_LAYER][0] and not has_layer_runs(inputs))


def with_best_strategy(inputs: Inputs, evaluate: Evaluate) -> Evaluate:
    """Return a function that evaluates points under their best strategy of CANDIDATES; inputs: base point.

    The best strategy fits the memory if any does, and is the fastest of those, as with
    `parallel.strategy=auto`.
    """
    strategies = next(rank(inputs))[:CANDIDATES]
    count = strategies.size

    def evaluate_best(columns: Columns) -> Columns:
        points = next(iter(columns.values())).size
        row = np.repeat(np.arange(points), count)
        results = evaluate(take(columns, row) | {STRATEGY: np.tile(strategies, points)})
        time = np.ma.filled(np.ma.asarray(results["time_s"], dtype=np.float64), np.nan)
        order = np.lexsort(
            (np.where(np.isnan(time), np.inf, time), ~results["feasible"].astype(np.bool_), row)
        )
        return {name: column[order[::count]] for name, column in results.items()}

    return evaluate_best
