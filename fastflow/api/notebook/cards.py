"""Points of a grid as HTML: one as a card, several as a line on the best and a table."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

import pandas as pd
import pyarrow as pa
from rich.markup import escape

from fastflow.api.notebook.markup import card
from fastflow.api.notebook.schema import axes_of, served_of
from fastflow.config.messages import counted
from fastflow.reporting.terminal import point, serving
from fastflow.reporting.terminal.cost import EACH, cost_sheet, prices_of
from fastflow.reporting.terminal.grid import (
    Digest,
    lacking,
    results_of,
    title_of,
    with_bands,
    with_limits,
    with_values,
    with_winners,
)
from fastflow.reporting.terminal.percentiles import band_sheet, has_bands
from fastflow.reporting.terminal.tables import (
    Part,
    assumption_lines,
    listing,
    quantity,
    records,
    validation_lines,
)
from fastflow.reporting.terminal.training import training_sheets
from fastflow.schema import ALL, band_of, find_result

_ALSO = (("energy_J", "footprint_B"), ("joules_per_token", "footprint_B"))
"""Results that a notebook has room for, beside those of the screen: of iterations, and of servers."""
_MOST, _FIRST = 20, 10


def row_of(frame: pd.DataFrame, place: int) -> dict[str, Any]:
    """Return a row with whole numbers as such: of a column with gaps pandas makes them floats."""
    row = records(frame.iloc[place : place + 1])[0]
    for name, value in row.items():
        if isinstance(value, float) and value.is_integer():
            column = find_result(name)
            if column is not None and column.kind == "int":
                row[name] = int(value)
    return row


def one(frame: pd.DataFrame) -> str:
    """Return a card of one point: its time, what limits it, where time goes, its chip and its memory."""
    row = row_of(frame, 0)
    asked = escape(" ".join(_overrides(frame)))
    serves = served_of(frame) == ALL or not isinstance(row.get("bound_by"), str)
    if pd.isna(row["time_s"]):
        return card("[bold red]No time can be predicted[/]", [serving.title(row), escape(row["reason"])])
    bands = [band_sheet(row)] if has_bands(row) else []
    inputs = _known(frame, row)
    more: list[tuple[str, Iterable[Part]]] = [("Cost", [cost_sheet(row, inputs)])]
    if serves:
        first, rates, *others = serving.served_sheets(row, serving.NO_LIMITS)
        chip = point.chip_sheet(row, point.levels_of(row), serving.chip_title(row))
        state = serving.state_of(row, _requests(frame))
        parts = [serving.title(row), *serving.conclusion(row), *state, first, rates, *bands, chip]
        more[:0] = [("Where the time goes, memory", others)]
    else:
        chip = point.chip_sheet(row, point.levels_of(row))
        sheets = training_sheets(row, inputs) if point.is_stacked(row) else (point.phase_sheet(row),)
        parts = [*point.title_parts(row), *point.conclusion(row), *sheets[:2], *bands, chip]
        if len(sheets) > 2:
            more[:0] = [("Memory", sheets[2:])]
        if row["devices"] > 1:
            more.append(("Placement", [point.placement_sheet(row)]))
    more.append(("Asked for", [asked or "nothing: all is as usual"]))
    return card(_headline(row, serves), parts, more)


def _requests(frame: pd.DataFrame) -> int:
    """Return how many requests a frame was asked with, 0 where it does not say."""
    given = [text.partition("=")[2] for text in _overrides(frame) if text.startswith("serve.requests=")]
    return int(given[-1]) if given and given[-1].isdigit() else 0


def _known(frame: pd.DataFrame, row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the inputs of a row that say what its cost is and how long it trains, as its frame says them."""
    asked = _overrides(frame)
    each = [text.partition("=")[2] for text in asked if text.startswith(f"{EACH}=")]
    is_each = ["", *each][-1].strip("'\"0.") != ""  # it is no zero
    return {"cost.name": str(row.get("cost", prices_of(asked))), EACH: float(is_each)}


def _overrides(frame: pd.DataFrame) -> list[str]:
    """Return what a frame was asked with."""
    found: list[str] = json.loads(frame.attrs.get("fastflow.overrides", "[]"))
    return found


def _headline(row: Mapping[str, Any], serves: bool) -> str:
    """Say in a line what a point comes to."""
    fits = "" if row["feasible"] else ", [bold red]not feasible[/]"
    if not serves:
        rate = row.get("tokens_per_s")
        tokens = f", {quantity('tokens_per_s', rate)} tokens" if rate is not None and rate == rate else ""
        time = f"[bold]{quantity('time_s', row['time_s'])}[/] an iteration"
        return f"{time}{tokens}, bound by {row['bound_by']}{fits}"
    told = {
        "tokens_per_s": "output tokens", "prefill_tokens_per_s": "tokens of prompts",
        "ttft_s": "to the first token", "tpot_s": "per further token",
    }  # fmt: skip
    has = [name for name in told if row.get(name) is not None and row[name] == row[name]]
    if "tokens_per_s" in has and "prefill_tokens_per_s" in has:
        has.remove("prefill_tokens_per_s")
    words = [f"{quantity(name, row[name])} {told[name]}" for name in has]
    return f"[bold]{words[0]}[/]{''.join(f', {more}' for more in words[1:])}{fits}"


def several(frame: pd.DataFrame) -> str:
    """Return points as a line on the best, and a table of what varies and of the main results."""
    served = served_of(frame)
    serves = served == ALL
    digest = Digest(serves)
    digest.add(pa.Table.from_pandas(frame[digest.needs], preserve_index=False))
    results = results_of(served, "tokens_per_s_per_device" in frame)
    results[-1:-1] = [name for name in _ALSO[serves] if name in frame and name not in results]
    if band_of("time_s")[0] in frame:
        results = with_bands(results)

    def row(place: int) -> dict[str, Any]:
        found = row_of(frame, place)
        return {name: None if value != value else value for name, value in found.items()}

    is_long = len(frame) > _MOST
    best = [row(place) for place in digest.best]
    head = [row(place) for place in range(min(len(frame), _FIRST if is_long else _MOST))]
    results = with_limits(results, [*head, *best])
    if serves:
        results = with_values(results, [*head, *best])
    winners = with_winners(axes_of(frame), [*head, *best])
    columns = [*winners, *(name for name in results if name not in winners)]
    good = int(frame["feasible"].sum())
    about = [*head, *best]
    lines = [*lacking(digest, len(frame), row), *assumption_lines(about), *validation_lines(about)]
    begin = listing(f"First {_FIRST} of {len(frame):,} points" if is_long else "", columns, head)
    is_ranked = digest.best == list(range(len(digest.best)))
    first = [listing(title_of(serves, good > 0), columns, best)] if is_long and not is_ranked else []
    line = f"[bold]{counted(len(frame), 'point')}[/], {good:,} feasible"
    return card(
        f"{line}. {_best(best[0], winners, serves)}", [*first, *lines, begin] if first else [begin, *lines]
    )


def _best(row: Mapping[str, Any], names: Iterable[str], serves: bool) -> str:
    """Say which point is the best, and why."""
    if row["time_s"] is None:
        return "None has a time"
    what = ", ".join(f"{name} {quantity(name, row[name])}" for name in names if row[name] not in (None, ""))
    return f"Best: {escape(what)}: {_headline(row, serves or row.get('bound_by') is None)}"
