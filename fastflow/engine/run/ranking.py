"""Ranking of all strategies of a point, of a transformer of its best layouts; the best first."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastflow.core.errors import CompositionError, InputError
from fastflow.core.tables import Bools, Columns, Floats, take
from fastflow.core.uncertainty.percentiles import chance
from fastflow.engine.dataset.schema import ResultTable, column_order
from fastflow.engine.grid.grid import Axis, Grid
from fastflow.engine.grid.run import Run, naming_missing_input
from fastflow.engine.run.chunks import lay_out
from fastflow.engine.run.monte_carlo import band_columns, samples_by
from fastflow.engine.run.no_effect import COLUMN as NO_EFFECT
from fastflow.engine.run.no_effect import trials_of
from fastflow.engine.run.predict import Predicted, columns_of, predict_points, results_of
from fastflow.performance.accuracy.classes import typical_columns
from fastflow.performance.serving import serves
from fastflow.physics.parallelism.candidates import CHOSEN
from fastflow.physics.parallelism.strategy import AUTO

if TYPE_CHECKING:
    from fastflow.performance.auto.transformer import Search
    from fastflow.performance.prediction import Prediction
    from fastflow.performance.serving.predict import Served

_KEY, _PER_LAYER = "parallel.strategy", "parallel.per_layer"


class Ranking(NamedTuple):
    """All strategies of one point, or the best layouts."""

    run: Run
    """Over the strategies, the best first."""
    table: ResultTable
    """The rows of that run."""
    prediction: Prediction | Served
    """Of all strategies, as the strategy space lists them."""
    best: int
    """The point of that prediction whose strategy is the best."""
    search: Search | None
    """Among the layouts of a transformer, of which the ranking has the best."""
    settled: Columns
    """The inputs under each strategy, as the rows."""

    def table_of_best(self, run: Run) -> ResultTable:
        """Return the row of the best strategy as that of the point that was ranked; run: the point's."""
        table = {name: column[:1] for name, column in self.table.items()}
        (share,) = run.grid.shares(0, 1)
        inputs = take(self.settled, np.zeros(1, dtype=np.int64))
        user = run.grid.inputs(share)
        trials = trials_of(run.grid, share, user)
        if trials:
            one = predict_points(inputs, trials=trials)._replace(inputs=user)
            table[NO_EFFECT] = columns_of(one)[NO_EFFECT]
        if run.grid.uncertainty is not None:
            best = Predicted(np.zeros(1, dtype=np.int64), inputs, self.prediction, inputs, share)
            table |= band_columns(run.grid, best, table)
        return {name: table[name] for name in column_order(run.grid)}

    def chances_of_best(self, run: Run, rows: Sequence[int]) -> list[float]:
        """Return how likely the best strategy is better than those of some rows; run: the point's."""
        (share,) = run.grid.shares(0, 1)
        samples = [
            samples_by(run.grid, take(self.settled, np.array([row])), share, _value, 1)[0]
            for row in (0, *rows)
        ]
        return [float(chance(samples[0], other)) for other in samples[1:]]


def asks_for_the_best(run: Run) -> bool:
    """Say whether the (first) point of a run leaves the strategy to fastflow, one for all layers."""
    inputs = run.grid.first_inputs()
    return bool(inputs[_KEY][0] == AUTO and not inputs[_PER_LAYER][0])


def ranking_of(run: Run) -> Ranking:
    """Rank all strategies for the one point of a run, of a transformer its best layouts.

    Raises InputError, also where that run has several points.
    """
    from fastflow.performance.auto.no_fit import with_devices
    from fastflow.performance.auto.rank import fits, least_needed, predict_all
    from fastflow.performance.precompile import compile_ahead

    if run.grid.points != 1:
        raise CompositionError(f"a ranking takes one point, and these overrides make {run.grid.points:,}")
    inputs = run.grid.first_inputs()
    if serves(inputs):
        return _of_servers(run, inputs)
    if inputs[_PER_LAYER][0]:
        raise InputError(_PER_LAYER, "true", "false: a ranking is of strategies for all layers")
    with naming_missing_input(inputs):
        compile_ahead(inputs)
        prediction, (order,), search = next(predict_all(inputs))
    chosen = CHOSEN if search else (_KEY,)
    grid = _over(run.grid, {key: prediction.inputs[key][order] for key in chosen})
    every = Predicted(np.arange(order.size), dict(prediction.inputs), prediction, dict(prediction.inputs))
    columns = take(every.inputs | columns_of(every), order)
    columns |= typical_columns(columns, _is_stock(run, order.size))
    table = lay_out(grid, 0, order.size, [(np.arange(order.size), columns)])
    least = search.least if search else least_needed(prediction, order)
    if least:
        table["reason"] = _first(with_devices(inputs, least, fits), table["reason"])
    settled = take(every.inputs, order)
    return Ranking(run._replace(grid=grid), table, prediction, int(order[0]), search, settled)


def _of_servers(run: Run, inputs: Columns) -> Ranking:
    """Rank the layouts of servers for the load of the one point of a run."""
    from fastflow.performance.auto.no_fit import with_devices
    from fastflow.performance.auto.serving import fits, ranked

    with naming_missing_input(inputs):
        layouts, least = ranked(inputs)
        count = layouts[_KEY].size
        many = dict(take(inputs, np.zeros(count, dtype=np.int64))) | layouts
    grid = _over(run.grid, layouts)
    every = predict_points(many)
    columns = many | columns_of(every) | typical_columns(many, _is_stock(run, count))
    table = lay_out(grid, 0, count, [(np.arange(count), columns)])
    if least:
        table["reason"] = _first(with_devices(inputs, least, fits), table["reason"])
    return Ranking(run._replace(grid=grid), table, every.prediction, 0, None, many)


def _is_stock(run: Run, rows: int) -> Bools:
    """Say of every row of a ranking whether its chip is of the library, with no figure changed."""
    (share,) = run.grid.shares(0, 1)
    return np.repeat(run.grid.is_stock(share), rows)


def _first(reason: str, reasons: NDArray[Any]) -> NDArray[Any]:
    """Return reasons of which the first one, the best strategy's, is another."""
    return np.array([reason, *reasons[1:].tolist()], dtype=object)


def _value(inputs: Columns) -> Floats:
    """Return what strategies are ranked by, less is better: a time, of servers one over a rate."""
    results = results_of(inputs)
    if serves(inputs):
        nothing = np.full(inputs["system.devices"].size, np.nan)
        rate = results.get("tokens_per_s_per_device", nothing)
        prompts = results.get("prefill_tokens_per_s", nothing) / inputs["system.devices"]
        return 1.0 / np.asarray(np.where(np.isnan(rate), prompts, rate))
    return np.asarray(results["time_s"], dtype=np.float64)


def _over(grid: Grid, columns: Columns) -> Grid:
    """Return the grid that varies some inputs of a grid of one point together; columns: (points,) each."""
    (block,) = grid.blocks
    kept = [axis for axis in block.axes if not {*axis.keys} & {*columns}]
    ranked = Axis(tuple(columns), next(iter(columns.values())).size, False)
    held = {key: values for axis in kept for key, values in block.columns.items() if key in axis.keys}
    digest = hashlib.sha256(grid.fingerprint.encode())
    for key, values in columns.items():
        digest.update(f"{key} {values.tolist()}".encode())
    whole = block._replace(axes=(*kept, ranked), columns=held | columns)
    return grid._replace(blocks=(whole,), fingerprint=digest.hexdigest(), uncertainty=None)
