"""Resolved inputs: the best strategy in place of `parallel.strategy=auto`."""

from __future__ import annotations

import numpy as np

from fastflow.core.dedupe import unique_rows
from fastflow.core.errors import InputError
from fastflow.core.tables import Bools, Columns, Inputs, take
from fastflow.performance.auto.no_fit import LEAST
from fastflow.performance.auto.per_layer import CHOSEN, PER_LAYER, STRATEGY, choose
from fastflow.performance.auto.rank import best_strategies, strategy_spaces
from fastflow.physics.parallelism.candidates import CHOSEN as CHOSEN_LAYOUT
from fastflow.physics.parallelism.candidates import every_layout
from fastflow.physics.parallelism.layout_file import KEY as FILE
from fastflow.physics.parallelism.sharding.layout import LAYERS, SAME
from fastflow.physics.parallelism.strategy import AUTO
from fastflow.physics.workload import has_layer_runs


def resolve_strategy(inputs: Inputs) -> Inputs:
    """Return the inputs with the best strategy wherever `parallel.strategy` is `auto`; shape (points,).

    Of a transformer with all inputs that are chosen with it. Where `parallel.per_layer` is true there, every
    layer has its best strategy. Raises InputError as the model does.
    """
    is_auto = inputs[STRATEGY] == AUTO
    if not is_auto.any():
        return inputs
    auto = take(dict(inputs), np.flatnonzero(is_auto))
    first, inverse = unique_rows(auto.values(), int(is_auto.sum()))  # equal points have equal rankings
    return _with_chosen(inputs, is_auto, take(_best(take(auto, first)), inverse))


def _best(inputs: Inputs) -> Columns:
    """Return the best strategy of every point, and the strategies of its layers under `PER_LAYER`."""
    per_layer = inputs[PER_LAYER]
    if FILE in inputs or not per_layer.any():
        return best_strategies(inputs)
    if has_layer_runs(inputs):
        raise InputError(PER_LAYER, "true", "false: all layers of a transformer are cut alike")
    same = np.full(per_layer.size, SAME)
    best = {key: inputs.get(key, same).astype(object) for key in (*CHOSEN, LAYERS)}
    if not per_layer.all():
        best[STRATEGY][~per_layer] = best_strategies(take(dict(inputs), np.flatnonzero(~per_layer)))[STRATEGY]
    for point in np.flatnonzero(per_layer).tolist():
        for key, value in choose(take(dict(inputs), np.array([point]))).items():
            best[key][point] = value
    columns = {key: column.astype(np.str_) for key, column in best.items()}
    return {key: column for key, column in columns.items() if key in inputs or (column != SAME).any()}


def resolve_any_strategy(inputs: Inputs) -> Inputs:
    """Return the inputs with some strategy wherever `parallel.strategy` is `auto`; shape (points,).

    It splits along as many axes as possible, so that it reads all inputs that the other strategies read.
    """
    is_auto = inputs[STRATEGY] == AUTO
    if not is_auto.any():
        return inputs
    auto = take(dict(inputs), np.flatnonzero(is_auto))
    if has_layer_runs(inputs):
        layouts = [every_layout(take(auto, np.array([point]))) for point in range(int(is_auto.sum()))]
        last = {key: np.array([layout[key][-1] for layout in layouts]) for key in CHOSEN_LAYOUT}
        return _with_chosen(inputs, is_auto, last)
    spaces = strategy_spaces(auto)
    strategies = [str(max(space, key=lambda strategy: sum(n > 1 for n in strategy[1:]))) for space in spaces]
    return _with_chosen(inputs, is_auto, {STRATEGY: np.array(strategies, dtype=np.str_)})


def _with_chosen(inputs: Inputs, rows: Bools, chosen: Columns) -> Inputs:
    """Return the inputs with the chosen columns of some rows, whose `PER_LAYER` is False then."""
    resolved = dict(inputs)
    if inputs[PER_LAYER].any() and FILE not in inputs:  # a layout file covers all kinds of layer
        resolved[PER_LAYER] = inputs[PER_LAYER] & ~rows
    for key, values in chosen.items():
        # strategies of layers may be absent
        column = inputs.get(key, np.full(rows.size, None if key == LEAST else SAME))
        resolved[key] = column.astype(np.result_type(column, values))
        resolved[key][rows] = values
    return resolved
