"""Inputs whose parallel strategy is settled: `parallel.strategy=auto` gives way to the best there is."""

from __future__ import annotations

import numpy as np

from fastflow.core.dedupe import unique_rows
from fastflow.core.errors import InputError
from fastflow.core.tables import Bools, Columns, Inputs, take
from fastflow.performance.auto.no_fit import LEAST
from fastflow.performance.auto.per_layer import ASKED, CHOSEN, STRATEGY, choose
from fastflow.performance.auto.rank import best_of, spaces_of
from fastflow.physics.parallelism.candidates import CHOSEN as CHOSEN_LAYOUT
from fastflow.physics.parallelism.candidates import every_layout
from fastflow.physics.parallelism.layout_file import KEY as FILE
from fastflow.physics.parallelism.sharding.layout import LAYERS, SAME
from fastflow.physics.parallelism.strategy import AUTO
from fastflow.physics.workload import has_layer_runs


def resolve_strategy(inputs: Inputs) -> Inputs:
    """Return the inputs with the best strategy wherever `parallel.strategy` is `auto`; shape (points,).

    Of a transformer with whatever is chosen beside it. Where `parallel.per_layer` is true there, every layer
    has its best cut. Raises InputError as the model does.
    """
    asked = inputs[STRATEGY] == AUTO
    if not asked.any():
        return inputs
    auto = take(dict(inputs), np.flatnonzero(asked))
    first, place = unique_rows(auto.values(), int(asked.sum()))  # points that agree in everything rank alike
    return _with(inputs, asked, take(_best(take(auto, first)), place))


def _best(inputs: Inputs) -> Columns:
    """Return what is best for every point: the strategy, and the cuts of layers where asked."""
    apart = inputs[ASKED]
    if FILE in inputs or not apart.any():
        return best_of(inputs)
    if has_layer_runs(inputs):
        raise InputError(ASKED, "true", "false: all layers of a transformer are cut alike")
    none = np.full(apart.size, SAME)
    best = {key: inputs.get(key, none).astype(object) for key in (*CHOSEN, LAYERS)}
    if not apart.all():
        best[STRATEGY][~apart] = best_of(take(dict(inputs), np.flatnonzero(~apart)))[STRATEGY]
    for point in np.flatnonzero(apart).tolist():
        for key, value in choose(take(dict(inputs), np.array([point]))).items():
            best[key][point] = value
    found = {key: column.astype(np.str_) for key, column in best.items()}
    return {key: column for key, column in found.items() if key in inputs or (column != SAME).any()}


def settle_on_any(inputs: Inputs) -> Inputs:
    """Return the inputs with some strategy wherever `parallel.strategy` is `auto`; shape (points,).

    It is one that cuts in as many ways as there are, so that it needs what the others do.
    """
    asked = inputs[STRATEGY] == AUTO
    if not asked.any():
        return inputs
    some = take(dict(inputs), np.flatnonzero(asked))
    if has_layer_runs(inputs):
        every = [every_layout(take(some, np.array([point]))) for point in range(int(asked.sum()))]
        last = {key: np.array([one[key][-1] for one in every]) for key in CHOSEN_LAYOUT}
        return _with(inputs, asked, last)
    spaces = spaces_of(some)
    cut = [str(max(space, key=lambda one: sum(degree > 1 for degree in one[1:]))) for space in spaces]
    return _with(inputs, asked, {STRATEGY: np.array(cut, dtype=np.str_)})


def _with(inputs: Inputs, rows: Bools, chosen: Columns) -> Inputs:
    """Return the inputs with what is chosen for some rows, where nothing more is asked for."""
    found = dict(inputs)
    if inputs[ASKED].any() and FILE not in inputs:  # a file lays out all kinds of layer
        found[ASKED] = inputs[ASKED] & ~rows
    for key, values in chosen.items():
        # cuts of layers may not be there
        given = inputs.get(key, np.full(rows.size, "" if key == LEAST else SAME))
        found[key] = given.astype(np.result_type(given, values))
        found[key][rows] = values
    return found
