"""The best parallel strategy of a point: the whole strategy space, predicted and ranked (3.3).

Feasible strategies come first, then those that exceed a limit of power, then those that lack memory, each by
time; strategies without a time come last. Ties go to the first strategy of `every_strategy`: data parallelism
before kernel parallelism. Of a transformer layouts are ranked instead (`performance.auto.transformer`), and
where none fits, by memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from fastflow.core.reasons.codes import Reason
from fastflow.core.tables import Bools, Columns, Floats, Inputs, Ints, Texts, take
from fastflow.performance.auto.no_fit import LEAST, least_training_memory
from fastflow.performance.auto.transformer import Search, best_layouts, least_share
from fastflow.performance.auto.transformer import share_of_memory as share_of_layouts
from fastflow.performance.crossflow import predict
from fastflow.performance.partial_predictions import lower_bounds
from fastflow.performance.prediction import Prediction
from fastflow.performance.site_power import keeps_to_limits
from fastflow.physics.parallelism.candidates import CHOSEN
from fastflow.physics.parallelism.strategy import Strategy, every_strategy
from fastflow.physics.workload import count_layers, has_layer_runs

_KEY = "parallel.strategy"
AT_ONCE = 1024  # strategies predicted together, or all of a point


class Ranked(NamedTuple):
    """All strategies of some points, or the best layouts of a transformer, predicted together."""

    prediction: Prediction
    rows: list[Ints]  # of the prediction: a point's strategies, the best first
    search: Search | None = None  # through a transformer's layouts


def rank(inputs: Inputs) -> Iterator[Texts]:
    """Yield for every point all strategies for its devices, the best first; inputs: as `predict_all`."""
    for ranked in predict_all(inputs):
        yield from (ranked.prediction.inputs[_KEY][order] for order in ranked.rows)


def best_strategies(inputs: Inputs) -> Columns:
    """Return the best strategy of every point, of a transformer the best of all inputs in `CHOSEN`.

    And in `LEAST` why no strategy fits its devices, or None.
    """
    if not has_layer_runs(inputs):
        strategies, least = [], []
        for ranked in predict_all(inputs):
            strategies += [ranked.prediction.inputs[_KEY][order[0]] for order in ranked.rows]
            least += [least_needed(ranked.prediction, order) for order in ranked.rows]
        return {_KEY: np.array(strategies, dtype=np.str_), LEAST: np.array(least, dtype=object)}
    searches = [best_layouts(take(dict(inputs), np.array([point]))) for point in range(inputs[_KEY].size)]
    best = {key: np.array([search.best[key][0] for search in searches]) for key in CHOSEN}
    return best | {LEAST: np.array([search.least for search in searches], dtype=object)}


def least_needed(prediction: Prediction, rows: Ints) -> Reason | None:
    """Return which strategy of some rows needs least memory, where none fits; or None."""
    timed, timed_rows = np.intersect1d(prediction.timed, rows, return_indices=True)[:2]
    _, fits = scores(prediction)
    if not timed.size or fits[rows].any():
        return None
    least = int(timed_rows[np.argmin(prediction.footprint.total[timed_rows])])
    row = prediction.timed[least]
    capacity, strategy = float(prediction.offered[row]), str(prediction.parallelism.printed[row])
    return least_training_memory(strategy, prediction.footprint, least, capacity)


def fits(inputs: Inputs) -> bool:
    """Say whether a point has a strategy with a time that fits its memory; inputs: of one point, (1,)."""
    return share_of_memory(inputs) <= 1.0


def share_of_memory(inputs: Inputs) -> float:
    """Return the least memory that any strategy of a point needs, over what a device is offered.

    inputs: of one point, (1,). Infinite where no strategy has a time. A transformer may have a lower one,
    where one is at most 1.
    """
    if has_layer_runs(inputs):
        return share_of_layouts(inputs)
    (space,) = strategy_spaces(inputs)
    candidates = take(dict(inputs), np.zeros(len(space), dtype=np.int64))
    bounds = lower_bounds(candidates | {_KEY: np.array([str(strategy) for strategy in space])})
    return least_share(bounds)


def predict_all(inputs: Inputs) -> Iterator[Ranked]:
    """Predict all strategies of points, in order, for some points at a time.

    inputs: columns of shape (points,), as `crossflow.predict` takes them; `parallel.strategy` and
    `parallel.per_layer` are not read.
    """
    if has_layer_runs(inputs):
        for point in range(inputs[_KEY].size):
            point_inputs = take(dict(inputs), np.array([point]))
            search = best_layouts(point_inputs)
            rows = np.arange(search.best[_KEY].size)
            prediction = predict(take(point_inputs, np.zeros_like(rows)) | search.best)
            order = rows if search.least else _ranked_rows(prediction, np.zeros_like(rows))
            yield Ranked(prediction, [order], search)
        return
    spaces = [np.array([str(strategy) for strategy in space]) for space in strategy_spaces(inputs)]
    points = np.arange(len(spaces))
    sizes = np.array([space.size for space in spaces], dtype=np.int64)
    batch = (np.cumsum(sizes) - sizes) // AT_ONCE
    for number in np.unique(batch):
        selected = points[batch == number]
        point_of_row = np.repeat(selected, sizes[selected])
        strategies = np.concatenate([spaces[point] for point in selected])
        settings = {_KEY: strategies, "parallel.per_layer": np.zeros(point_of_row.size, dtype=np.bool_)}
        prediction = predict(take(dict(inputs), point_of_row) | settings)
        ends = np.cumsum(sizes[selected])[:-1]
        yield Ranked(prediction, np.split(_ranked_rows(prediction, point_of_row), ends))


def strategy_spaces(inputs: Inputs) -> Iterator[list[Strategy]]:
    """Yield the strategy space of every point."""
    for devices, deepest in zip(inputs["system.devices"], count_layers(inputs), strict=True):
        yield every_strategy(int(devices), int(deepest))


def _ranked_rows(prediction: Prediction, point: Ints) -> Ints:
    """Return the rows in the order of their points, and of each point the best first."""
    time, fits = scores(prediction)
    return np.lexsort((time, ~keeps_to_limits(prediction), ~fits, point))


def scores(prediction: Prediction) -> tuple[Floats, Bools]:
    """Return the time of every point, infinite without a time [s], and whether it fits its memory."""
    points = prediction.reason.size
    time = np.full(points, np.inf)
    time[prediction.timed] = prediction.timeline.total
    fits = np.zeros(points, dtype=np.bool_)
    fits[prediction.timed] = ~prediction.lacks_memory
    return time, fits
