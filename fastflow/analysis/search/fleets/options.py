"""Options of a search over fleets, from `conf/search.yaml` and the command line, checked."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from fastflow.analysis.search.fleets.constraints import Constraint, read_constraints
from fastflow.analysis.search.fleets.measures import DEVICES, Measure, read_measure
from fastflow.config.list_keys import CONSTRAINTS
from fastflow.config.messages import key_of, one_of
from fastflow.core import units
from fastflow.core.errors import InputError
from fastflow.engine.dataset.schema import column_order
from fastflow.engine.grid import limits
from fastflow.engine.grid.run import Run, refuse_auto_devices
from fastflow.physics.workload.request_trace import KEY as TRACE
from fastflow.schema import ALL, find_result

PLAN = "plan"
OF_FLEETS = (CONSTRAINTS, PLAN)
"""Keys of a search over fleets alone."""
_OF_DESIGNS = ("method", "starts", "steps", "seed", "tolerance", "compare")
_OF_LOAD = (TRACE, "serve.trace_speed", "serve.num_requests", "serve.shared_prefix")
_PINNED, _OF_NETWORK = "chip.pinned.", ("intra_Bps", "inter_Bps")
PER_HOUR = ("devices", "usd_per_h", "system_W")
PER_TOKEN = ("token_usd", "usd_per_million_tokens", "joules_per_token")
"""Objectives that add up over the periods of a plan: times hours, or times the tokens of answers."""


class FleetOptions(NamedTuple):
    """Options of a search over fleets."""

    measures: tuple[Measure, ...]
    """The objective, and the second one of a front."""
    constraints: tuple[Constraint, ...]
    period_s: float
    """Length of a period of the plan [s]; 0: no plan."""

    @property
    def has_front(self) -> bool:
        """Whether there is a second objective."""
        return len(self.measures) > 1


def is_of_fleets(run: Run) -> bool:
    """Say whether a search is over fleets: for a trace, on chips that exist or with keys of fleets.

    Raises InputError for keys of fleets without a trace.
    """
    given = [key for key in OF_FLEETS if run.first.leaves.get(key) is not None]
    keys: list[Iterable[str]] = []
    if run.grid.served == ALL:  # what a point has is the same for all of its batch
        keys = [batch.columns for batch in run.grid.batches]
    has_trace = bool(keys) and all(TRACE in names for names in keys)
    if given and not has_trace:
        allowed = f"null without {TRACE}: it is of a search over fleets that serve a trace"
        raise InputError(given[0], run.first.leaves[given[0]], allowed)
    return has_trace and (bool(given) or all(map(_is_existing_chip, keys)))


def _is_existing_chip(keys: Iterable[str]) -> bool:
    """Say whether chips have pinned quantities, beyond the bandwidth of networks."""
    pinned = (key for key in keys if key.startswith(_PINNED))
    return any(key.split(".")[2] not in _OF_NETWORK for key in pinned)


def read_fleet_options(run: Run) -> FleetOptions:
    """Return the options of a search over fleets; raises InputError."""
    _refuse_keys(run)
    leaves, columns = run.first.leaves, _numbers(run)
    objective, second = leaves.get("objective"), leaves.get("pareto")
    objective = DEVICES if objective is None else objective
    measures: tuple[Measure, ...] = (read_measure("objective", objective, columns),)
    if second is not None:
        measures = (*measures, read_measure("pareto", second, columns))
        if measures[0] == measures[1]:
            raise InputError("pareto", second, f"an objective other than {measures[0].name}, or null")
    period_s = _period(leaves.get(PLAN))
    if period_s and measures[0].name not in (*PER_HOUR, *PER_TOKEN):
        allowed = f"{one_of((*PER_HOUR, *PER_TOKEN))} with a plan: these add up over its periods"
        raise InputError("objective", str(objective), allowed)
    return FleetOptions(measures, read_constraints(leaves.get(CONSTRAINTS), columns), period_s)


def _refuse_keys(run: Run) -> None:
    """Refuse keys that a search over fleets does not use, and loads that vary; raises InputError."""
    for key in map(key_of, run.first.overrides):
        if key in _OF_DESIGNS:
            allowed = "nothing here: a search over fleets has no shares of a chip to vary"
            raise InputError(key, str(run.first.leaves[key]), allowed)
    for key in _OF_LOAD:
        if key in run.grid.keys:
            raise InputError(key, "several values", "one value: fleets are compared under the same requests")
    if run.grid.report:
        raise InputError("report", run.grid.report, "null: a search over fleets has no study")
    if run.settings.address:
        allowed = "null: a search over fleets runs on threads of this machine"
        raise InputError("engine.address", run.settings.address, allowed)
    refuse_auto_devices(run, "a search over fleets")
    points = run.grid.points
    limits.check("points", f"{points:,}", points, limits.MAX_SEARCHED, "points of one search")


def _numbers(run: Run) -> list[str]:
    """Return the result columns of a grid that are numbers."""
    columns = ((name, find_result(name)) for name in column_order(run.grid) if name != "point")
    return [name for name, column in columns if column is not None and column.kind in ("float", "int")]


def _period(value: object) -> float:
    """Return the length of a period [s], 0 for no plan; raises InputError."""
    if value is None:
        return 0.0
    try:
        seconds = units.parse(str(value), "s")
    except ValueError as error:
        raise InputError(
            PLAN, str(value), f"the length of a period, such as '1 h', or null ({error})"
        ) from None
    if not 1.0 <= seconds < float("inf"):
        raise InputError(PLAN, str(value), "a period of 1 s or more, or null")
    return seconds
