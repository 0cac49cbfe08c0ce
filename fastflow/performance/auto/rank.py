"""The best parallel strategy of a point: the whole strategy space predicted, and ranked (3.3).

Feasible strategies come first, then those that lack memory, each by time; strategies without a time
come last. Ties go to the first one of `every_strategy`: data parallelism before kernel cuts. Of a transformer
layouts are ranked instead (`performance.auto.transformer`), and where none fits, by memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from fastflow.core.tables import Bools, Columns, Floats, Inputs, Ints, Texts, take
from fastflow.performance.auto.no_fit import LEAST, least_of
from fastflow.performance.auto.transformer import Search, best_layouts
from fastflow.performance.auto.transformer import fits as layouts_fit
from fastflow.performance.crossflow import predict
from fastflow.performance.partial_predictions import lower_bounds
from fastflow.performance.prediction import Prediction
from fastflow.physics.parallelism.candidates import CHOSEN
from fastflow.physics.parallelism.strategy import Strategy, every_strategy
from fastflow.physics.workload import count_layers, has_layer_runs

_KEY = "parallel.strategy"
AT_ONCE = 1024  # strategies predicted together, at least those of one point


class Ranked(NamedTuple):
    """All strategies of some points, or the best layouts of a transformer, predicted together."""

    prediction: Prediction
    rows: list[Ints]  # of the prediction: a point's strategies, the best first
    search: Search | None = None  # of a transformer's layouts


def rank(inputs: Inputs) -> Iterator[Texts]:
    """Yield for every point all strategies for its devices, the best one first; inputs: as `predict_all`."""
    for ranked in predict_all(inputs):
        yield from (ranked.prediction.inputs[_KEY][own] for own in ranked.rows)


def best_of(inputs: Inputs) -> Columns:
    """Return what is best for every point: its strategy, of a transformer all that is chosen with it.

    And in `LEAST` why none fits its devices, or "".
    """
    if not has_layer_runs(inputs):
        strategies, least = [], []
        for ranked in predict_all(inputs):
            strategies += [ranked.prediction.inputs[_KEY][own[0]] for own in ranked.rows]
            least += [least_needed(ranked.prediction, own) for own in ranked.rows]
        return {_KEY: np.array(strategies, dtype=np.str_), LEAST: np.array(least, dtype=np.str_)}
    found = [best_layouts(take(dict(inputs), np.array([point]))) for point in range(inputs[_KEY].size)]
    best = {key: np.array([one.best[key][0] for one in found]) for key in CHOSEN}
    return best | {LEAST: np.array([one.least for one in found])}


def least_needed(prediction: Prediction, rows: Ints) -> str:
    """Say which strategy of some rows needs least memory, and how much, where none fits; or ""."""
    own, place = np.intersect1d(prediction.timed, rows, return_indices=True)[:2]
    if not own.size or scores(prediction)[1][rows].any():
        return ""
    least = place[np.argmin(prediction.footprint.total[place])]
    row = prediction.timed[least]
    there = float(prediction.chip.dram.capacity[row])
    return least_of(str(prediction.parallelism.printed[row]), prediction.footprint, int(least), there)


def fits(inputs: Inputs) -> bool:
    """Say whether a point has a strategy that has a time, and enough memory; inputs: of one point, (1,)."""
    if has_layer_runs(inputs):
        return layouts_fit(inputs)
    (space,) = spaces_of(inputs)
    many = take(dict(inputs), np.zeros(len(space), dtype=np.int64))
    found = lower_bounds(many | {_KEY: np.array([str(one) for one in space])})
    return bool(((found.reason == "") & (found.memory <= found.capacity)).any())


def predict_all(inputs: Inputs) -> Iterator[Ranked]:
    """Predict all strategies of points, those of some points at a time, in order.

    inputs: columns of shape (points,), as `crossflow.predict` takes them; `parallel.strategy` and
    `parallel.per_layer` are not read.
    """
    if has_layer_runs(inputs):
        for point in range(inputs[_KEY].size):
            one = take(dict(inputs), np.array([point]))
            found = best_layouts(one)
            rows = np.arange(found.best[_KEY].size)
            prediction = predict(take(one, np.zeros_like(rows)) | found.best)
            order = rows if found.least else _order(prediction, np.zeros_like(rows))
            yield Ranked(prediction, [order], found)
        return
    spaces = [np.array([str(strategy) for strategy in space]) for space in spaces_of(inputs)]
    points = np.arange(len(spaces))
    sizes = np.array([space.size for space in spaces], dtype=np.int64)
    batch = (np.cumsum(sizes) - sizes) // AT_ONCE
    for number in np.unique(batch):
        some = points[batch == number]
        of = np.repeat(some, sizes[some])
        strategies = np.concatenate([spaces[point] for point in some])
        alike = {_KEY: strategies, "parallel.per_layer": np.zeros(of.size, dtype=np.bool_)}
        prediction = predict(take(dict(inputs), of) | alike)
        yield Ranked(prediction, np.split(_order(prediction, of), np.cumsum(sizes[some])[:-1]))


def spaces_of(inputs: Inputs) -> Iterator[list[Strategy]]:
    """Yield the strategy space of every point."""
    for devices, deepest in zip(inputs["system.devices"], count_layers(inputs), strict=True):
        yield every_strategy(int(devices), int(deepest))


def _order(prediction: Prediction, point: Ints) -> Ints:
    """Return the rows in the order of their points, and of each point the best first."""
    time, fits = scores(prediction)
    return np.lexsort((time, ~fits, point))


def scores(prediction: Prediction) -> tuple[Floats, Bools]:
    """Return the time of every point, infinite where it has none [s], and whether it fits its memory."""
    points = prediction.reason.size
    time = np.full(points, np.inf)
    time[prediction.timed] = prediction.timeline.total
    fits = np.zeros(points, dtype=np.bool_)
    fits[prediction.timed] = prediction.footprint.total <= prediction.chip.dram.capacity[prediction.timed]
    return time, fits
