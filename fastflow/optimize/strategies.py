"""The best parallel strategy of a point: the whole strategy space predicted, and ranked (3.3).

Feasible strategies come first, then those that lack memory, each by time; strategies without a time
come last. Ties go to the first one of `every_strategy`: data parallelism before kernel cuts.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastflow.crossflow import predict
from fastflow.distinct import kinds
from fastflow.parallelism.strategy import AUTO, every_strategy
from fastflow.tables import Inputs, Texts, take
from fastflow.workload import count_layers

AT_ONCE = 1024  # strategies predicted together, at least those of one point


def settle(inputs: Inputs) -> Inputs:
    """Return the inputs with the best strategy wherever `parallel.strategy` is `auto`; shape (points,).

    Raises InputError as the model does.
    """
    asked = inputs["parallel.strategy"] == AUTO
    if not asked.any():
        return inputs
    auto = take(dict(inputs), np.flatnonzero(asked))
    first, place = kinds(auto.values(), int(asked.sum()))  # points that agree in everything rank alike
    best = np.array([ranked[0] for ranked in rank(take(auto, first))], dtype=np.str_)[place]
    strategy = inputs["parallel.strategy"].astype(np.result_type(inputs["parallel.strategy"], best))
    strategy[asked] = best
    return dict(inputs) | {"parallel.strategy": strategy}


def rank(inputs: Inputs) -> Iterator[Texts]:
    """Yield for every point all strategies for its devices, the best one first.

    inputs: columns of shape (points,), as `crossflow.predict` takes them; `parallel.strategy` is not read.
    """
    layers = count_layers(inputs)
    spaces = [
        np.array([str(strategy) for strategy in every_strategy(int(devices), int(deepest))])
        for devices, deepest in zip(inputs["system.devices"], layers, strict=True)
    ]
    points = np.arange(layers.size)
    sizes = np.array([space.size for space in spaces], dtype=np.int64)
    batch = (np.cumsum(sizes) - sizes) // AT_ONCE
    for number in np.unique(batch):
        some = points[batch == number]
        of = np.repeat(some, sizes[some])
        strategies = np.concatenate([spaces[point] for point in some])
        order = _order(take(dict(inputs), of) | {"parallel.strategy": strategies}, of)
        yield from np.split(strategies[order], np.cumsum(sizes[some])[:-1])


def _order(inputs: dict[str, NDArray[Any]], point: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the rows in the order of their points, and of each point the best first."""
    prediction = predict(inputs)
    time = np.full(point.size, np.inf)
    time[prediction.timed] = prediction.timeline.total
    fits = np.zeros(point.size, dtype=np.bool_)
    fits[prediction.timed] = prediction.footprint.total <= prediction.chip.dram.capacity[prediction.timed]
    return np.lexsort((time, ~fits, point))
