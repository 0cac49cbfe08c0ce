"""The best strategy of every layer: `parallel.strategy=auto` with `parallel.per_layer=true`.

As in Galvatron (Miao et al., arXiv:2211.13878) and Alpa (Zheng et al., arXiv:2201.12023), strategies are
chosen by dynamic programming over the layers in their order: the cost of a layer depends on its
strategy, and on its neighbours' through the resharding between them. Predictions give this cost: with one
strategy for the layers up to a border and another for the layers above it. All pairs of strategies at all
borders give a sum of times, and a sum of memory, for every combination (`_transition_costs`). With a single
stage whose exchanges are exposed, and tensors that go from a layer to the next, the sum of times is the time.
It is an estimate where gradients overlap, a pipeline waits for its slowest stage, layers share links, or a
layer reads a tensor that no neighbour makes. So combinations are predicted as a whole, the least sum first.

Strategies are chosen for kinds of layer (embedding, hidden, softmax) first, then for layers; the best counts.
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

STRATEGY, PER_LAYER = "parallel.strategy", "parallel.per_layer"
KEYS = tuple(f"parallel.{name}" for name in LAYER_KINDS)
CHOSEN = (STRATEGY, *KEYS)
"""The inputs that are chosen; LAYERS too, where layers of a kind have different strategies."""
BATCH = 256  # combinations predicted at a time
MAX_COMBINATIONS = 4096  # of them in all
KEPT = 64  # prefixes of combinations that end in the same strategy of a layer
_ROUNDING = 1e-9  # between equal times of combinations


class _Scores(NamedTuple):
    """Times and memory of combinations; shape (combinations,)."""

    time: Floats  # infinite without a time [s]
    memory: Floats  # of a device [B]
    fits: Bools


class _Space(NamedTuple):
    """The search space of a point.

    A combination is a row of indices into the strategies, an index for each part.
    """

    inputs: Inputs  # of the point, (1,)
    strategies: list[str]  # without duplicates
    stages: Ints  # of each
    uniform: _Scores  # of each strategy, for all layers
    parts: Sequence[str]  # kinds of layer (their inputs), or names of layers, in the model's order
    base: int  # the part that `parallel.strategy` is for
    capacity: float  # of a device [B]

    def columns(self, combinations: Ints) -> Columns:
        """Return the inputs of combinations; a part with the strategy of the base part needs none."""
        layer_strategies = np.array([str(parse(name)._replace(pp=1)) for name in self.strategies])
        strategy = combinations[:, self.base]
        columns: Columns = {STRATEGY: np.array(self.strategies)[strategy]}
        columns[PER_LAYER] = np.zeros(strategy.size, dtype=np.bool_)
        if self.parts[self.base] in KEYS:
            for key, choice in zip(self.parts, combinations.T, strict=True):
                columns[key] = np.where(choice == strategy, SAME, layer_strategies[choice])
            return columns
        fixed = _fixed_layers(self.inputs)
        texts = [
            ", ".join(
                f"{name}: {choice}"
                for name, choice in (*fixed.items(), *zip(self.parts, layer_strategies[row], strict=True))
                if name in fixed or choice != layer_strategies[row[self.base]]
            )
            for row in combinations
        ]
        return columns | {LAYERS: np.array([text or SAME for text in texts])}

    def predict(self, combinations: Ints) -> _Scores:
        """Predict combinations."""
        columns, results = self.columns(combinations), []
        for start in range(0, len(combinations), AT_ONCE):
            batch = np.arange(start, min(start + AT_ONCE, len(combinations)))
            point = take(dict(self.inputs), np.zeros(batch.size, dtype=np.int64))
            results.append(_scores(predict(point | take(columns, batch))))
        return _Scores(*map(np.concatenate, zip(*results, strict=True)))


def _fixed_layers(inputs: Inputs) -> Mapping[str, str]:
    """Return the strategies of layers that the user has fixed for a point, by name."""
    layer_strategies = parse_layers(str(inputs[LAYERS][0])) if LAYERS in inputs else {}
    return {name: str(layer_strategy) for name, layer_strategy in layer_strategies.items()}


def choose(inputs: Inputs) -> dict[str, str]:
    """Return the best strategy of a point, and the strategies of its layers, as inputs.

    inputs: of one point, shape (1,). A layer whose strategy is fixed keeps it. The choice is never worse than
    the best uniform strategy, which it is where nothing is gained, nor than the best with a strategy for each
    kind of layer. Raises InputError as the model does.
    """
    prediction, (order,), _ = next(predict_all(inputs))
    best = int(order[0])
    uniform = _scores(prediction)
    chosen, least = {STRATEGY: prediction.inputs[STRATEGY][[best]]}, take(uniform, np.array([best]))
    for parts, base in _partitions(inputs) if np.isfinite(least.time[0]) else ():
        space = _space(inputs, prediction, uniform, parts, base)
        combinations, results = _predict_best(space)
        index = _best_combination(combinations, results, base)
        gain = least.time[0] - results.time[index] > _ROUNDING * results.time[index]
        if (results.fits[index] and not least.fits[0]) or (results.fits[index] == least.fits[0] and gain):
            chosen, least = space.columns(combinations[[index]]), take(results, np.array([index]))
    return {
        key: str(column[0]) for key, column in (dict(inputs) | chosen).items() if key in (*CHOSEN, LAYERS)
    }


def _partitions(inputs: Inputs) -> Iterator[tuple[list[str], int]]:
    """Yield the parts of a point's model that get separate strategies, and the index of the base part.

    Its kinds of layer, then its layers, where there are more: without layers whose strategy is fixed.
    """
    ((layers,), _), fixed = layers_of(inputs), _fixed_layers(inputs)
    free = [layer for layer in layers if layer.name not in fixed and inputs[KEYS[layer.kind]][0] == SAME]
    kinds = sorted({layer.kind for layer in free})
    if len(kinds) > 1:
        yield [KEYS[kind] for kind in kinds], _first_hidden(kinds)
    named = [layer for layer in free if _can_be_named(layer.name)]
    if len(free) > len(kinds) and len(named) > 1:
        yield [layer.name for layer in named], _first_hidden([layer.kind for layer in named])


def _first_hidden(parts: list[int]) -> int:
    """Return the index of the first hidden layer among some kinds of layer, 0 where there is none."""
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


def _space(
    inputs: Inputs, prediction: Prediction, uniform: _Scores, parts: Sequence[str], base: int
) -> _Space:
    """Return the search space: the first of each set of equivalent strategies.

    These split rows by KP1 and DP differently, with equal shards and equal communication on every device.
    prediction: of all strategies of the point.
    """
    layouts, stages = prediction.parallelism.layouts, prediction.parallelism.strategies.pp
    exchanged = np.full(stages.size, np.inf)
    exchanged[prediction.timed] = prediction.communication.total
    is_column_row = (layouts.assignment == COLUMN_ROW).astype(np.int64)
    sizes = (stages, layouts.row_shards, layouts.ranks, is_column_row)
    first, _ = unique_rows((*sizes, uniform.time, uniform.memory, exchanged), stages.size)
    capacity = float(prediction.offered[0])
    strategies = prediction.inputs[STRATEGY][first].tolist()
    return _Space(inputs, strategies, stages[first], take(uniform, first), parts, base, capacity)


class _TransitionCosts(NamedTuple):
    """Terms of the sums of time and memory of a combination, by border: see `_transition_costs`."""

    time: Floats  # infinite without a time [s], (borders, strategies below, strategies above)
    memory: Floats  # [B]


def _transition_costs(space: _Space, candidates: Ints) -> _TransitionCosts:
    """Return the terms of the sums of combinations of candidate strategies with equally many stages.

    With P(i, c, d) of strategy c for parts up to border i and d for parts above it, and A(c) of c for all
    parts, the sum of P(i, c[i], c[i + 1]) over all borders less the sum of A(c[i]) over all parts but the
    first and the last has each part once under its strategy, and each border once. A term is P less A.
    """
    borders, count = len(space.parts) - 1, candidates.size
    below, above = np.repeat(candidates, count), np.tile(candidates, count)
    is_below = np.arange(borders + 1) <= np.arange(borders)[:, None, None]
    pairs = np.where(is_below, below[:, None], above[:, None]).reshape(-1, borders + 1)
    results = space.predict(pairs)
    shape = (borders, count, count)
    time, memory = results.time.reshape(shape), results.memory.reshape(shape)
    whole = space.uniform.time[candidates], space.uniform.memory[candidates]
    timed = np.isfinite(whole[0])
    with np.errstate(invalid="ignore"):  # middle parts need a finite time of the uniform strategy
        time[:-1] = np.where(np.isfinite(time[:-1]) & timed, time[:-1] - whole[0], np.inf)
        memory[:-1] = np.where(np.isfinite(memory[:-1]) & timed, memory[:-1] - whole[1], np.inf)
    return _TransitionCosts(time, memory)


def _viterbi(space: _Space) -> Iterator[tuple[Ints, Floats, Bools]]:
    """Yield combinations with the least sums for every number of stages, at most MOST, none without a time.

    With their sums of times [s], and whether they fit by their sums of memory. A beam search like Viterbi's:
    of all prefixes that end in a strategy of a part, at most KEPT are kept; first those that can still fit,
    and of these those that no other prefix beats in time and memory.
    """
    for stages in np.unique(space.stages).tolist():
        candidates = np.flatnonzero(space.stages == stages)
        steps = _transition_costs(space, candidates)
        # the memory of several stages is that of the fullest: no sum
        memory = steps.memory if stages == 1 else np.zeros_like(steps.memory)
        spare = [np.full(candidates.size, space.capacity * (1.0 + _ROUNDING))]
        for step in memory[:0:-1]:
            spare.append((spare[-1] - step).max(axis=1))
        prefixes = np.arange(candidates.size)[:, None]
        time, used = np.zeros((2, candidates.size))
        for step_time, step_memory, limit in zip(steps.time, memory, reversed(spare), strict=True):
            times = time[:, None] + step_time[prefixes[:, -1]]
            memories = used[:, None] + step_memory[prefixes[:, -1]]
            is_last = prefixes.shape[1] == len(memory)
            max_kept = MAX_COMBINATIONS if is_last else KEPT
            rows, ends = _keep_prefixes(times, memories, memories <= limit, max_kept, is_last)
            prefixes = np.column_stack([prefixes[rows], ends])
            time, used = times[rows, ends], memories[rows, ends]
        yield candidates[prefixes], time, used <= spare[0][0]


def _keep_prefixes(
    times: Floats, memory: Floats, fits: Bools, max_kept: int, is_last: bool
) -> tuple[Ints, Ints]:
    """Return the prefixes that are kept, and their last strategies; all of shape (prefixes, strategies)."""
    if is_last:
        order = np.lexsort((times.ravel(), ~fits.ravel()))[:max_kept]
        rows, ends = np.unravel_index(order, times.shape)
    else:
        by_time = np.lexsort((memory, times), axis=0)
        sorted_memory = np.take_along_axis(memory, by_time, axis=0)
        beaten = np.zeros(times.shape, dtype=np.bool_)
        beaten[1:] = sorted_memory[1:] >= np.minimum.accumulate(sorted_memory)[:-1]
        rank = 2 * ~np.take_along_axis(fits, by_time, axis=0) + beaten
        order = np.argsort(rank, axis=0, kind="stable")[:max_kept]
        rows = np.take_along_axis(by_time, order, axis=0).ravel()
        ends = np.broadcast_to(np.arange(times.shape[1]), order.shape).ravel()
    timed = np.isfinite(times[rows, ends])
    return rows[timed], ends[timed]


def _predict_best(space: _Space) -> tuple[Ints, _Scores]:
    """Predict combinations, the least sums first, until no remaining sum is less than the best time."""
    combinations, sums, fits = map(np.concatenate, zip(*_viterbi(space), strict=True))
    order = np.lexsort((sums, ~fits))[:MAX_COMBINATIONS]
    results: list[_Scores] = []
    best, start = np.inf, 0
    while start < order.size and sums[order[start]] < best:
        results.append(space.predict(combinations[order[start : start + BATCH]]))
        best = min(best, results[-1].time[results[-1].fits].min(initial=np.inf))
        start += BATCH
    return combinations[order[:start]], _Scores(*map(np.concatenate, zip(*results, strict=True)))


def _best_combination(combinations: Ints, results: _Scores, base: int) -> int:
    """Return the best combination; of several equal combinations, that with fewest changes of strategy."""
    time = np.where(results.fits | ~results.fits.any(), results.time, np.inf)
    same = np.flatnonzero(time <= time.min() * (1.0 + _ROUNDING))
    num_changes = (combinations[same] != combinations[same, base][:, None]).sum(axis=1)
    return int(same[num_changes.argmin()])
