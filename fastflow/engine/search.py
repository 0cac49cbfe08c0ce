"""A search run: candidates scored in batches by several threads, every design kept, the best ones noted."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

import fastflow
from fastflow.columns import find_result, result_order
from fastflow.distinct import kinds
from fastflow.engine.asked import Asked
from fastflow.engine.candidates import Candidates, candidates_of
from fastflow.engine.crew import Crew, Watch, interruptible
from fastflow.engine.history import History
from fastflow.engine.inputs import Settings
from fastflow.engine.plan import Study
from fastflow.engine.runner import BYTES_A_KERNEL, BYTES_A_POINT, Table, naming_what_is_missing
from fastflow.engine.store import field_of, identity
from fastflow.errors import CompositionError, InputError
from fastflow.optimize.halving import Batch, search, steps_of
from fastflow.optimize.objective import LACKS_MEMORY, NO_CHIP, OBJECTIVES, largest_memory, measure, score
from fastflow.tables import Bools, Floats, Ints

_FEWEST = 512  # designs that a thread is woken for: fewer take longer in two threads than in one

_ALIKE = ("time_s", "compute_s", "comm_s", "exposed_comm_s", "bubble_s", "energy_J", "footprint_B")
"""What candidates agree in that do the same."""


class Answer(NamedTuple):
    """What a search has found."""

    candidates: Candidates
    asked: Asked
    history: History
    best: Ints  # row of the history of each candidate's best design; the first rows are their own breakdowns
    score: Floats  # of the best design by the (first) objective
    reason: NDArray[np.object_]  # why a candidate was not searched, "" where it was
    spent: Ints  # designs scored of each candidate


def run(
    study: Study,
    asked: Asked,
    output: str | None,
    begin: Callable[[int, int, int], None] = lambda candidates, steps, there: None,
    advance: Callable[[int], None] = lambda steps: None,
) -> Answer:
    """Search the best designs of a study's points; raises InputError.

    output: the folder or URL of the history, from which a search that was cut short goes on; None keeps none.
    begin is told how many candidates and steps there are to come, and the designs known from before.
    """
    if study.settings.address:
        raise InputError("engine.address", study.settings.address, "none: a search runs on this machine")
    candidates = candidates_of(study.grid, asked.compete)
    history = History(output, _schema(candidates, asked))
    watch = Watch()
    with _keeping(history), interruptible(watch), Crew(study.settings) as crew:
        scorer = _Scorer(candidates, asked, history, crew, study.settings, watch)
        alive = scorer.screen()
        sizes = np.unique(candidates.group[alive], return_counts=True)[1].tolist()
        begin(alive.size, steps_of(sizes, asked.rules), history.there)
        search(
            candidates.templates[alive],
            candidates.space,
            candidates.group[alive],
            scorer.promise[alive],
            asked.rules,
            lambda batch: scorer(batch._replace(candidate=alive[batch.candidate])),
            advance,
        )
        history.flush()
    return Answer(candidates, asked, history, scorer.best_row, scorer.best, scorer.reason, scorer.spent)


@contextmanager
def _keeping(history: History) -> Iterator[None]:
    """Keep what was scored whatever happens, and say where after an interrupt."""
    try:
        yield
    except BaseException as error:
        history.flush()
        history.discard()
        if isinstance(error, KeyboardInterrupt) and history.folder is not None and history.stored:
            where = history.folder.shown
            kept = f"{history.told:,} designs are kept in {where}"
            raise KeyboardInterrupt(
                f"{kept}; the same command with output={where} goes on from there"
            ) from None
        raise


class _Scorer:
    """Scores batches of designs, and notes what was best of each candidate."""

    def __init__(
        self,
        candidates: Candidates,
        asked: Asked,
        history: History,
        crew: Crew,
        settings: Settings,
        watch: Watch,
    ) -> None:
        self.candidates, self.asked, self.history = candidates, asked, history
        self.crew, self.watch = crew, watch
        count = candidates.point.size
        self.labels = candidates.labels
        self.weights = np.linspace(0.0, 1.0, max(asked.rules.starts, 2))
        self.holdable: Bools = np.ones(count, dtype=np.bool_)
        self.promise, self.best = np.full(count, np.inf), np.full(count, np.inf)
        self.best_row = np.full(count, -1, dtype=np.int64)
        self.spent = np.zeros(count, dtype=np.int64)
        self.reason = np.full(count, "", dtype=object)
        room = settings.chunk_bytes / (BYTES_A_POINT + BYTES_A_KERNEL * self._most_kernels())
        self.most = max(1, min(settings.chunk, int(room)))

    def _most_kernels(self) -> int:
        """Return the kernels of the point that has most."""
        from fastflow.workload import count_kernels

        most = 1
        for share in self.candidates.grid.shares(0, self.candidates.grid.points):
            inputs = self.candidates.grid.inputs(share, "model.")
            with naming_what_is_missing(inputs):
                most = max(most, int(count_kernels(inputs).max()))
        return most

    def screen(self) -> Ints:
        """Score every candidate's own breakdown; returns the candidates whose designs are worth a search.

        Left out, with a reason, are strategies that do not suit, those whose memory no breakdown can hold
        wherever there are others, and those that do what another does. Raises InputError where none is left.
        """
        everybody = np.arange(self.candidates.point.size)
        zeros = np.zeros_like(everybody)
        self.holdable[:] = False  # what lacks memory is not known before it has been looked at without
        batch = Batch(everybody, zeros, zeros, self.candidates.templates)
        table = self._table(batch)
        self.promise = table["score"].to_numpy()
        footprint = table["footprint_B"].to_numpy(zero_copy_only=False)
        largest, held = self._largest(), table["dram_capacity_B"].to_numpy()
        self.holdable = ~(footprint > largest)  # one without a time is not known to lack any
        lacks = self.holdable & (footprint > held)
        self.best = np.where(lacks, LACKS_MEMORY + np.log(footprint / np.maximum(held, 1.0)), self.promise)
        self.best_row, self.spent = everybody.copy(), self.spent + 1
        self._leave_out(self.promise == NO_CHIP, table["reason"].to_pylist())  # nothing is short, and no time
        texts = [
            f"needs {needed / 1e9:.4g} GB of memory a device, no breakdown has more than {most / 1e9:.4g} GB"
            for needed, most in zip(footprint, largest, strict=True)
        ]
        for group in np.unique(self.candidates.group):
            members = (self.candidates.group == group) & (self.reason == "")
            if (members & self.holdable).any():
                self._leave_out(members & ~self.holdable, texts)
        alive = np.flatnonzero(self.reason == "")
        if not alive.size:
            raise CompositionError(f"no design can be searched: {self.reason[0]}")
        self._leave_out_alike(alive[self.promise[alive] < NO_CHIP], table)
        return np.flatnonzero(self.reason == "")

    def _leave_out_alike(self, timed: Ints, table: pa.Table) -> None:
        """Keep the first of candidates that compete and agree in what their own breakdowns give.

        On a switch many strategies do the same to the last bit: they differ in who sits where alone.
        """
        columns = [self.candidates.group, *(table[name].to_numpy() for name in _ALIKE)]
        first, place = kinds([column[timed] for column in columns], timed.size)
        for candidate, other in zip(timed.tolist(), timed[first][place].tolist(), strict=True):
            if candidate != other:
                self.reason[candidate] = f"does as {self.candidates.strategy[other]} does"

    def _leave_out(self, whom: Bools, texts: list[str]) -> None:
        for candidate in np.flatnonzero(whom).tolist():
            self.reason[candidate] = texts[candidate]

    def _largest(self) -> Floats:
        """Return the most memory that any breakdown gives candidates' devices [B], shape (candidates,)."""
        largest = np.zeros(self.candidates.point.size)
        everybody = np.arange(largest.size)
        for place, inputs in self.candidates.inputs(everybody, self.candidates.templates):
            largest[place] = largest_memory(inputs, self.candidates.space)
        return largest

    def __call__(self, batch: Batch) -> Floats:
        """Return the scores of a batch, shape (designs,)."""
        before = self.history.told
        table = self._table(batch)
        told: Floats = table["score"].to_numpy()
        value = told
        if self.asked.pareto is not None:  # the first objective decides which design of a candidate is best
            value = np.where(told < LACKS_MEMORY, np.log(table["objective"].to_numpy()), told)
        self.spent += np.bincount(batch.candidate, minlength=self.spent.size)
        order = np.lexsort((value, batch.candidate))
        whose, first = np.unique(batch.candidate[order], return_index=True)
        rows = order[first]
        better = value[rows] < self.best[whose]
        self.best[whose[better]] = value[rows[better]]
        self.best_row[whose[better]] = before + rows[better]
        return told

    def _table(self, batch: Batch) -> pa.Table:
        """Return the history's rows of a batch, from an earlier run or scored now."""
        shares = {key: batch.designs[:, place] for place, key in enumerate(self.candidates.space.keys)}
        asked: Table = {"candidate": batch.candidate, "start": batch.start, "step": batch.step} | shares
        known = self.history.recall(asked)
        if known is not None:
            return known
        self.watch.check()
        rows = batch.candidate.size
        size = min(self.most, max(_FEWEST, -(-rows // self.crew.size)))
        pieces = [np.arange(begin, min(begin + size, rows)) for begin in range(0, rows, size)]
        found = self.crew.map(lambda piece: self._score(batch, piece), pieces)
        self.watch.check()
        results = {name: _together([one[name] for one in found]) for name in found[0]}
        number = np.arange(self.history.told, self.history.told + rows)
        labels = {name: column[batch.candidate] for name, column in self.labels.items()}
        return self.history.add({"design": number} | asked | labels | results)

    def _score(self, batch: Batch, rows: Ints) -> Table:
        """Predict and score some designs of a batch; columns of shape (rows,)."""
        from fastflow.crossflow import predict
        from fastflow.results import summary

        whose = batch.candidate[rows]
        table: Table = {}
        for place, inputs in self.candidates.inputs(whose, batch.designs[rows]):
            own = whose[place]
            with naming_what_is_missing(inputs):
                prediction = predict(inputs)
            weight = self.weights[batch.start[rows[place]]]
            columns = summary(prediction) | {
                "score": score(
                    prediction, self.asked.objective, self.asked.pareto, weight, self.holdable[own]
                ),
                "objective": measure(prediction, self.asked.objective),
            }
            if self.asked.pareto is not None:
                columns["second_objective"] = measure(prediction, self.asked.pareto)
            if place.size == rows.size:
                return columns  # one call of the model scored them all
            for name, column in columns.items():
                if name not in table:
                    empty: Any = np.empty(rows.size, object if column.dtype.kind == "U" else column.dtype)
                    table[name] = np.ma.MaskedArray(empty, mask=True)
                table[name][place] = column
        return table


def _together(columns: list[NDArray[Any]]) -> NDArray[Any]:
    """Join the pieces of a column, masked ones or not."""
    if any(np.ma.is_masked(column) for column in columns):
        joined: NDArray[Any] = np.ma.concatenate(columns)  # type: ignore[no-untyped-call]
        return joined
    return np.concatenate(columns)


def _schema(candidates: Candidates, asked: Asked) -> pa.Schema:
    """Return the schema of a search's history."""
    grid = candidates.grid
    kinds = {"design": "int", "candidate": "int", "start": "int", "step": "int"}
    kinds |= {
        name: {"f": "float", "i": "int"}.get(column.dtype.kind, "str")
        for name, column in candidates.labels.items()
    }
    kinds |= dict.fromkeys(candidates.space.keys, "float") | {"score": "float", "objective": "float"}
    if asked.pareto is not None:
        kinds["second_objective"] = "float"
    left_out = {*kinds, "point", "placement_asked", *grid.labels}
    for name in result_order(grid.levels):
        if name not in left_out:
            column = find_result(name)
            assert column is not None
            kinds[name] = column.kind
    fields = [field_of(name, kind) for name, kind in kinds.items()]
    for name, objective in (("objective", asked.objective), ("second_objective", asked.pareto)):
        if objective is not None:
            place = list(kinds).index(name)
            fields[place] = fields[place].with_metadata({"unit": OBJECTIVES[objective], "meaning": objective})
    return pa.schema(fields, metadata=identity(grid, fastflow.__version__, asked))
