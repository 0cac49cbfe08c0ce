"""Output of a search over fleets: the best fleets, the front, and the capacity plan with its totals."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pandas as pd

from fastflow.config.messages import pluralize
from fastflow.core import units
from fastflow.reporting.charts.fleet_search import differing
from fastflow.reporting.terminal.tables import (
    Part,
    console,
    listing,
    new_sheet,
    print_parts,
    quantity,
    records,
)

_MAX_FLEETS = 10
_RESULTS = ("devices", "ttft_p99_s", "tpot_p99_s", "usd_per_h", "joules_per_token")
_OF_PLAN = ("devices", "ttft_p99_s", "tpot_p99_s")
_HOUR = 3600.0
_MANY = 10.0  # device-hours, from which a tenth is enough


def show(
    ranking: pd.DataFrame, about: Mapping[str, Any], plan: pd.DataFrame | None, of_plan: Mapping[str, Any]
) -> None:
    """Print a search; about, of_plan: `fastflow.fleets` of the metadata of both tables."""
    print_parts(ranking_parts(ranking, about))
    if plan is not None:
        print_parts(plan_parts(plan, of_plan))


def ranking_parts(frame: pd.DataFrame, about: Mapping[str, Any]) -> Iterator[Part]:
    """Yield the best fleets, or the front, and how many were simulated; frame: of a ranking."""
    meets = frame[frame["meets_constraints"]]
    rows = meets[meets["on_front"]] if about["pareto"] and len(meets) else meets
    counts = f"{about['simulated']:,} of {pluralize(about['points'], 'configuration')}"
    note = f"{counts} simulated{stopped(about)}"
    note += "; bounds exclude the others" if about["points"] > about["simulated"] else ""
    if rows.empty:
        least = frame.head(_MAX_FLEETS)
        title = f"No fleet meets the constraints; the {len(least)} with the best {about['objective']}"
        names = [*differing(about, least), *result_columns(about, least), "missed_constraint"]
        yield listing(title, names, records(least)) if len(least) else "No fleet can meet the constraints"
        yield note
        return
    shown = rows.head(_MAX_FLEETS)
    if about["pareto"]:
        title = f"Front of {about['objective']} and {about['pareto']}: {pluralize(len(rows), 'fleet')}"
    else:
        title = f"Best fleets by {about['objective']}, of {len(meets):,} that meet the constraints"
    title += f", {len(shown)} shown" if len(shown) < len(rows) else ""
    keys = differing(about, shown)
    yield listing(title, [*keys, *result_columns(about, shown, keys)], records(shown))
    yield note


def stopped(about: Mapping[str, Any]) -> str:
    """Say how many simulations were stopped early; "" for none, as in datasets of older versions."""
    return f", {about['stopped']:,} of them stopped early" if about.get("stopped") else ""


def result_columns(about: Mapping[str, Any], frame: pd.DataFrame, keys: Sequence[str] = ()) -> list[str]:
    """Return the result columns to show: objectives, those of constraints, and some of every fleet."""
    constrained = [text.replace(">", "<").partition("<")[0] for text in about["constraints"]]
    names = [about["objective"], about["pareto"], *constrained, *_RESULTS]
    names = [name for name in dict.fromkeys(names) if name is not None and name in frame]
    return [name for name in names if not (name == "devices" and "system.devices" in keys)]


def plan_parts(frame: pd.DataFrame, about: Mapping[str, Any]) -> Iterator[Part]:
    """Yield a table by period, and the totals; frame: of a plan."""
    keys = differing(about, frame[frame["point"].notna()])
    results = [name for name in dict.fromkeys((*_OF_PLAN, about["objective"])) if name in frame]
    results = [name for name in results if not (name == "devices" and "system.devices" in keys)]
    heads = [("from", True), ("requests", True), ("per second", True), *((name, False) for name in keys)]
    heads += [(name.removesuffix("_s"), True) for name in results]
    sheet = new_sheet(f"Capacity plan: the best fleet by {about['objective']} for each period", heads)
    for row in records(frame.astype(object).where(frame.notna(), None)):
        start = units.show(float(row["period_start_s"]), "s") if row["period_start_s"] else "0"
        cells = [start, f"{row['period_requests']:,}", f"{row['arrivals_per_s']:.3g}"]
        if row["point"] is None:
            missing = "no requests" if row["period_requests"] == 0 else "none meets the constraints"
            sheet.add_row(*cells, missing)
        else:
            sheet.add_row(*cells, *(_cell(name, row[name]) for name in (*keys, *results)))
    yield sheet
    yield from _totals(frame, about)
    yield f"{pluralize(about['simulated'], 'simulation')} of periods{stopped(about)}"


def _cell(name: str, value: Any) -> str:
    """Write a value; whole numbers with gaps are floats in a frame."""
    return (
        f"{value:,.0f}"
        if name in ("devices", "system.devices") and value is not None
        else quantity(name, value)
    )


def totals_of(frame: pd.DataFrame) -> pd.DataFrame:
    """Return device-hours, cost [USD] and energy [J] of a plan and of its fixed fleet; a row each.

    NaN where a period with requests has no fleet. A period without requests needs none.
    """
    hours = frame["period_s"] / _HOUR
    empty = frame["period_requests"].eq(0)
    rows = {}
    for name, prefix in (("plan", ""), ("fixed fleet", "fixed_")):
        values = {
            column: frame[f"{prefix}{column}"].astype(float).mask(empty, 0.0) * hours
            for column in ("devices", "usd_per_h", "system_W")
        }
        if prefix:  # a fixed fleet is on in all periods
            values["devices"] = frame["fixed_devices"].astype(float).max() * hours
        rows[name] = {
            "device_hours": values["devices"].sum(skipna=False), "usd": values["usd_per_h"].sum(skipna=False),
            "energy_J": _HOUR * values["system_W"].sum(skipna=False),
        }  # fmt: skip
    return pd.DataFrame.from_dict(rows, orient="index")


def _totals(frame: pd.DataFrame, about: Mapping[str, Any]) -> Iterator[Part]:
    """Yield the totals of a plan and of the fixed fleet."""
    totals = totals_of(frame)
    sheet = new_sheet("Totals", [("", False), ("device-hours", True), ("cost", True), ("energy", True)])
    for name, row in totals.iterrows():
        known = row.notna().all()
        shown = (
            f"{row['device_hours']:,.{1 if row['device_hours'] >= _MANY else 3}f}",
            units.show(row["usd"], "USD"),
            units.show(row["energy_J"], "J"),
        )
        sheet.add_row(str(name), *(shown if known else ("-", "-", "-")))
    plan, fixed_fleet = totals.to_numpy().tolist()
    if totals.notna().all(axis=None):
        sheet.add_row("less", *(units.percent(1.0 - a / b) for a, b in zip(plan, fixed_fleet, strict=True)))
    yield sheet
    fixed = frame["fixed_point"].dropna()
    if fixed.empty:
        yield "No fixed fleet meets the constraints in every period"
    else:
        keys = ", ".join(f"{key} {quantity(key, value)}" for key, value in about["fixed"].items())
        yield f"Fixed fleet: point {int(fixed.iloc[0]):,} of the grid{f', {keys}' if keys else ''}"


def report(frame: pd.DataFrame, about: Mapping[str, Any], is_plan: bool) -> None:
    """Print a dataset of a search over fleets; about: `fastflow.fleets` of its metadata."""
    out = console()
    for part in plan_parts(frame, about) if is_plan else ranking_parts(frame, about):
        out.print(part)
