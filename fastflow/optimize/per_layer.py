"""The best cut of every kind of layer: `parallel.strategy=auto` with `parallel.per_layer=true`.

As Galvatron (Miao et al., arXiv:2211.13878) and Alpa (Zheng et al., arXiv:2201.12023) choose a split layer by
layer, by dynamic programming over the layers in their order: what a layer costs depends on its own cut, and
on its neighbours' by what is laid out anew between them. Here a kind of layer has a cut. Embedding and
softmax meet the hidden layers only: under a given cut of those, each changes time and memory by itself. Both
changes are predicted for every pair of cuts, and add up. With a single stage whose exchanges are waited for,
that sum is the time. Where gradients overlap, a pipeline waits for its slowest stage, or kinds share links,
it is an estimate. So combinations are predicted as they are, those with the least sum first.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import reduce
from typing import NamedTuple

import numpy as np

from fastflow.crossflow import predict
from fastflow.distinct import kinds
from fastflow.optimize.strategies import AT_ONCE, predict_all, scores
from fastflow.parallelism.layout import SAME
from fastflow.parallelism.strategy import COLUMN_ROW, parse
from fastflow.prediction import Prediction
from fastflow.tables import Bools, Columns, Floats, Inputs, Ints, take
from fastflow.workload.graph import HIDDEN, LAYER_KINDS

STRATEGY, ASKED = "parallel.strategy", "parallel.per_layer"
KEYS = tuple(f"parallel.{name}" for name in LAYER_KINDS)
CHOSEN = (STRATEGY, *KEYS)
"""The inputs that are chosen."""
FEW = 256  # combinations predicted at a time
MOST = 4096  # of them in all
_ROUNDING = 1e-9  # between the times of combinations that come to the same


class _Scores(NamedTuple):
    """What combinations come to; shape (combinations,)."""

    time: Floats  # infinite where there is none [s]
    memory: Floats  # of a device [B]
    fits: Bools


class _Space(NamedTuple):
    """What there is to choose for one point.

    A combination is a row of places among the strategies: that of the strategy, then of every other kind that
    of the one that it is cut by.
    """

    inputs: Inputs  # of the point, (1,)
    strategies: list[str]  # of those that come to the same, one
    stages: Ints  # of each
    alike: _Scores  # of each, if it cuts all layers
    others: list[str]  # the inputs of kinds that may be cut otherwise, two at most
    capacity: float  # of a device [B]

    def columns(self, combinations: Ints) -> Columns:
        """Write combinations as inputs: a kind that is cut as the strategy says has no cut of its own."""
        cuts = np.array([SAME, *(str(parse(name)._replace(lp=1)) for name in self.strategies)])
        strategy, *others = combinations.T
        columns: Columns = {
            key: cuts[np.where(cut == strategy, 0, cut + 1)]
            for key, cut in zip(self.others, others, strict=True)
        }
        alike = np.zeros(strategy.size, dtype=np.bool_)
        return columns | {STRATEGY: np.array(self.strategies)[strategy], ASKED: alike}

    def predict(self, combinations: Ints) -> _Scores:
        """Predict combinations."""
        columns, found = self.columns(combinations), []
        for start in range(0, len(combinations), AT_ONCE):
            some = np.arange(start, min(start + AT_ONCE, len(combinations)))
            point = take(dict(self.inputs), np.zeros(some.size, dtype=np.int64))
            found.append(_scores(predict(point | take(columns, some))))
        return _Scores(*map(np.concatenate, zip(*found, strict=True)))


def choose(inputs: Inputs) -> tuple[str, ...]:
    """Return the best strategy of a point, and the cut of every kind of layer, in the order of CHOSEN.

    inputs: of one point, shape (1,). A kind whose cut is given keeps it. The choice is never worse than the
    best strategy that cuts all layers alike, which it is where nothing is gained. Raises InputError as the
    model does.
    """
    prediction, (order,) = next(predict_all(inputs))
    best = int(order[0])
    given = tuple(str(inputs[key][0]) for key in KEYS)
    there = np.unique(prediction.graph.layer_kind).tolist()  # none where no strategy has a time
    free = [kind for kind in there if given[kind] == SAME]
    if len(free) > 1:
        free.remove(HIDDEN if HIDDEN in free else free[0])
        alike = _scores(prediction)
        space = _space(inputs, prediction, alike, [KEYS[kind] for kind in free])
        combinations, found = _predict_best(space)
        place = _fewest(combinations, found)
        gain = alike.time[best] - found.time[place] > _ROUNDING * found.time[place]
        if (found.fits[place] and not alike.fits[best]) or (found.fits[place] == alike.fits[best] and gain):
            columns = dict(inputs) | space.columns(combinations[[place]])
            return tuple(str(columns[key][0]) for key in CHOSEN)
    return str(prediction.inputs[STRATEGY][best]), *given


def _scores(prediction: Prediction) -> _Scores:
    time, fits = scores(prediction)
    memory = np.full(time.size, np.inf)
    memory[prediction.timed] = prediction.footprint.total
    return _Scores(time, memory, fits)


def _space(inputs: Inputs, prediction: Prediction, alike: _Scores, others: list[str]) -> _Space:
    """Return what there is to choose: of strategies that no link tells from each other, the first.

    Those are the ways to deal rows out by KP1 and DP that leave every device the same, and exchange it as
    fast. prediction: of all strategies of the point.
    """
    layouts, stages = prediction.parallelism.layouts, prediction.parallelism.strategies.lp
    exchanged = np.full(stages.size, np.inf)
    exchanged[prediction.timed] = prediction.communication.total
    is_column_row = (layouts.assignment == COLUMN_ROW).astype(np.int64)
    sizes = (stages, layouts.row_shards, layouts.ranks, is_column_row)
    first, _ = kinds((*sizes, alike.time, alike.memory, exchanged), stages.size)
    capacity = float(prediction.chip.dram.capacity[0])
    strategies = prediction.inputs[STRATEGY][first].tolist()
    return _Space(inputs, strategies, stages[first], take(alike, first), others, capacity)


def _sums(space: _Space) -> Iterator[tuple[Ints, Floats, Bools]]:
    """Yield for every strategy the combinations with the least sums, at most MOST, none without a time.

    With their sums of times [s], and whether they fit by their sums of memory.
    """
    for stages in np.unique(space.stages).tolist():
        cuts = np.flatnonzero(space.stages == stages)
        bases = cuts[np.isfinite(space.alike.time[cuts])]
        pairs = np.repeat(bases, cuts.size)[:, None].repeat(1 + len(space.others), axis=1)
        changed = []
        for other in range(len(space.others)):
            own = pairs.copy()
            own[:, 1 + other] = np.tile(cuts, bases.size)
            changed.append(space.predict(own))
        for number, base in enumerate(bases.tolist()):
            rows = slice(number * cuts.size, (number + 1) * cuts.size)
            time = _added(space.alike.time[base], [one.time[rows] for one in changed])
            memory = _added(space.alike.memory[base], [one.memory[rows] for one in changed])
            # of several stages the fullest counts, of which a sum says little
            fits = (memory <= space.capacity * (1.0 + _ROUNDING)).ravel() | (stages > 1)
            least = np.lexsort((time.ravel(), ~fits))[:MOST]
            least = least[np.isfinite(time.ravel()[least])]
            own = np.column_stack([cuts[places] for places in np.unravel_index(least, time.shape)])
            yield np.column_stack([np.full(least.size, base), own]), time.ravel()[least], fits[least]


def _added(base: float, changed: list[Floats]) -> Floats:
    """Return what several changes of an amount come to together; of each (cuts,), in all (cuts, cuts)."""
    return base + reduce(np.add.outer, [amount - base for amount in changed])


def _predict_best(space: _Space) -> tuple[Ints, _Scores]:
    """Predict combinations, those with the least sums first, until the rest promises nothing better."""
    combinations, sums, fits = map(np.concatenate, zip(*_sums(space), strict=True))
    order = np.lexsort((sums, ~fits))[:MOST]
    found: list[_Scores] = []
    best, start = np.inf, 0
    while start < order.size and sums[order[start]] < best:
        found.append(space.predict(combinations[order[start : start + FEW]]))
        best = min(best, found[-1].time[found[-1].fits].min(initial=np.inf))
        start += FEW
    return combinations[order[:start]], _Scores(*map(np.concatenate, zip(*found, strict=True)))


def _fewest(combinations: Ints, found: _Scores) -> int:
    """Return the best combination; of several that come to the same, that with the fewest cuts of its own."""
    time = np.where(found.fits | ~found.fits.any(), found.time, np.inf)
    same = np.flatnonzero(time <= time.min() * (1.0 + _ROUNDING))
    own = (combinations[same] != combinations[same, :1]).sum(axis=1)
    return int(same[own.argmin()])
