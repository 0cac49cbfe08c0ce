"""Columns of a search over fleets, and of its capacity plan, in addition to those of points that serve."""

from __future__ import annotations

from fastflow.core.field import Column

FLEETS: tuple[Column, ...] = (
    Column(
        "meets_constraints", "bool", "", "whether a fleet meets the constraints of its search, and serve.slo"
    ),
    Column("missed_constraint", "str", "", 'the first constraint that a fleet misses; "": it meets all'),
    Column("on_front", "bool", "", "whether no other fleet is better in both objectives of its search"),
    Column("period", "int", "", "number of a period of a capacity plan, from 0"),
    Column(
        "period_start_s", "float", "s", "when a period of a capacity plan starts, after the first arrival"
    ),
    Column("period_s", "float", "s", "length of a period of a capacity plan"),
    Column("period_requests", "int", "", "requests that arrive in a period of a capacity plan"),
    Column(
        "arrivals_per_s", "float", "1/s", "requests that arrive in a period of a capacity plan, per second"
    ),
    Column(
        "configurations", "int", "", "number of fleets that were simulated for a period of a capacity plan"
    ),
    Column("fixed_point", "int", "", "the fixed fleet of a capacity plan: its point in the grid"),
    Column("fixed_objective", "float", "", "the fixed fleet of a capacity plan: its objective in a period"),
    Column("fixed_devices", "int", "", "the fixed fleet of a capacity plan: number of devices"),
    Column(
        "fixed_usd_per_h", "float", "USD", "the fixed fleet of a capacity plan: its usd_per_h in a period"
    ),
    Column("fixed_system_W", "float", "W", "the fixed fleet of a capacity plan: its system_W in a period"),
)
