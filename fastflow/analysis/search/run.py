"""Run of a search: screened candidates are searched, every design is kept, the best are selected."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import NamedTuple

import numpy as np

from fastflow.analysis.search.candidates import Candidates, candidates_of
from fastflow.analysis.search.cluster import scorer_of
from fastflow.analysis.search.history import History
from fastflow.analysis.search.optimizers.halving import steps_of, successive_halving
from fastflow.analysis.search.optimizers.objective import (
    CARBON_PER_TOKEN,
    OBJECTIVES,
    OF_TOKENS,
    PER_SITE_JOULE,
    PER_TOKEN,
)
from fastflow.analysis.search.options import SearchOptions
from fastflow.analysis.search.ranges import WithinTolerance, find_ranges
from fastflow.analysis.search.scorer import schema_of_history
from fastflow.analysis.search.screening import is_left_out, screen
from fastflow.config.messages import one_of, pluralize
from fastflow.core.errors import InputError
from fastflow.core.tables import Bools, Columns, Floats, Ints
from fastflow.engine.grid.run import Run
from fastflow.engine.run.workers import CancellationToken, Lost, interruptible
from fastflow.performance.precompile import SEARCH, compile_ahead
from fastflow.physics.workload import has_layer_runs
from fastflow.schema import ALL
from fastflow.schema.cost import ITERATION


class SearchResult(NamedTuple):
    """Result of a search. The first rows of its history are the configured breakdowns of the candidates."""

    candidates: Candidates
    options: SearchOptions
    history: History
    best: Ints  # each candidate's best design, as a row of the history
    score: Floats  # of the best design by the (first) objective
    left_out: Columns  # `reason` and `reason_code` of candidates that were not searched, "" of others
    num_scored: Ints  # scored designs of each candidate
    ranges: WithinTolerance  # of the shares of the best designs

    @property
    def is_left_out(self) -> Bools:
        """Whether a candidate was not searched, (candidates,)."""
        return is_left_out(self.left_out)


_OF_ITERATION = {PER_TOKEN: ITERATION.name, CARBON_PER_TOKEN: "carbon_g", PER_SITE_JOULE: "energy"}
"""Objectives of tokens, and the same of an iteration."""


def _check_objectives(run: Run, options: SearchOptions) -> None:
    """Refuse objectives of tokens where some point does not serve; raises InputError."""
    for key, objective in (("objective", options.objective), ("pareto", options.pareto)):
        if objective == ITERATION.name and run.grid.served:
            raise InputError(key, objective, f"{PER_TOKEN}, or another objective, where a point serves")
        if objective in _OF_ITERATION and not _has_tokens(run):
            raise InputError(
                key, objective, f"{_OF_ITERATION[objective]}, or another objective, of a model without tokens"
            )
        if objective in OF_TOKENS and run.grid.served != ALL:
            others = one_of([name for name in OBJECTIVES if name not in OF_TOKENS])
            raise InputError(key, objective, f"{others} where serve=none")


def _has_tokens(run: Run) -> bool:
    """Say whether all points are of models that have tokens."""
    shares = run.grid.shares(0, run.grid.points)
    return run.grid.has_layer_runs and all(
        has_layer_runs(run.grid.inputs(share, "model.")) for share in shares
    )


def search_designs(
    run: Run,
    options: SearchOptions,
    output: str | None,
    begin: Callable[[int, int, int], None] = lambda candidates, steps, num_recorded: None,
    advance: Callable[[int], None] = lambda steps: None,
) -> SearchResult:
    """Search the best designs of a run's points; raises InputError.

    output: the folder or URL of the history, from which an interrupted search resumes; None keeps none.
    begin: called with the numbers of candidates and steps, and of designs recorded by an earlier run.
    """
    _check_objectives(run, options)
    if run.grid.served != ALL:
        compile_ahead(run.grid.first_inputs(), SEARCH)
    candidates = candidates_of(run.grid, options.compare)
    history = History(output, schema_of_history(candidates, options))
    cancellation = CancellationToken()
    scorer_context = scorer_of(candidates, options, history, run.settings, cancellation)
    with _keep_history(history, run.settings.address), interruptible(cancellation), scorer_context as scorer:
        screening_scores, left_out = screen(scorer)
        alive = np.flatnonzero(~is_left_out(left_out))
        sizes = np.unique(candidates.group[alive], return_counts=True)[1].tolist()
        begin(alive.size, steps_of(sizes, options.rules, screening_scores.shape[1]), history.num_recorded)
        successive_halving(
            candidates.templates[alive],
            candidates.space,
            candidates.group[alive],
            screening_scores[alive],
            options.rules,
            lambda batch: scorer(batch._replace(candidate=alive[batch.candidate])),
            advance,
            partial(scorer.run_starts, alive),
        )
        history.flush()
        ranges = find_ranges(scorer, is_left_out(left_out))
    return SearchResult(
        candidates=candidates,
        options=options,
        history=history,
        best=scorer.best_row,
        score=scorer.best,
        left_out=left_out,
        num_scored=scorer.num_scored,
        ranges=ranges,
    )


@contextmanager
def _keep_history(history: History, address: str) -> Iterator[None]:
    """Keep scored designs unless the input was wrong; say where after an interrupt or a loss of workers."""
    try:
        yield
    except BaseException as error:
        if not isinstance(error, InputError):
            history.flush()
        history.discard()
        notice = ""
        if history.folder is not None and history.written:
            where = history.folder.shown
            notice = (
                f"{pluralize(history.num_consumed, 'design')} kept in {where}; "
                f"the same command with output={where} resumes from there"
            )
        if isinstance(error, Lost):
            raise InputError(
                "engine.address", address, "; ".join(filter(None, (str(error), notice)))
            ) from None
        if isinstance(error, KeyboardInterrupt) and notice:
            raise KeyboardInterrupt(notice) from None
        raise
