"""Tables of a search over fleets: every simulated configuration, the best first, and the capacity plan."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from fastflow.analysis.search.fleets.options import FleetOptions
from fastflow.analysis.search.fleets.plan import Plan, PlannedPeriod
from fastflow.analysis.search.fleets.simulated import Simulated
from fastflow.core.tables import Ints
from fastflow.engine.dataset import kinds
from fastflow.engine.dataset.schema import identity, result_field, schema_of
from fastflow.engine.grid.grid import Grid

ABOUT = "fastflow.fleets"
"""Key of the metadata of both tables: objectives, constraints, counts and swept keys, as JSON."""
_OBJECTIVES = ("objective", "second_objective")
_OF_PERIOD = ("period", "period_start_s", "period_s", "period_requests", "arrivals_per_s", "configurations")
_FIXED = ("devices", "usd_per_h", "system_W")
"""Columns that a plan has of the fixed fleet too."""


def ranking_table(simulated: Simulated, options: FleetOptions) -> pa.Table:
    """Return a row for each simulated fleet: those that meet the constraints first, then by objective.

    Of equal ones, that with the better second objective comes first, or else the first of the grid.
    """
    points = ranked(simulated)
    objectives = _OBJECTIVES[: len(options.measures)]
    front = set(simulated.front.tolist())
    rows = []
    for number, (point, row) in enumerate(zip(points.tolist(), simulated.rows(points.tolist()), strict=True)):
        first = {"rank": number + 1} | _objective_values(simulated, options, point)
        first |= {
            "meets_constraints": bool(simulated.meets[point]),
            "missed_constraint": simulated.missed[point],
        }
        if options.has_front:
            first["on_front"] = point in front
        rows.append(first | row)
    names = ["rank", *objectives, "meets_constraints", "missed_constraint"]
    names += ["on_front"] if options.has_front else []
    counts = {"simulated": int(simulated.is_known.sum()), "stopped": int(simulated.is_stopped.sum())}
    schema = _schema(simulated.problem.grid, names, options, kinds.FLEETS, counts)
    return _table(rows, schema)


def ranked(simulated: Simulated) -> Ints:
    """Return the simulated points in the order of the ranking."""
    points = np.flatnonzero(simulated.is_known)
    order = np.lexsort((points, *simulated.values[::-1, points], ~simulated.meets[points]))
    ranked_points: Ints = points[order]
    return ranked_points


def plan_table(plan: Plan, grid: Grid, options: FleetOptions) -> pa.Table:
    """Return a row for each period: its requests, its best fleet with all results, and the fixed fleet.

    Columns of fleets are null where no fleet meets the constraints.
    """
    rows = [_row_of_period(plan, number, planned, options) for number, planned in enumerate(plan.periods)]
    names = [
        *_OF_PERIOD,
        "objective",
        "fixed_point",
        "fixed_objective",
        *(f"fixed_{name}" for name in _FIXED),
    ]
    counts = {"simulated": sum(row["configurations"] for row in rows), "stopped": _stopped(plan)}
    schema = _schema(grid, names, options, kinds.PLAN, counts)
    about = json.loads(schema.metadata[ABOUT.encode()]) | {"fixed": _keys_of_fixed(plan, grid)}
    return _table(rows, schema.with_metadata({**schema.metadata, ABOUT.encode(): json.dumps(about).encode()}))


def _stopped(plan: Plan) -> int:
    """Return how many simulations of periods were stopped early."""
    simulated = (period.simulated for period in plan.periods)
    return sum(int(fleets.is_stopped.sum()) for fleets in simulated if fleets is not None)


def _keys_of_fixed(plan: Plan, grid: Grid) -> dict[str, Any]:
    """Return the swept keys of the fixed fleet with its values; {} without one."""
    simulated = next((period.simulated for period in plan.periods if period.simulated is not None), None)
    if simulated is None or plan.fixed < 0:
        return {}
    return {key: simulated.value(plan.fixed, key) for key in grid.keys}


def _row_of_period(plan: Plan, number: int, planned: PlannedPeriod, options: FleetOptions) -> dict[str, Any]:
    """Return the row of a period."""
    simulated, requests = planned.simulated, int(planned.period.requests.size)
    values = (number, planned.period.start_s, plan.length_s, requests, requests / plan.length_s)
    tried = 0 if simulated is None else int(simulated.is_known.sum())
    row: dict[str, Any] = dict(zip(_OF_PERIOD, (*values, tried), strict=True))
    if simulated is None:
        return row
    if plan.fixed >= 0:
        of_fixed = _objective_values(simulated, options._replace(measures=options.measures[:1]), plan.fixed)
        row |= {"fixed_point": plan.fixed, "fixed_objective": of_fixed["objective"]}
        row |= {f"fixed_{name}": simulated.value(plan.fixed, name) for name in _FIXED}
    if planned.best < 0:
        return row
    of_best = _objective_values(simulated, options._replace(measures=options.measures[:1]), planned.best)
    return row | of_best | simulated.rows([planned.best])[0]


def _objective_values(simulated: Simulated, options: FleetOptions, point: int) -> dict[str, float]:
    """Return the values of the objectives of a point, as their columns have them."""
    values = simulated.values[:, point].tolist()
    pairs = zip(_OBJECTIVES, options.measures, values, strict=False)
    return {name: measure.sign * value for name, measure, value in pairs}


def _schema(
    grid: Grid, names: Sequence[str], options: FleetOptions, kind: str, counts: Mapping[str, int]
) -> pa.Schema:
    """Return the schema of a table.

    names: of its columns before those of the grid; counts: of simulations.
    """
    fields = []
    units = dict(zip(_OBJECTIVES, options.measures, strict=False)) | {"fixed_objective": options.measures[0]}
    for name in names:
        field = result_field(name)
        if name in units:
            field = field.with_metadata({"unit": units[name].unit, "meaning": units[name].name})
        fields.append(field)
    about = {
        "objective": options.measures[0].name,
        "pareto": options.measures[1].name if options.has_front else None,
        "constraints": [constraint.text for constraint in options.constraints],
        "points": grid.points, **counts, "keys": grid.keys,
    }  # fmt: skip
    metadata = identity(
        grid, kind, about["objective"], about["pareto"], about["constraints"], options.period_s
    )
    return pa.schema([*fields, *schema_of(grid)], metadata={**metadata, ABOUT: json.dumps(about)})


def _table(rows: Sequence[Mapping[str, Any]], schema: pa.Schema) -> pa.Table:
    """Return rows as a table; NaN and missing values become null."""
    columns = {name: [row.get(name) for row in rows] for name in schema.names}
    arrays = [pa.array(columns[field.name], type=field.type, from_pandas=True) for field in schema]
    return pa.Table.from_arrays(arrays, schema=schema)
