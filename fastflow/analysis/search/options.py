"""Options of a search, from `conf/search.yaml` and the command line, checked."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

from fastflow.analysis.search.candidates import COMPARE
from fastflow.analysis.search.optimizers.halving import Rules
from fastflow.analysis.search.optimizers.methods import METHODS, defaults
from fastflow.analysis.search.optimizers.objective import INVERSES, OBJECTIVES
from fastflow.config.messages import one_of
from fastflow.core.errors import InputError

WEIGHTS = 9  # of a front, by default


class SearchOptions(NamedTuple):
    """Options of a search, as in `conf/search.yaml`."""

    rules: Rules
    objective: str
    pareto: str | None
    compare: str
    tolerance: float
    """Relative, of the objective: designs within it count as good as the best design."""

    @property
    def written(self) -> str:
        """All options that a history depends on, as overrides."""
        fields = self.rules._asdict() | {
            "objective": self.objective,
            "pareto": self.pareto,
            "compare": self.compare,
        }
        return " ".join(f"{key}={'null' if value is None else value}" for key, value in fields.items())


def read_options(section: Mapping[str, Any]) -> SearchOptions:
    """Read the options of the search from a configuration; raises InputError."""
    method = _choice(section, "method", METHODS)
    starts, steps = defaults(method)
    if section.get("pareto") is not None:
        starts = max(starts, WEIGHTS)
    rules = Rules(
        method=method,
        starts=starts if section.get("starts") is None else _whole(section, "starts", 1),
        steps=steps if section.get("steps") is None else _whole(section, "steps", 1),
        seed=_whole(section, "seed", 0, ""),
    )
    objective = "time" if section.get("objective") is None else _objective(section, "objective")
    pareto = None if section.get("pareto") is None else _objective(section, "pareto")
    if pareto == objective:
        raise InputError("pareto", pareto, f"an objective other than {objective}, or null")
    if pareto is not None and rules.starts < 2:
        raise InputError("starts", rules.starts, "at least 2 with pareto, one for each end of the front")
    return SearchOptions(
        rules=rules,
        objective=objective,
        pareto=pareto,
        compare=_choice(section, "compare", COMPARE),
        tolerance=_tolerance(section),
    )


def _choice(section: Mapping[str, Any], key: str, among: Collection[str]) -> str:
    value = section.get(key)
    if not isinstance(value, str) or value not in among:
        raise InputError(key, "null" if value is None else value, one_of(among))
    return value


def _objective(section: Mapping[str, Any], key: str) -> str:
    """Return an objective by its name, or by the result column that is largest where it is smallest."""
    value = section.get(key)
    named = {key: INVERSES[value]} if isinstance(value, str) and value in INVERSES else section
    return _choice(named, key, OBJECTIVES)


def _tolerance(section: Mapping[str, Any]) -> float:
    value = section.get("tolerance")
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0.0 <= value < 1.0:
        allowed = "a number from 0 to 1, without 1: relative to the best objective; 0 for no ranges"
        raise InputError("tolerance", "null" if value is None else value, allowed)
    return float(value)


def _whole(section: Mapping[str, Any], key: str, least: int, otherwise: str = ", or null") -> int:
    value = section.get(key)
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= 1_000_000:
        shown = "null" if value is None else value
        raise InputError(key, shown, f"a whole number from {least} to 1,000,000{otherwise}")
    return value
