"""The study of all strategies of a point, best first."""

from __future__ import annotations

from collections.abc import Sequence

from fastflow.engine.config import Composer
from fastflow.engine.plan import Study, plan
from fastflow.errors import CompositionError
from fastflow.parallelism.strategy import AUTO

_KEY = "parallel.strategy"


def asks_for_the_best(study: Study) -> bool:
    """Say whether the (first) point of a study leaves the strategy to fastflow."""
    return bool(study.grid.first_inputs()[_KEY][0] == AUTO)


def ranking_of(composer: Composer, overrides: Sequence[str], study: Study) -> Study:
    """Return the study of all strategies for the one point of another study, which overrides describe.

    Raises InputError, also where that study has several points.
    """
    from fastflow.optimize.strategies import rank

    if study.grid.points != 1:
        raise CompositionError(f"a ranking is of one point, not of {study.grid.points:,}")
    strategies = next(rank(study.grid.first_inputs()))
    own = [text for text in overrides if text.lstrip("+").partition("=")[0] != _KEY]
    return plan(composer, [*own, f"{_KEY}={','.join(strategies)}"], {})
