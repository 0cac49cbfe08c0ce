"""Search on the workers of a Dask scheduler: what they are handed, and how it comes back in order.

A step of a search takes milliseconds, as a message does. So a worker takes some starts through many steps by
itself, and gives them back with all that they have asked for. Starts know nothing of each other before a rung
is over: put together step by step, in the order of starts, it is the history that one process writes.
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
from fastflow.analysis.search.optimizers.halving import Advance, DesignBatch, Evaluate, Goal, Start, walk
from fastflow.analysis.search.options import SearchOptions
from fastflow.analysis.search.scorer import FEWEST, Scorer, cut, score_designs, together
from fastflow.config.engine_settings import Settings
from fastflow.core.tables import Bools, Columns, Floats, Ints, Texts, take
from fastflow.engine.dataset.schema import ResultTable
from fastflow.engine.grid.grid import Grid
from fastflow.engine.run.workers import CancellationToken, Cluster, ThreadPool

TOGETHER = 16 * PART_ROWS
"""Designs of a stretch, about, which lie in memory until all are there; an interrupt loses them."""


class Subject(NamedTuple):
    """What a search is about: all that its workers have in common."""

    grid: Grid
    space: Space
    options: SearchOptions


class CandidateBatch(NamedTuple):
    """Some candidates as a worker needs them; shape (candidates,)."""

    number: Ints  # increasing
    point: Ints
    strategy: Texts
    beside: Columns
    holdable: Bools


class Piece(NamedTuple):
    """Designs to be scored."""

    whom: CandidateBatch
    batch: DesignBatch


class StepBatch(NamedTuple):
    """Starts to be taken towards their goals."""

    whom: CandidateBatch
    goals: Sequence[Goal]
    steps: int  # at most
    most: int  # designs scored at once


class Walked(NamedTuple):
    """What became of a stretch: its starts, and all designs that they have asked for."""

    starts: list[Start]
    scored: list[tuple[DesignBatch, ResultTable]]  # step by step
    advanced: int  # steps of starts


def score_piece(subject: Subject, piece: Piece) -> ResultTable:
    """Score designs; columns of shape (designs,)."""
    candidates = Candidates(
        grid=subject.grid,
        point=piece.whom.point,
        strategy=piece.whom.strategy,
        beside=piece.whom.beside,
        group=np.zeros_like(piece.whom.point),
        templates=np.empty((piece.whom.point.size, 0)),
        space=subject.space,
    )
    place = np.searchsorted(piece.whom.number, piece.batch.candidate)
    batch = piece.batch._replace(candidate=place)
    return score_designs(candidates, piece.whom.holdable, subject.options, batch)


def walk_stretch(subject: Subject, stretch: StepBatch) -> Walked:
    """Take starts towards their goals."""
    scored: list[tuple[DesignBatch, ResultTable]] = []
    advanced: list[int] = []

    def evaluate(batch: DesignBatch) -> Floats:
        pieces = [batch.take(rows) for rows in cut(batch.candidate.size, stretch.most)]
        table = together([score_piece(subject, Piece(stretch.whom, piece)) for piece in pieces])
        scored.append((batch, table))
        return np.asarray(table["score"])

    for _ in islice(walk(stretch.goals, evaluate, advanced.append), stretch.steps):
        pass
    return Walked([start for start, _ in stretch.goals], scored, sum(advanced))


def in_order(walked: Sequence[Walked]) -> Iterator[tuple[DesignBatch, ResultTable]]:
    """Yield every step of stretches that were walked beside each other, and its results."""
    for parts in zip_longest(*(one.scored for one in walked)):
        batches, tables = zip(*(part for part in parts if part is not None), strict=True)
        yield DesignBatch(*map(np.concatenate, zip(*batches, strict=True))), together(tables)


@contextmanager
def scorer_of(
    candidates: Candidates,
    options: SearchOptions,
    history: History,
    settings: Settings,
    watch: CancellationToken,
) -> Iterator[Scorer]:
    """Call together those who are to score, on threads or on a cluster; raises InputError."""
    if settings.address:
        with Cluster(settings, Subject(candidates.grid, candidates.space, options)) as cluster:
            yield ClusterScorer(candidates, options, history, cluster, settings, watch)
    else:
        with ThreadPool(settings) as crew:
            yield Scorer(candidates, options, history, crew, settings, watch)


class ClusterScorer(Scorer):
    """A scorer who has the workers of a cluster score."""

    def __init__(
        self,
        candidates: Candidates,
        options: SearchOptions,
        history: History,
        cluster: Cluster,
        settings: Settings,
        watch: CancellationToken,
    ) -> None:
        """Take what is scored, and by whom; the cluster shares the `Subject` of the candidates."""
        super().__init__(candidates, options, history, ThreadPool(settings._replace(jobs=1)), settings, watch)
        self.cluster = cluster

    def scored(self, batch: DesignBatch) -> ResultTable:
        """Score a batch; here if it is not worth a message. One design is always: it compiles the kernels."""
        rows = batch.candidate.size
        first = rows if rows <= FEWEST else 1
        here = super().scored(batch.take(np.arange(first)))
        size = min(self.most, max(FEWEST, -(-rows // self.cluster.size)))
        others = [batch.take(first + rest) for rest in cut(rows - first, size)]
        everybody = np.arange(self.holdable.size)
        pieces = [Piece(self._whom(everybody, piece.candidate), piece) for piece in others]
        return together([here, *self.cluster.map(score_piece, pieces, self.watch)])

    def _whom(self, alive: Ints, numbers: Ints) -> CandidateBatch:
        """Return what a worker needs to know of candidates; numbers: their places in `alive`."""
        number = np.unique(numbers)
        own = alive[number]
        every = self.candidates
        beside = take(every.beside, own)
        return CandidateBatch(number, every.point[own], every.strategy[own], beside, self.holdable[own])

    def walk(
        self, alive: Ints, goals: Sequence[Goal], evaluate: Evaluate, advance: Advance
    ) -> Iterator[tuple[DesignBatch, Floats]]:
        """Take starts to their goals; evaluate is asked what is known from before."""
        steps = walk(goals, evaluate, advance)
        while self.history.told < self.history.there:
            known = next(steps, None)
            if known is None:
                return
            yield known
        while left := [(start, goal) for start, goal in goals if start.steps < goal and not start.over]:
            walked = self.cluster.map(
                walk_stretch, self._stretches(alive, left), self.watch, lambda one: advance(one.advanced)
            )
            for (start, _), new in zip(left, (new for one in walked for new in one.starts), strict=True):
                start.method, start.steps, start.over = new.method, new.steps, new.over
            for batch, results in in_order(walked):
                before, own = self.history.told, batch._replace(candidate=alive[batch.candidate])
                yield batch, self.noted(own, self.add(own, results), before)

    def _stretches(self, alive: Ints, left: Sequence[Goal]) -> list[StepBatch]:
        """Cut what is left of a rung into stretches, of a few starts each, and of not too many steps."""
        shares = len(self.candidates.space.keys)  # a step takes about as many designs
        steps = max(1, TOGETHER // (len(left) * shares))
        size = max(1, min(self.most // shares, -(-len(left) // self.cluster.size)))
        goals = [left[begin : begin + size] for begin in range(0, len(left), size)]
        return [
            StepBatch(
                self._whom(alive, np.array([start.candidate for start, _ in some])), some, steps, self.most
            )
            for some in goals
        ]
