"""Ranges of shares, and candidates, that are within a tolerance of the best design of a search."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from fastflow.analysis.search.optimizers.halving import DesignBatch
from fastflow.analysis.search.optimizers.objective import LACKS_MEMORY
from fastflow.analysis.search.optimizers.ranges import Ranges, ranges_of
from fastflow.analysis.search.scorer import Scorer
from fastflow.core.errors import InputError
from fastflow.core.tables import Bools, Floats, Ints
from fastflow.engine.dataset.folder import FRONT, RANKING
from fastflow.engine.dataset.kinds import RANKING as RANKED
from fastflow.engine.dataset.reader import Dataset, find

KEY = "fastflow.ranges"
"""Key of the ranges in the metadata of a ranking."""


class WithinTolerance(NamedTuple):
    """Ranges of the shares of best designs, as stored with a ranking."""

    tolerance: float
    of: Mapping[int, Mapping[str, tuple[float, float]]]
    """Candidate to key of a share to the lowest and the highest value."""
    least: Mapping[int, float]
    """Candidate to the least objective around its best design."""
    tried: int = 0
    """Designs that were scored for the ranges."""

    @property
    def written(self) -> str:
        """The ranges as JSON, for the metadata of a ranking."""
        return json.dumps(self._asdict())


def read_ranges(text: str) -> WithinTolerance:
    """Return ranges from the metadata of a ranking; none where it has none.

    Raises ValueError, TypeError, KeyError or AttributeError where they are damaged.
    """
    if not text:
        return WithinTolerance(0.0, {}, {})
    fields = json.loads(text)
    return WithinTolerance(
        float(fields["tolerance"]),
        {
            int(candidate): {str(key): (float(low), float(high)) for key, (low, high) in ranges.items()}
            for candidate, ranges in fields["of"].items()
        },
        {int(candidate): float(least) for candidate, least in fields["least"].items()},
        int(fields["tried"]),
    )


def ranking_of_search(dataset: Dataset) -> Dataset | None:
    """Return the ranking of the search of a history, front or ranking; None where it is missing."""
    if dataset.kind == RANKED:
        return dataset
    try:
        ranking = find(f"{dataset.folder.shown.rstrip('/').removesuffix(FRONT)}{RANKING}")
    except InputError:
        return None
    return ranking if ranking.about("fingerprint") == dataset.about("fingerprint") else None


def find_ranges(scorer: Scorer, left_out: Bools) -> WithinTolerance:
    """Score designs around the best feasible design of every group, and return their ranges.

    They are not added to the history, which a resumed search must repeat. left_out: which candidates were not
    searched, (candidates,).
    """
    candidates, tolerance = scorer.candidates, scorer.options.tolerance
    order = in_order(candidates.group, scorer.best, left_out)
    heads = order[np.unique(candidates.group[order], return_index=True)[1]]
    history = scorer.history.table()
    rows = scorer.best_row[heads]
    shares = np.column_stack([history[key].to_numpy() for key in candidates.space.keys])
    objective, candidate = (history[name].to_numpy() for name in ("objective", "candidate"))
    feasible = history["score"].to_numpy() < LACKS_MEMORY
    is_timed = feasible[rows]
    heads, rows = heads[is_timed], rows[is_timed]
    if not heads.size or tolerance == 0.0:
        return WithinTolerance(tolerance, {}, {})
    best = shares[rows]
    limit = np.full(candidates.point.size, np.nan)
    limit[heads] = objective[rows] * (1.0 + tolerance)
    problem_of = np.full(limit.size, -1)
    problem_of[heads] = np.arange(heads.size)
    within = np.flatnonzero(feasible & (objective <= limit[candidate]))
    low, high = best.copy(), best.copy()
    np.minimum.at(low, problem_of[candidate[within]], shares[within])
    np.maximum.at(high, problem_of[candidate[within]], shares[within])

    tried = 0

    def measure(problem: Ints, designs: Floats) -> Floats:
        nonlocal tried
        tried += problem.size
        zeros = np.zeros_like(problem)
        scored = scorer.scored(DesignBatch(heads[problem], zeros, zeros, designs))
        is_feasible = np.asarray(scored["score"]) < LACKS_MEMORY
        return np.where(is_feasible, np.asarray(scored["objective"]), np.inf)

    num_scored = int(scorer.num_scored.sum()) // heads.size
    ranges = ranges_of(best, objective[rows], (low, high), candidates.space, num_scored, tolerance, measure)
    return _with_tolerance(heads, candidates.space.keys, ranges, tolerance)._replace(tried=tried)


def in_order(group: Ints, score: Floats, left_out: Bools) -> Ints:
    """Return candidates by group; within a group the best first, those left out last."""
    return np.lexsort((score, left_out, group))


def _with_tolerance(heads: Ints, keys: tuple[str, ...], ranges: Ranges, tolerance: float) -> WithinTolerance:
    of = {
        candidate: dict(zip(keys, zip(low, high, strict=True), strict=True))
        for candidate, low, high in zip(
            heads.tolist(), ranges.low.tolist(), ranges.high.tolist(), strict=True
        )
    }
    return WithinTolerance(tolerance, of, dict(zip(heads.tolist(), ranges.least.tolist(), strict=True)))
