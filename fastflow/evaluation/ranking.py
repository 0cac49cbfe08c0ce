"""Ranking of all strategies of a point, the best first."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from fastflow.configuration.composer import Composer
from fastflow.dataset.schema import ResultTable, column_order
from fastflow.errors import CompositionError, InputError
from fastflow.evaluation.runner import lay_out
from fastflow.grid.plan import plan
from fastflow.grid.run import Run, naming_what_is_missing
from fastflow.parallelism.strategy import AUTO
from fastflow.tables import take

if TYPE_CHECKING:
    from fastflow.prediction import Prediction

_KEY, _PER_LAYER = "parallel.strategy", "parallel.per_layer"


class Ranking(NamedTuple):
    """All strategies of one point."""

    run: Run
    """Over the strategies, the best first."""
    table: ResultTable
    """The rows of that run."""
    prediction: Prediction
    """Of all strategies, as the strategy space lists them."""
    best: int
    """The point of that prediction whose strategy is the best."""

    def table_of_best(self, run: Run) -> ResultTable:
        """Return the row of the best strategy as that of the point that was ranked; run: the point's."""
        return {name: self.table[name][:1] for name in column_order(run.grid)}


def asks_for_the_best(run: Run) -> bool:
    """Say whether the (first) point of a run leaves the strategy to fastflow, one for all layers."""
    inputs = run.grid.first_inputs()
    return bool(inputs[_KEY][0] == AUTO and not inputs[_PER_LAYER][0])


def ranking_of(composer: Composer, overrides: Sequence[str], run: Run) -> Ranking:
    """Rank all strategies for the one point of a run, which overrides describe.

    Raises InputError, also where that run has several points.
    """
    from fastflow.optimize.strategies import predict_all
    from fastflow.precompile import compile_ahead
    from fastflow.results import summary

    if run.grid.points != 1:
        raise CompositionError(f"a ranking takes one point, and these overrides make {run.grid.points:,}")
    inputs = run.grid.first_inputs()
    if inputs[_PER_LAYER][0]:
        raise InputError(_PER_LAYER, "true", "false: a ranking is of strategies for all layers")
    with naming_what_is_missing(inputs):
        compile_ahead(inputs)
        prediction, (order,) = next(predict_all(inputs))
    strategies = prediction.inputs[_KEY][order]
    own = [text for text in overrides if text.lstrip("+").partition("=")[0] != _KEY]
    ranked = plan(composer, [*own, f"{_KEY}={','.join(strategies)}"], {})
    columns = take(dict(prediction.inputs) | summary(prediction), order)
    table = lay_out(ranked.grid, 0, order.size, [(np.arange(order.size), columns)])
    return Ranking(ranked, table, prediction, int(order[0]))
