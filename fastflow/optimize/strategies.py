"""The best parallel strategy of a point: the whole strategy space predicted, and ranked (3.3).

Feasible strategies come first, then those that lack memory, each by time; strategies without a time
come last. Ties go to the first one of `every_strategy`: data parallelism before kernel cuts.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from fastflow.crossflow import Prediction, predict
from fastflow.distinct import kinds
from fastflow.parallelism.strategy import AUTO, Strategy, every_strategy
from fastflow.tables import Bools, Inputs, Ints, Texts, take
from fastflow.workload import count_layers

_KEY = "parallel.strategy"
AT_ONCE = 1024  # strategies predicted together, at least those of one point


def settle(inputs: Inputs) -> Inputs:
    """Return the inputs with the best strategy wherever `parallel.strategy` is `auto`; shape (points,).

    Raises InputError as the model does.
    """
    asked = inputs[_KEY] == AUTO
    if not asked.any():
        return inputs
    auto = take(dict(inputs), np.flatnonzero(asked))
    first, place = kinds(auto.values(), int(asked.sum()))  # points that agree in everything rank alike
    best = np.array([ranked[0] for ranked in rank(take(auto, first))], dtype=np.str_)[place]
    return _with_strategies(inputs, asked, best)


def settle_on_any(inputs: Inputs) -> Inputs:
    """Return the inputs with some strategy wherever `parallel.strategy` is `auto`; shape (points,).

    It is one that cuts in as many ways as there are, so that it needs what the others do.
    """
    asked = inputs[_KEY] == AUTO
    if not asked.any():
        return inputs
    spaces = _spaces(take(dict(inputs), np.flatnonzero(asked)))
    cut = [str(max(space, key=lambda one: sum(degree > 1 for degree in one[1:]))) for space in spaces]
    return _with_strategies(inputs, asked, np.array(cut, dtype=np.str_))


def _with_strategies(inputs: Inputs, rows: Bools, strategies: Texts) -> Inputs:
    """Return the inputs with other strategies in some rows."""
    strategy = inputs[_KEY].astype(np.result_type(inputs[_KEY], strategies))
    strategy[rows] = strategies
    return dict(inputs) | {_KEY: strategy}


class Ranked(NamedTuple):
    """All strategies of some points, predicted together."""

    prediction: Prediction
    rows: list[Ints]  # of the prediction: a point's strategies, the best first


def rank(inputs: Inputs) -> Iterator[Texts]:
    """Yield for every point all strategies for its devices, the best one first; inputs: as `predict_all`."""
    for prediction, rows in predict_all(inputs):
        yield from (prediction.inputs[_KEY][own] for own in rows)


def predict_all(inputs: Inputs) -> Iterator[Ranked]:
    """Predict all strategies of points, those of some points at a time, in order.

    inputs: columns of shape (points,), as `crossflow.predict` takes them; `parallel.strategy` is not read.
    """
    spaces = [np.array([str(strategy) for strategy in space]) for space in _spaces(inputs)]
    points = np.arange(len(spaces))
    sizes = np.array([space.size for space in spaces], dtype=np.int64)
    batch = (np.cumsum(sizes) - sizes) // AT_ONCE
    for number in np.unique(batch):
        some = points[batch == number]
        of = np.repeat(some, sizes[some])
        strategies = np.concatenate([spaces[point] for point in some])
        prediction = predict(take(dict(inputs), of) | {_KEY: strategies})
        yield Ranked(prediction, np.split(_order(prediction, of), np.cumsum(sizes[some])[:-1]))


def _spaces(inputs: Inputs) -> Iterator[list[Strategy]]:
    """Yield the strategy space of every point."""
    for devices, deepest in zip(inputs["system.devices"], count_layers(inputs), strict=True):
        yield every_strategy(int(devices), int(deepest))


def _order(prediction: Prediction, point: Ints) -> Ints:
    """Return the rows in the order of their points, and of each point the best first."""
    time = np.full(point.size, np.inf)
    time[prediction.timed] = prediction.timeline.total
    fits = np.zeros(point.size, dtype=np.bool_)
    fits[prediction.timed] = prediction.footprint.total <= prediction.chip.dram.capacity[prediction.timed]
    return np.lexsort((time, ~fits, point))
