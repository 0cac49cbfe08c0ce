"""Search on the workers of a Dask scheduler: their tasks, and the order of their results.

A step of a search takes milliseconds, as a message does. So a worker runs some starts for many steps, and
returns them with all designs that they scored. Starts are independent within a rung: merged step by step, in
the order of starts, the results are the history of a search in one process.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import islice, zip_longest
from typing import NamedTuple

import numpy as np

from fastflow.analysis.search.candidates import Candidates
from fastflow.analysis.search.history import PART_ROWS, History
from fastflow.analysis.search.optimizers.design_space import Space
from fastflow.analysis.search.optimizers.halving import (
    Advance,
    DesignBatch,
    Evaluate,
    Goal,
    Start,
    run_starts,
)
from fastflow.analysis.search.options import SearchOptions
from fastflow.analysis.search.scorer import MIN_DESIGNS, Scorer, score_designs, split_rows
from fastflow.config.engine_settings import Settings
from fastflow.core.tables import Bools, Columns, Floats, Ints, Texts, concat_tables, take
from fastflow.engine.dataset.schema import ResultTable
from fastflow.engine.grid.grid import Grid
from fastflow.engine.run.workers import CancellationToken, Cluster, ThreadPool

DESIGNS_PER_BATCH = 16 * PART_ROWS
"""Designs of all step batches of a round, about; they are kept in memory, and an interrupt loses them."""


class SearchContext(NamedTuple):
    """Context of a search that all its workers share."""

    grid: Grid
    space: Space
    options: SearchOptions


class CandidateBatch(NamedTuple):
    """Candidates, as sent to a worker; shape (candidates,)."""

    number: Ints  # increasing
    point: Ints
    strategy: Texts
    extra_choices: Columns
    holdable: Bools


class ScoreTask(NamedTuple):
    """Designs to score."""

    candidates: CandidateBatch
    batch: DesignBatch


class StepBatch(NamedTuple):
    """Starts to run towards their goals."""

    candidates: CandidateBatch
    goals: Sequence[Goal]
    steps: int  # at most
    batch_limit: int  # designs scored at once


class StepBatchResult(NamedTuple):
    """Results of a step batch: its starts, and all designs that they scored."""

    starts: list[Start]
    scored: list[tuple[DesignBatch, ResultTable]]  # step by step
    advanced: int  # steps of starts


def score_task(context: SearchContext, task: ScoreTask) -> ResultTable:
    """Score designs; columns of shape (designs,)."""
    candidates = Candidates(
        grid=context.grid,
        point=task.candidates.point,
        strategy=task.candidates.strategy,
        extra_choices=task.candidates.extra_choices,
        group=np.zeros_like(task.candidates.point),
        templates=np.empty((task.candidates.point.size, 0)),
        space=context.space,
    )
    index = np.searchsorted(task.candidates.number, task.batch.candidate)
    batch = task.batch._replace(candidate=index)
    return score_designs(candidates, task.candidates.holdable, context.options, batch)


def run_step_batch(context: SearchContext, step_batch: StepBatch) -> StepBatchResult:
    """Run starts towards their goals."""
    scored: list[tuple[DesignBatch, ResultTable]] = []
    advanced: list[int] = []

    def evaluate(batch: DesignBatch) -> Floats:
        pieces = [batch.take(rows) for rows in split_rows(batch.candidate.size, step_batch.batch_limit)]
        table = concat_tables(
            [score_task(context, ScoreTask(step_batch.candidates, piece)) for piece in pieces]
        )
        scored.append((batch, table))
        return np.asarray(table["score"])

    for _ in islice(run_starts(step_batch.goals, evaluate, advanced.append), step_batch.steps):
        pass
    return StepBatchResult([start for start, _ in step_batch.goals], scored, sum(advanced))


def merge_steps(batch_results: Sequence[StepBatchResult]) -> Iterator[tuple[DesignBatch, ResultTable]]:
    """Yield the designs and results of every step, merged over step batches that ran in parallel."""
    for parts in zip_longest(*(result.scored for result in batch_results)):
        batches, tables = zip(*(part for part in parts if part is not None), strict=True)
        yield DesignBatch(*map(np.concatenate, zip(*batches, strict=True))), concat_tables(tables)


@contextmanager
def scorer_of(
    candidates: Candidates,
    options: SearchOptions,
    history: History,
    settings: Settings,
    cancellation: CancellationToken,
) -> Iterator[Scorer]:
    """Open a scorer on threads or on a cluster; raises InputError."""
    if settings.address:
        with Cluster(settings, SearchContext(candidates.grid, candidates.space, options)) as cluster:
            yield ClusterScorer(candidates, options, history, cluster, settings, cancellation)
    else:
        with ThreadPool(settings) as pool:
            yield Scorer(candidates, options, history, pool, settings, cancellation)


class ClusterScorer(Scorer):
    """A scorer on the workers of a cluster."""

    def __init__(
        self,
        candidates: Candidates,
        options: SearchOptions,
        history: History,
        cluster: Cluster,
        settings: Settings,
        cancellation: CancellationToken,
    ) -> None:
        """Set the candidates and the cluster, which shares the `SearchContext` of the candidates."""
        super().__init__(
            candidates, options, history, ThreadPool(settings._replace(jobs=1)), settings, cancellation
        )
        self.cluster = cluster

    def scored(self, batch: DesignBatch) -> ResultTable:
        """Score a batch, a small one in this process. One design always is: it compiles the kernels."""
        rows = batch.candidate.size
        first = rows if rows <= MIN_DESIGNS else 1
        local = super().scored(batch.take(np.arange(first)))
        size = min(self.batch_limit, max(MIN_DESIGNS, -(-rows // self.cluster.size)))
        pieces = [batch.take(first + rest) for rest in split_rows(rows - first, size)]
        every_candidate = np.arange(self.holdable.size)
        tasks = [
            ScoreTask(self._candidate_batch(every_candidate, piece.candidate), piece) for piece in pieces
        ]
        return concat_tables([local, *self.cluster.map(score_task, tasks, self.cancellation)])

    def _candidate_batch(self, alive: Ints, numbers: Ints) -> CandidateBatch:
        """Return candidates as a worker needs them; numbers: indices into `alive`."""
        number = np.unique(numbers)
        rows = alive[number]
        candidates = self.candidates
        extra_choices = take(candidates.extra_choices, rows)
        return CandidateBatch(
            number, candidates.point[rows], candidates.strategy[rows], extra_choices, self.holdable[rows]
        )

    def run_starts(
        self, alive: Ints, goals: Sequence[Goal], evaluate: Evaluate, advance: Advance
    ) -> Iterator[tuple[DesignBatch, Floats]]:
        """Run starts to their goals; steps that the history records are taken through `evaluate`."""
        steps = run_starts(goals, evaluate, advance)
        while self.history.num_consumed < self.history.num_recorded:
            known = next(steps, None)
            if known is None:
                return
            yield known
        while unfinished := [
            (start, goal) for start, goal in goals if start.steps < goal and not start.converged
        ]:
            batch_results = self.cluster.map(
                run_step_batch,
                self._step_batches(alive, unfinished),
                self.cancellation,
                lambda result: advance(result.advanced),
            )
            advanced = (start for result in batch_results for start in result.starts)
            for (start, _), new in zip(unfinished, advanced, strict=True):
                start.method, start.steps, start.converged = new.method, new.steps, new.converged
            for batch, results in merge_steps(batch_results):
                before, numbered = self.history.num_consumed, batch._replace(candidate=alive[batch.candidate])
                yield batch, self.record(numbered, self.add(numbered, results), before)

    def _step_batches(self, alive: Ints, unfinished: Sequence[Goal]) -> list[StepBatch]:
        """Split the unfinished starts of a rung into batches of a few starts and limited numbers of steps."""
        shares = len(self.candidates.space.keys)  # a step takes about as many designs
        steps = max(1, DESIGNS_PER_BATCH // (len(unfinished) * shares))
        size = max(1, min(self.batch_limit // shares, -(-len(unfinished) // self.cluster.size)))
        batches = [unfinished[begin : begin + size] for begin in range(0, len(unfinished), size)]
        return [
            StepBatch(
                self._candidate_batch(alive, np.array([start.candidate for start, _ in goals])),
                goals,
                steps,
                self.batch_limit,
            )
            for goals in batches
        ]
