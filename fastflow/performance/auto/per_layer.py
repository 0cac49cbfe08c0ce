"""The best cut of every layer: `parallel.strategy=auto` with `parallel.per_layer=true`.

As Galvatron (Miao et al., arXiv:2211.13878) and Alpa (Zheng et al., arXiv:2201.12023) choose a split layer by
layer, by dynamic programming over the layers in their order: what a layer costs depends on its own cut, and
on its neighbours' by what is laid out anew between them. What that is, predictions say: of one cut for the
layers up to a border and another for those above it. From all pairs of cuts at all borders follows a sum of
times, and one of memory, for every combination (`_steps`). With a single stage whose exchanges are waited
for, and tensors that go from a layer to the next, the sum of times is the time. Where gradients overlap, a
pipeline waits for its slowest stage, layers share links, or one reads what no neighbour makes, it is an
estimate. So combinations are predicted as they are, those with the least sum first.

Kinds of layer (embedding, hidden, softmax) are cut first, each as one, then layers. The best of all counts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from fastflow.core.dedupe import unique_rows
from fastflow.core.errors import InputError
from fastflow.core.tables import Bools, Columns, Floats, Inputs, Ints, take
from fastflow.performance.auto.rank import AT_ONCE, predict_all, scores
from fastflow.performance.crossflow import predict
from fastflow.performance.prediction import Prediction
from fastflow.physics.parallelism.sharding.layout import LAYERS, SAME, parse_layers
from fastflow.physics.parallelism.strategy import COLUMN_ROW, parse
from fastflow.physics.workload import layers_of
from fastflow.physics.workload.graph import HIDDEN, LAYER_KINDS

STRATEGY, ASKED = "parallel.strategy", "parallel.per_layer"
KEYS = tuple(f"parallel.{name}" for name in LAYER_KINDS)
CHOSEN = (STRATEGY, *KEYS)
"""The inputs that are chosen; LAYERS too, where layers of a kind have different cuts."""
FEW = 256  # combinations predicted at a time
MOST = 4096  # of them in all
KEPT = 64  # beginnings of combinations that end in the same cut of a layer
_ROUNDING = 1e-9  # between the times of combinations that come to the same


class _Scores(NamedTuple):
    """What combinations come to; shape (combinations,)."""

    time: Floats  # infinite where there is none [s]
    memory: Floats  # of a device [B]
    fits: Bools


class _Space(NamedTuple):
    """What there is to choose for one point.

    A combination is a row of places among the strategies: of every part, that of the one that it is cut by.
    """

    inputs: Inputs  # of the point, (1,)
    strategies: list[str]  # of those that come to the same, one
    stages: Ints  # of each
    alike: _Scores  # of each, if it cuts all layers
    parts: Sequence[str]  # kinds of layer (their inputs), or names of layers, in the order of the model
    base: int  # the part whose cut is that of the strategy
    capacity: float  # of a device [B]

    def columns(self, combinations: Ints) -> Columns:
        """Write combinations as inputs: a part that is cut as the strategy says has no cut of its own."""
        cuts = np.array([str(parse(name)._replace(lp=1)) for name in self.strategies])
        strategy = combinations[:, self.base]
        columns: Columns = {STRATEGY: np.array(self.strategies)[strategy]}
        columns[ASKED] = np.zeros(strategy.size, dtype=np.bool_)
        if self.parts[self.base] in KEYS:
            for key, cut in zip(self.parts, combinations.T, strict=True):
                columns[key] = np.where(cut == strategy, SAME, cuts[cut])
            return columns
        given = _given(self.inputs)
        texts = [
            ", ".join(
                f"{name}: {cut}"
                for name, cut in (*given.items(), *zip(self.parts, cuts[row], strict=True))
                if name in given or cut != cuts[row[self.base]]
            )
            for row in combinations
        ]
        return columns | {LAYERS: np.array([text or SAME for text in texts])}

    def predict(self, combinations: Ints) -> _Scores:
        """Predict combinations."""
        columns, found = self.columns(combinations), []
        for start in range(0, len(combinations), AT_ONCE):
            some = np.arange(start, min(start + AT_ONCE, len(combinations)))
            point = take(dict(self.inputs), np.zeros(some.size, dtype=np.int64))
            found.append(_scores(predict(point | take(columns, some))))
        return _Scores(*map(np.concatenate, zip(*found, strict=True)))


def _given(inputs: Inputs) -> Mapping[str, str]:
    """Return the cuts of layers that are given for a point, by name."""
    cuts = parse_layers(str(inputs[LAYERS][0])) if LAYERS in inputs else {}
    return {name: str(cut) for name, cut in cuts.items()}


def choose(inputs: Inputs) -> dict[str, str]:
    """Return the best strategy of a point, and the cuts of its layers, by the inputs that say so.

    inputs: of one point, shape (1,). A layer whose cut is given keeps it. The choice is never worse than the
    best strategy that cuts all layers alike, which it is where nothing is gained, nor than the best that cuts
    all layers of a kind alike. Raises InputError as the model does.
    """
    prediction, (order,), _ = next(predict_all(inputs))
    best = int(order[0])
    alike = _scores(prediction)
    chosen, least = {STRATEGY: prediction.inputs[STRATEGY][[best]]}, take(alike, np.array([best]))
    for parts, base in _ways(inputs) if np.isfinite(least.time[0]) else ():
        space = _space(inputs, prediction, alike, parts, base)
        combinations, found = _predict_best(space)
        place = _fewest(combinations, found, base)
        gain = least.time[0] - found.time[place] > _ROUNDING * found.time[place]
        if (found.fits[place] and not least.fits[0]) or (found.fits[place] == least.fits[0] and gain):
            chosen, least = space.columns(combinations[[place]]), take(found, np.array([place]))
    return {
        key: str(column[0]) for key, column in (dict(inputs) | chosen).items() if key in (*CHOSEN, LAYERS)
    }


def _ways(inputs: Inputs) -> Iterator[tuple[list[str], int]]:
    """Yield the parts of a point's model that are cut one by one, and which of them the strategy cuts.

    Its kinds of layer, then its layers, where there are more: without those whose cut is given.
    """
    ((layers,), _), given = layers_of(inputs), _given(inputs)
    free = [one for one in layers if one.name not in given and inputs[KEYS[one.kind]][0] == SAME]
    every = sorted({one.kind for one in free})
    if len(every) > 1:
        yield [KEYS[kind] for kind in every], _first_hidden(every)
    named = [one for one in free if _can_be_named(one.name)]
    if len(free) > len(every) and len(named) > 1:
        yield [one.name for one in named], _first_hidden([one.kind for one in named])


def _first_hidden(parts: list[int]) -> int:
    """Return the place of the first hidden one of some kinds of layer, of the first where there is none."""
    return parts.index(HIDDEN) if HIDDEN in parts else 0


def _can_be_named(name: str) -> bool:
    """Say whether LAYERS can name a layer; a name with colons or commas may read as something else there."""
    try:
        return list(parse_layers(f"{name}: d1")) == [name]
    except InputError:
        return False


def _scores(prediction: Prediction) -> _Scores:
    time, fits = scores(prediction)
    memory = np.full(time.size, np.inf)
    memory[prediction.timed] = prediction.footprint.total
    return _Scores(time, memory, fits)


def _space(inputs: Inputs, prediction: Prediction, alike: _Scores, parts: Sequence[str], base: int) -> _Space:
    """Return what there is to choose: of strategies that no link tells from each other, the first.

    Those are the ways to deal rows out by KP1 and DP that leave every device the same, and exchange it as
    fast. prediction: of all strategies of the point.
    """
    layouts, stages = prediction.parallelism.layouts, prediction.parallelism.strategies.lp
    exchanged = np.full(stages.size, np.inf)
    exchanged[prediction.timed] = prediction.communication.total
    is_column_row = (layouts.assignment == COLUMN_ROW).astype(np.int64)
    sizes = (stages, layouts.row_shards, layouts.ranks, is_column_row)
    first, _ = unique_rows((*sizes, alike.time, alike.memory, exchanged), stages.size)
    capacity = float(prediction.chip.dram.capacity[0])
    strategies = prediction.inputs[STRATEGY][first].tolist()
    return _Space(inputs, strategies, stages[first], take(alike, first), parts, base, capacity)


class _Steps(NamedTuple):
    """Times and memory that a combination of some cuts sums up, border by border: see `_steps`."""

    time: Floats  # infinite where there is none [s], (borders, cuts below, cuts above)
    memory: Floats  # [B]


def _steps(space: _Space, cuts: Ints) -> _Steps:
    """Return what the steps of combinations of some cuts, of as many stages, come to.

    With P(i, c, d) of parts up to border i that are cut by c and parts above it by d, and A(c) of all parts
    cut by c, the sum of P(i, c[i], c[i + 1]) over all borders less that of A(c[i]) over all parts but the
    first and the last has each part once under its own cut, and each border once. A step is P less A.
    """
    borders, count = len(space.parts) - 1, cuts.size
    below, above = np.repeat(cuts, count), np.tile(cuts, count)
    is_below = np.arange(borders + 1) <= np.arange(borders)[:, None, None]
    pairs = np.where(is_below, below[:, None], above[:, None]).reshape(-1, borders + 1)
    found = space.predict(pairs)
    shape = (borders, count, count)
    time, memory = found.time.reshape(shape), found.memory.reshape(shape)
    whole = space.alike.time[cuts], space.alike.memory[cuts]
    timed = np.isfinite(whole[0])
    with np.errstate(invalid="ignore"):  # a part in the middle is cut by what cuts all in some time
        time[:-1] = np.where(np.isfinite(time[:-1]) & timed, time[:-1] - whole[0], np.inf)
        memory[:-1] = np.where(np.isfinite(memory[:-1]) & timed, memory[:-1] - whole[1], np.inf)
    return _Steps(time, memory)


def _sums(space: _Space) -> Iterator[tuple[Ints, Floats, Bools]]:
    """Yield combinations with the least sums for every number of stages, at most MOST, none without a time.

    With their sums of times [s], and whether they fit by their sums of memory. It is Viterbi's way: of all
    beginnings that end in one cut of a part, so many go on; before others those that can still fit, and of
    these those that no other beats in time and memory.
    """
    for stages in np.unique(space.stages).tolist():
        cuts = np.flatnonzero(space.stages == stages)
        steps = _steps(space, cuts)
        # of several stages the fullest counts, of which a sum says little
        memory = steps.memory if stages == 1 else np.zeros_like(steps.memory)
        spare = [np.full(cuts.size, space.capacity * (1.0 + _ROUNDING))]
        for step in memory[:0:-1]:
            spare.append((spare[-1] - step).max(axis=1))
        begun, time, held = np.arange(cuts.size)[:, None], np.zeros(cuts.size), np.zeros(cuts.size)
        for step_time, step_memory, room in zip(steps.time, memory, reversed(spare), strict=True):
            times, helds = (
                time[:, None] + step_time[begun[:, -1]],
                held[:, None] + step_memory[begun[:, -1]],
            )
            is_last = begun.shape[1] == len(memory)
            rows, ends = _first(times, helds, helds <= room, MOST if is_last else KEPT, is_last)
            begun = np.column_stack([begun[rows], ends])
            time, held = times[rows, ends], helds[rows, ends]
        yield cuts[begun], time, held <= spare[0][0]


def _first(times: Floats, memory: Floats, fits: Bools, most: int, is_last: bool) -> tuple[Ints, Ints]:
    """Return which beginnings go on, and the cuts that they end in; all of shape (beginnings, cuts)."""
    if is_last:
        order = np.lexsort((times.ravel(), ~fits.ravel()))[:most]
        rows, ends = np.unravel_index(order, times.shape)
    else:
        by_time = np.lexsort((memory, times), axis=0)
        sorted_memory = np.take_along_axis(memory, by_time, axis=0)
        beaten = np.zeros(times.shape, dtype=np.bool_)
        beaten[1:] = sorted_memory[1:] >= np.minimum.accumulate(sorted_memory)[:-1]
        rank = 2 * ~np.take_along_axis(fits, by_time, axis=0) + beaten
        order = np.argsort(rank, axis=0, kind="stable")[:most]
        rows = np.take_along_axis(by_time, order, axis=0).ravel()
        ends = np.broadcast_to(np.arange(times.shape[1]), order.shape).ravel()
    timed = np.isfinite(times[rows, ends])
    return rows[timed], ends[timed]


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


def _fewest(combinations: Ints, found: _Scores, base: int) -> int:
    """Return the best combination; of several that come to the same, that with the fewest cuts of its own."""
    time = np.where(found.fits | ~found.fits.any(), found.time, np.inf)
    same = np.flatnonzero(time <= time.min() * (1.0 + _ROUNDING))
    own = (combinations[same] != combinations[same, base][:, None]).sum(axis=1)
    return int(same[own.argmin()])
