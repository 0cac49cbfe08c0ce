"""Scorer of designs: in batches, on several threads, or from the history of an earlier run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from fastflow.analysis.search.candidates import Candidates
from fastflow.analysis.search.history import History
from fastflow.analysis.search.optimizers.halving import Advance, DesignBatch, Evaluate, Goal, walk
from fastflow.analysis.search.optimizers.objective import LACKS_MEMORY, OBJECTIVES, measure, score
from fastflow.analysis.search.options import SearchOptions
from fastflow.config.engine_settings import Settings
from fastflow.core.tables import Bools, Floats, Ints
from fastflow.engine.dataset.schema import ResultTable, field_of, identity, kind_of
from fastflow.engine.grid.grid import Grid
from fastflow.engine.grid.run import naming_missing_input
from fastflow.engine.run.chunks import KINDS, bytes_of
from fastflow.engine.run.predict import Predicted, columns_of, predict_points
from fastflow.engine.run.workers import CancellationToken, ThreadPool
from fastflow.performance.accuracy.classes import typical_columns
from fastflow.performance.precompile import SEARCH
from fastflow.performance.serving import serves
from fastflow.schema import find_result, result_order

if TYPE_CHECKING:
    from fastflow.performance.prediction import Prediction
    from fastflow.performance.serving.predict import Served

FEWEST = 512  # designs that a thread is woken for: fewer take longer in two threads than in one


class Scorer:
    """Scores batches of designs, and notes what was best of each candidate."""

    def __init__(
        self,
        candidates: Candidates,
        options: SearchOptions,
        history: History,
        crew: ThreadPool,
        settings: Settings,
        watch: CancellationToken,
    ) -> None:
        """Take what is scored, and by whom."""
        self.candidates, self.options, self.history = candidates, options, history
        self.crew, self.watch = crew, watch
        count = candidates.point.size
        self.labels = candidates.labels
        self.holdable: Bools = np.ones(count, dtype=np.bool_)
        self.best = np.full(count, np.inf)
        self.best_row = np.full(count, -1, dtype=np.int64)
        self.spent = np.zeros(count, dtype=np.int64)
        grid = candidates.grid
        largest = max(float(bytes_of(grid, share).max()) for share in grid.shares(0, grid.points))
        self.most = max(1, min(settings.chunk, int(settings.chunk_bytes / largest)))

    def __call__(self, batch: DesignBatch) -> Floats:
        """Return the scores of a batch, shape (designs,), and note the best designs."""
        before = self.history.told
        return self.noted(batch, self.table(batch), before)

    def noted(self, batch: DesignBatch, table: pa.Table, before: int) -> Floats:
        """Note the best designs of a batch, and return its scores; before: the history's rows before it."""
        told: Floats = table["score"].to_numpy()
        value = told
        if self.options.pareto is not None:  # the first objective decides which design is best
            value = np.where(told < LACKS_MEMORY, np.log(table["objective"].to_numpy()), told)
        self.note(batch.candidate, value, before)
        return told

    def walk(
        self, alive: Ints, goals: Sequence[Goal], evaluate: Evaluate, advance: Advance
    ) -> Iterator[tuple[DesignBatch, Floats]]:
        """Take starts to their goals as `halving.walk` does; alive: the candidates that starts number."""
        return walk(goals, evaluate, advance)

    def note(self, candidate: Ints, value: Floats, before: int) -> None:
        """Note designs by their values of the first objective; before: the history's rows before them."""
        self.spent += np.bincount(candidate, minlength=self.spent.size)
        order = np.lexsort((value, candidate))
        whose, first = np.unique(candidate[order], return_index=True)
        rows = order[first]
        better = value[rows] < self.best[whose]
        self.best[whose[better]] = value[rows[better]]
        self.best_row[whose[better]] = before + rows[better]

    def table(self, batch: DesignBatch) -> pa.Table:
        """Return the history's rows of a batch, from an earlier run or scored now."""
        known = self.history.recall(self._asked(batch))
        if known is not None:
            return known
        self.watch.check()
        results = self.scored(batch)
        self.watch.check()
        return self.add(batch, results)

    def _asked(self, batch: DesignBatch) -> ResultTable:
        """Return the columns of the history that say which designs a batch asks for."""
        shares = {key: batch.designs[:, place] for place, key in enumerate(self.candidates.space.keys)}
        return {"candidate": batch.candidate, "start": batch.start, "step": batch.step} | shares

    def add(self, batch: DesignBatch, results: ResultTable) -> pa.Table:
        """Take a batch and what it was scored into the history; returns their rows of it."""
        number = np.arange(self.history.told, self.history.told + batch.candidate.size)
        labels = {name: column[batch.candidate] for name, column in self.labels.items()}
        return self.history.add({"design": number} | self._asked(batch) | labels | results)

    def scored(self, batch: DesignBatch) -> ResultTable:
        """Predict and score a batch, in pieces for the crew; columns of shape (designs,)."""
        rows = batch.candidate.size
        pieces = cut(rows, min(self.most, max(FEWEST, -(-rows // self.crew.size))))
        return together(self.crew.map(lambda piece: self._score(batch, piece), pieces))

    def _score(self, batch: DesignBatch, rows: Ints) -> ResultTable:
        """Predict and score some designs of a batch; columns of shape (rows,)."""
        return score_designs(self.candidates, self.holdable, self.options, batch.take(rows))


def score_designs(
    candidates: Candidates, holdable: Bools, options: SearchOptions, batch: DesignBatch
) -> ResultTable:
    """Predict and score a batch in one go; columns of shape (designs,).

    holdable: whether some breakdown has memory enough for each candidate, (candidates,).
    """
    weights = np.linspace(0.0, 1.0, max(options.rules.starts, 2))
    rows = batch.candidate.size
    table: ResultTable = {}
    for place, inputs in candidates.inputs(batch.candidate, batch.designs):
        weight = weights[batch.start[place]]
        changed = np.zeros(place.size, np.bool_)  # no design is a chip as it is in the library
        points = predict_points(inputs, kernels="" if serves(inputs) else SEARCH)
        with naming_missing_input(inputs):
            columns: ResultTable = columns_of(points)
            if serves(inputs):
                columns |= _served_scores(points, options, weight)
            else:
                columns |= _scores(points, options, weight, holdable[batch.candidate[place]])
        columns |= typical_columns(inputs, changed)
        columns |= _lacking(candidates.grid, columns, place.size)  # all of a time, where no design has one
        if place.size == rows:
            return columns  # one call of the model scored them all
        for name, column in columns.items():
            if name not in table:
                empty: Any = np.empty(rows, object if column.dtype.kind == "U" else column.dtype)
                table[name] = np.ma.MaskedArray(empty, mask=True)
            table[name][place] = column
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

    inputs, served = points.resolved, cast("Served", points.prediction)
    columns: ResultTable = {
        "score": score_served(inputs, served, options.objective, options.pareto, weight),
        "objective": measure_served(inputs, served, options.objective),
    }
    if options.pareto is not None:
        columns["second_objective"] = measure_served(inputs, served, options.pareto)
    return columns


def _lacking(grid: Grid, columns: ResultTable, rows: int) -> ResultTable:
    """Return the result columns of a grid that these designs do not have, empty."""
    found: ResultTable = {}
    for name in result_order(grid.levels, grid.has_layer_runs, grid.served):
        if name not in columns and name not in grid.labels:
            kind = kind_of(name, grid)
            empty: Any = np.zeros(rows, KINDS[kind])
            found[name] = np.ma.MaskedArray(empty, mask=True)
    return found


def cut(rows: int, size: int) -> list[Ints]:
    """Return the numbers of rows in pieces of a size, but for the last."""
    return [np.arange(begin, min(begin + size, rows)) for begin in range(0, rows, size)]


def together(tables: Sequence[ResultTable]) -> ResultTable:
    """Join tables of the same columns, masked ones or not."""
    return {name: _together([table[name] for table in tables]) for name in tables[0]}


def _together(columns: list[NDArray[Any]]) -> NDArray[Any]:
    if any(np.ma.is_masked(column) for column in columns):
        joined: NDArray[Any] = np.ma.concatenate(columns)  # type: ignore[no-untyped-call]
        return joined
    return np.concatenate(columns)


def schema_of_history(candidates: Candidates, options: SearchOptions) -> pa.Schema:
    """Return the schema of a search's history."""
    grid = candidates.grid
    kinds = {"design": "int", "candidate": "int", "start": "int", "step": "int"}
    kinds |= {
        name: {"f": "float", "i": "int"}.get(column.dtype.kind, "str")
        for name, column in candidates.labels.items()
    }
    kinds |= dict.fromkeys(candidates.space.keys, "float") | {"score": "float", "objective": "float"}
    if options.pareto is not None:
        kinds["second_objective"] = "float"
    left_out = {*kinds, "point", "placement_asked", *grid.labels}
    for name in result_order(grid.levels, grid.has_layer_runs, grid.served):
        if name not in left_out:
            column = find_result(name)
            assert column is not None
            kinds[name] = column.kind
    fields = [field_of(name, kind) for name, kind in kinds.items()]
    for name, objective in (("objective", options.objective), ("second_objective", options.pareto)):
        if objective is not None:
            place = list(kinds).index(name)
            fields[place] = fields[place].with_metadata({"unit": OBJECTIVES[objective], "meaning": objective})
    about = identity(grid, options._replace(tolerance=0.0)) | {"fastflow.search": options.written}
    return pa.schema(fields, metadata=about)
