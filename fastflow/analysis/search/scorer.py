"""Scorer of designs: in batches, on several threads, or from the history of an earlier run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pyarrow as pa

from fastflow.analysis.search.candidates import Candidates
from fastflow.analysis.search.history import History
from fastflow.analysis.search.optimizers.halving import Advance, DesignBatch, Evaluate, Goal, run_starts
from fastflow.analysis.search.optimizers.objective import LACKS_MEMORY, OBJECTIVES, measure, score
from fastflow.analysis.search.options import SearchOptions
from fastflow.config.engine_settings import Settings
from fastflow.core.tables import Bools, Floats, Ints, concat_tables
from fastflow.engine.dataset.kinds import SEARCH as HISTORY
from fastflow.engine.dataset.schema import ResultTable, field_of, identity, kind_of
from fastflow.engine.grid.grid import Grid
from fastflow.engine.grid.run import naming_missing_input
from fastflow.engine.run.chunks import KINDS, bytes_of
from fastflow.engine.run.predict import Predicted, columns_of, predict_points
from fastflow.engine.run.workers import CancellationToken, ThreadPool
from fastflow.performance.accuracy.classes import typical_columns
from fastflow.performance.precompile import SEARCH
from fastflow.performance.serving import is_serving
from fastflow.schema import result_column, result_order

if TYPE_CHECKING:
    from fastflow.performance.prediction import Prediction
    from fastflow.performance.serving.predict import ServingResult

_DESIGN_COLUMNS = ("design", "candidate", "start", "step")
MIN_DESIGNS = 512  # designs of a thread: fewer take longer in two threads than in one


class Scorer:
    """Scores batches of designs, and keeps the best design of each candidate."""

    def __init__(
        self,
        candidates: Candidates,
        options: SearchOptions,
        history: History,
        pool: ThreadPool,
        settings: Settings,
        cancellation: CancellationToken,
    ) -> None:
        """Set the candidates, the history and the threads."""
        self.candidates, self.options, self.history = candidates, options, history
        self.pool, self.cancellation = pool, cancellation
        count = candidates.point.size
        self.labels = candidates.labels
        self.holdable: Bools = np.ones(count, dtype=np.bool_)
        self.best = np.full(count, np.inf)
        self.best_row = np.full(count, -1, dtype=np.int64)
        self.num_scored = np.zeros(count, dtype=np.int64)
        grid = candidates.grid
        largest = max(float(bytes_of(grid, share).max()) for share in grid.shares(0, grid.points))
        self.batch_limit = max(1, min(settings.chunk, int(settings.chunk_bytes / largest)))

    def __call__(self, batch: DesignBatch) -> Floats:
        """Return the scores of a batch, shape (designs,), and update the best designs."""
        before = self.history.num_consumed
        return self.record(batch, self.table(batch), before)

    def record(self, batch: DesignBatch, table: pa.Table, before: int) -> Floats:
        """Update the best designs by a batch, and return its scores; before: the history's rows before it."""
        scores: Floats = table["score"].to_numpy()
        value = scores
        if self.options.pareto is not None:  # the first objective decides which design is best
            value = np.where(scores < LACKS_MEMORY, np.log(table["objective"].to_numpy()), scores)
        self.update_best(batch.candidate, value, before)
        return scores

    def run_starts(
        self, alive: Ints, goals: Sequence[Goal], evaluate: Evaluate, advance: Advance
    ) -> Iterator[tuple[DesignBatch, Floats]]:
        """Run starts to their goals as `halving.run_starts`; alive: the candidates that starts refer to."""
        return run_starts(goals, evaluate, advance)

    def update_best(self, candidate: Ints, value: Floats, before: int) -> None:
        """Update the best designs by the first objective; before: the history's rows before them."""
        self.num_scored += np.bincount(candidate, minlength=self.num_scored.size)
        order = np.lexsort((value, candidate))
        candidates, first = np.unique(candidate[order], return_index=True)
        rows = order[first]
        better = value[rows] < self.best[candidates]
        self.best[candidates[better]] = value[rows[better]]
        self.best_row[candidates[better]] = before + rows[better]

    def table(self, batch: DesignBatch) -> pa.Table:
        """Return the history's rows of a batch, from an earlier run or scored now."""
        recorded = self.history.recall(self._design_columns(batch))
        if recorded is not None:
            return recorded
        self.cancellation.check()
        results = self.scored(batch)
        self.cancellation.check()
        return self.add(batch, results)

    def _design_columns(self, batch: DesignBatch) -> ResultTable:
        """Return the columns of the history that identify the designs of a batch."""
        shares = {key: batch.designs[:, index] for index, key in enumerate(self.candidates.space.keys)}
        return {"candidate": batch.candidate, "start": batch.start, "step": batch.step} | shares

    def add(self, batch: DesignBatch, results: ResultTable) -> pa.Table:
        """Add a batch and its results to the history; returns their rows."""
        number = np.arange(self.history.num_consumed, self.history.num_consumed + batch.candidate.size)
        labels = {name: column[batch.candidate] for name, column in self.labels.items()}
        return self.history.add({"design": number} | self._design_columns(batch) | labels | results)

    def scored(self, batch: DesignBatch) -> ResultTable:
        """Predict and score a batch, in pieces on the threads; columns of shape (designs,)."""
        rows = batch.candidate.size
        pieces = split_rows(rows, min(self.batch_limit, max(MIN_DESIGNS, -(-rows // self.pool.size))))
        return concat_tables(self.pool.map(lambda piece: self._score(batch, piece), pieces))

    def _score(self, batch: DesignBatch, rows: Ints) -> ResultTable:
        """Predict and score some designs of a batch; columns of shape (rows,)."""
        return score_designs(self.candidates, self.holdable, self.options, batch.take(rows))


def score_designs(
    candidates: Candidates, holdable: Bools, options: SearchOptions, batch: DesignBatch
) -> ResultTable:
    """Predict and score a batch in this thread; columns of shape (designs,).

    holdable: whether some breakdown has enough memory for a candidate, (candidates,).
    """
    weights = np.linspace(0.0, 1.0, max(options.rules.starts, 2))
    rows = batch.candidate.size
    table: ResultTable = {}
    for index, inputs in candidates.inputs(batch.candidate, batch.designs):
        weight = weights[batch.start[index]]
        changed = np.zeros(index.size, np.bool_)  # no design is a chip of the library
        points = predict_points(inputs, kernels="" if is_serving(inputs) else SEARCH)
        with naming_missing_input(inputs):
            columns: ResultTable = columns_of(points)
            if is_serving(inputs):
                columns |= _served_scores(points, options, weight)
            else:
                columns |= _scores(points, options, weight, holdable[batch.candidate[index]])
        columns |= typical_columns(inputs, changed)
        # of times, where no design has any
        columns |= _empty_columns(candidates.grid, columns, index.size)
        if index.size == rows:
            return columns  # scored in one call of the model
        for name, column in columns.items():
            if name not in table:
                empty: Any = np.empty(rows, object if column.dtype.kind == "U" else column.dtype)
                table[name] = np.ma.MaskedArray(empty, mask=True)
            table[name][index] = column
    return table


def _scores(points: Predicted, options: SearchOptions, weight: Floats, holdable: Bools) -> ResultTable:
    """Score designs by the time of an iteration."""
    prediction = cast("Prediction", points.prediction)
    columns: ResultTable = {
        "score": score(prediction, options.objective, options.pareto, weight, holdable),
        "objective": measure(prediction, options.objective),
    }
    if options.pareto is not None:
        columns["second_objective"] = measure(prediction, options.pareto)
    return columns


def _served_scores(points: Predicted, options: SearchOptions, weight: Floats) -> ResultTable:
    """Score designs that serve."""
    from fastflow.analysis.search.optimizers.serving_objective import measure_served, score_served

    inputs, served = points.resolved, cast("ServingResult", points.prediction)
    columns: ResultTable = {
        "score": score_served(inputs, served, options.objective, options.pareto, weight),
        "objective": measure_served(inputs, served, options.objective),
    }
    if options.pareto is not None:
        columns["second_objective"] = measure_served(inputs, served, options.pareto)
    return columns


def _empty_columns(grid: Grid, columns: ResultTable, rows: int) -> ResultTable:
    """Return empty columns for the results of a grid that these designs lack."""
    added: ResultTable = {}
    for name in result_order(grid.levels, grid.has_layer_runs, grid.served):
        if name not in columns and name not in grid.labels:
            kind = kind_of(name, grid)
            empty: Any = np.zeros(rows, KINDS[kind])
            added[name] = np.ma.MaskedArray(empty, mask=True)
    return added


def split_rows(rows: int, size: int) -> list[Ints]:
    """Split the numbers of rows into pieces of a size; the last may be smaller."""
    return [np.arange(begin, min(begin + size, rows)) for begin in range(0, rows, size)]


def schema_of_history(candidates: Candidates, options: SearchOptions) -> pa.Schema:
    """Return the schema of a search's history."""
    grid = candidates.grid
    kinds: dict[str, str] = {name: result_column(name).kind for name in _DESIGN_COLUMNS}
    kinds |= {
        name: {"f": "float", "i": "int"}.get(column.dtype.kind, "str")
        for name, column in candidates.labels.items()
    }
    kinds |= dict.fromkeys(candidates.space.keys, "float") | {"score": "float", "objective": "float"}
    if options.pareto is not None:
        kinds["second_objective"] = "float"
    left_out = {*kinds, "point", "placement_requested", *grid.labels}
    for name in result_order(grid.levels, grid.has_layer_runs, grid.served):
        if name not in left_out:
            kinds[name] = result_column(name).kind
    fields = [field_of(name, kind) for name, kind in kinds.items()]
    for name, objective in (("objective", options.objective), ("second_objective", options.pareto)):
        if objective is not None:
            index = list(kinds).index(name)
            fields[index] = fields[index].with_metadata({"unit": OBJECTIVES[objective], "meaning": objective})
    metadata = identity(grid, HISTORY, options._replace(tolerance=0.0)) | {"fastflow.search": options.written}
    return pa.schema(fields, metadata=metadata)
