"""Ranking of all strategies of a point, or of a transformer's best layouts; the best first."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from yaml import safe_load

from fastflow.config.model_inputs import convert, to_column
from fastflow.core.errors import CompositionError, InputError
from fastflow.core.reasons.codes import Reason
from fastflow.core.reasons.columns import ReasonColumn, column_of
from fastflow.core.tables import Bools, Columns, Floats, Inputs, take
from fastflow.core.uncertainty.percentiles import chance
from fastflow.engine.dataset.schema import ResultTable, column_order
from fastflow.engine.grid.grid import Axis, Grid
from fastflow.engine.grid.run import Run, naming_missing_input
from fastflow.engine.run.chunks import assemble_table
from fastflow.engine.run.monte_carlo import band_columns, samples_by
from fastflow.engine.run.no_effect import COLUMN as NO_EFFECT
from fastflow.engine.run.no_effect import trials_of
from fastflow.engine.run.predict import Predicted, columns_of, predict_points, reasons_of, results_of
from fastflow.engine.run.predict import with_devices as with_least_devices
from fastflow.performance.accuracy.classes import typical_columns
from fastflow.performance.serving import is_serving
from fastflow.physics.hardware.packages import DEVICES
from fastflow.physics.parallelism.candidates import CHOSEN, STRATEGY
from fastflow.physics.parallelism.strategy import AUTO

if TYPE_CHECKING:
    from fastflow.performance.auto.transformer import Search
    from fastflow.performance.prediction import Prediction
    from fastflow.performance.serving.predict import ServingResult

_PER_LAYER = "parallel.per_layer"


class Ranking(NamedTuple):
    """The ranked strategies of a point, or the best layouts."""

    run: Run
    """The run over the strategies, the best first."""
    table: ResultTable
    """The rows of that run."""
    prediction: Prediction | ServingResult
    """Of all strategies, as the strategy space lists them."""
    best: int
    """The index of the best strategy among the points of the prediction."""
    search: Search | None
    """The search among the layouts of a transformer, whose best layouts are ranked."""
    resolved: Columns
    """The inputs under each strategy, as the rows."""
    reasons: ReasonColumn
    """Why strategies are not feasible, as the rows."""

    def table_of_best(self, run: Run) -> ResultTable:
        """Return the row of the best strategy as the row of the ranked point; run: the point's."""
        table = {name: column[:1] for name, column in self.table.items()}
        (share,) = run.grid.shares(0, 1)
        inputs = take(self.resolved, np.zeros(1, dtype=np.int64))
        user_inputs = run.grid.inputs(share) | {DEVICES: inputs[DEVICES]}
        trials = trials_of(run.grid, share, user_inputs)
        if trials:
            predicted = predict_points(inputs, trials=trials)._replace(inputs=user_inputs)
            table[NO_EFFECT] = columns_of(predicted)[NO_EFFECT]
        if run.grid.uncertainty is not None:
            best = Predicted(np.zeros(1, dtype=np.int64), inputs, self.prediction, inputs, share)
            table |= band_columns(run.grid, best, table)
        return {name: table[name] for name in column_order(run.grid)}

    def chances_of_best(self, run: Run, rows: Sequence[int]) -> list[float]:
        """Return the probability that the best strategy beats the strategy of each row; run: the point's."""
        (share,) = run.grid.shares(0, 1)
        samples = [
            samples_by(run.grid, take(self.resolved, np.array([row])), share, _value, 1)[0]
            for row in (0, *rows)
        ]
        return [float(chance(samples[0], other)) for other in samples[1:]]


def ranks_strategies(run: Run) -> bool:
    """Say whether the (first) point of a run has the strategy `auto`, the same for all layers."""
    inputs = run.grid.first_inputs()
    return bool(inputs[STRATEGY][0] == AUTO and not inputs[_PER_LAYER][0])


def ranking_of(run: Run) -> Ranking:
    """Rank all strategies for the point of a run, or the best layouts of a transformer.

    Raises InputError, also where that run has several points.
    """
    from fastflow.performance.auto.rank import fits, least_needed, predict_all
    from fastflow.performance.precompile import compile_ahead

    if run.grid.points != 1:
        raise CompositionError(f"a ranking takes one point, and these overrides make {run.grid.points:,}")
    user_inputs = run.grid.first_inputs()
    inputs, none_fits = with_least_devices(user_inputs)
    is_auto = inputs is not user_inputs
    if is_serving(inputs):
        return _rank_servers(run, inputs, is_auto, bool(none_fits[0]))
    if inputs[_PER_LAYER][0]:
        raise InputError(_PER_LAYER, "true", "false: a ranking is of strategies for all layers")
    with naming_missing_input(inputs):
        compile_ahead(inputs)
        prediction, (order,), search = next(predict_all(inputs))
    chosen = (*(CHOSEN if search else (STRATEGY,)), *([DEVICES] if is_auto else []))
    grid = _grid_over(run.grid, {key: prediction.inputs[key][order] for key in chosen})
    predicted = Predicted(np.arange(order.size), dict(prediction.inputs), prediction, dict(prediction.inputs))
    columns = take(predicted.inputs | columns_of(predicted), order)
    columns |= typical_columns(columns, _is_stock(run, order.size))
    table = assemble_table(grid, np.arange(order.size), [(np.arange(order.size), columns)])
    no_fit = search.least if search else least_needed(prediction, order)
    no_fit = _with_number(inputs, no_fit, fits, bool(none_fits[0]))
    reasons = _with_first(no_fit, take(reasons_of(predicted), order))
    ranked_run, resolved = run._replace(grid=grid), take(predicted.inputs, order)
    table |= reasons.columns()
    return Ranking(ranked_run, table, prediction, int(order[0]), search, resolved, reasons)


def _rank_servers(run: Run, inputs: Columns, is_auto: bool, none_fits: bool) -> Ranking:
    """Rank the layouts of servers for the load of the point of a run.

    is_auto: whether the number of devices was chosen; none_fits: whether no number was found.
    """
    from fastflow.performance.auto.serving import fits, ranked

    with naming_missing_input(inputs):
        layouts, no_fit = ranked(inputs)
        count = layouts[STRATEGY].size
        ranked_inputs = dict(take(inputs, np.zeros(count, dtype=np.int64))) | layouts
    chosen = layouts | ({DEVICES: ranked_inputs[DEVICES]} if is_auto else {})
    grid = _grid_over(run.grid, chosen)
    predicted = predict_points(ranked_inputs)
    columns = ranked_inputs | columns_of(predicted) | typical_columns(ranked_inputs, _is_stock(run, count))
    table = assemble_table(grid, np.arange(count), [(np.arange(count), columns)])
    no_fit = _with_number(inputs, no_fit, fits, none_fits)
    reasons = _with_first(no_fit, reasons_of(predicted))
    table |= reasons.columns()
    return Ranking(run._replace(grid=grid), table, predicted.prediction, 0, None, ranked_inputs, reasons)


def _with_number(
    inputs: Columns, reason: Reason | None, fits: Callable[[Inputs], bool], none_fits: bool
) -> Reason | None:
    """Return why no layout of a point fits, with a number of devices that has one which does.

    none_fits: whether no number was found before.
    """
    from fastflow.performance.auto.no_fit import with_devices

    if reason is None:
        return None
    reason = reason.with_fields(devices=0) if none_fits else with_devices(inputs, reason, fits)
    return _with_way(inputs, reason) if reason.fields["devices"] == 0 else reason


def _with_way(inputs: Columns, reason: Reason) -> Reason:
    """Return why no number of devices fits a point, with the first way that makes one fit."""
    from fastflow.performance.auto.least_devices import least_devices
    from fastflow.performance.auto.ways import SERVING, TRAINING, WAYS

    work = SERVING if is_serving(inputs) else TRAINING
    for way in (way for way in WAYS.values() if way.work == work):
        values = {
            key: convert(key, safe_load(value))
            for key, _, value in (text.partition("=") for text in way.overrides)
        }
        if not values or not values.keys() <= inputs.keys():
            continue  # such as keys that a model lacks
        try:
            least = least_devices(inputs | {key: to_column(key, [value]) for key, value in values.items()})
        except InputError:
            continue
        if least.fits:
            return reason.with_fields(way=(" ".join(way.overrides), least.devices))
    return reason


def _is_stock(run: Run, rows: int) -> Bools:
    """Return whether the chip of a ranking is an unmodified chip of the library, (rows,)."""
    (share,) = run.grid.shares(0, 1)
    return np.repeat(run.grid.is_stock(share), rows)


def _with_first(reason: Reason | None, reasons: ReasonColumn) -> ReasonColumn:
    """Return reasons with that of the best strategy replaced, where there is another."""
    return reasons if reason is None else reasons.replaced(np.array([0]), column_of([reason]))


def _value(inputs: Columns) -> Floats:
    """Return the objective of the ranking, less is better: a time, or the inverse of a server's rate."""
    results = results_of(inputs)
    if is_serving(inputs):
        nan = np.full(inputs["system.devices"].size, np.nan)
        rate = results.get("tokens_per_s_per_device", nan)
        prompts = results.get("prefill_tokens_per_s", nan) / inputs["system.devices"]
        return 1.0 / np.asarray(np.where(np.isnan(rate), prompts, rate))
    return np.asarray(results["time_s"], dtype=np.float64)


def _grid_over(grid: Grid, columns: Columns) -> Grid:
    """Return a grid that varies inputs of a single-point grid together; columns: (points,) each."""
    (block,) = grid.blocks
    kept = [axis for axis in block.axes if not {*axis.keys} & {*columns}]
    ranked = Axis(tuple(columns), next(iter(columns.values())).size, False)
    kept_columns = {key: values for axis in kept for key, values in block.columns.items() if key in axis.keys}
    digest = hashlib.sha256(grid.provenance.fingerprint.encode())
    for key, values in columns.items():
        digest.update(f"{key} {values.tolist()}".encode())
    ranked_block = block._replace(axes=(*kept, ranked), columns=kept_columns | columns)
    provenance = grid.provenance._replace(fingerprint=digest.hexdigest())
    return grid._replace(blocks=(ranked_block,), provenance=provenance, uncertainty=None)
