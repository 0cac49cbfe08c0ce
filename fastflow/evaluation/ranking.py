"""Ranking of all strategies of a point, the best first."""

from __future__ import annotations

from collections.abc import Sequence

from fastflow.configuration.composer import Composer
from fastflow.errors import CompositionError
from fastflow.grid.plan import plan
from fastflow.grid.run import Run
from fastflow.parallelism.strategy import AUTO

_KEY = "parallel.strategy"


def asks_for_the_best(run: Run) -> bool:
    """Say whether the (first) point of a run leaves the strategy to fastflow."""
    return bool(run.grid.first_inputs()[_KEY][0] == AUTO)


def ranking_of(composer: Composer, overrides: Sequence[str], run: Run) -> Run:
    """Return the run over all strategies for the one point of another run, which overrides describe.

    Raises InputError, also where that run has several points.
    """
    from fastflow.optimize.strategies import rank

    if run.grid.points != 1:
        raise CompositionError(f"a ranking takes one point, and these overrides make {run.grid.points:,}")
    strategies = next(rank(run.grid.first_inputs()))
    own = [text for text in overrides if text.lstrip("+").partition("=")[0] != _KEY]
    return plan(composer, [*own, f"{_KEY}={','.join(strategies)}"], {})
