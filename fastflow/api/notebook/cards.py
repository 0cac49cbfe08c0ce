"""Points of a grid as HTML: a single point as a card, several as a line on the best and a table."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

import pandas as pd
import pyarrow as pa
from rich.markup import escape

from fastflow.api.notebook.markup import card
from fastflow.api.notebook.schema import axes_of, served_points
from fastflow.config.messages import pluralize
from fastflow.reporting.terminal import latencies, point, serving
from fastflow.reporting.terminal.cost import TOKENS_PER_PARAMETER, cost_sheet, price_list_name
from fastflow.reporting.terminal.digest import Digest, best_title, infeasible_lines
from fastflow.reporting.terminal.grid_columns import present_results, shown_results, with_bands, with_winners
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

_EXTRA_RESULTS = (("energy_J", "footprint_B"), ("joules_per_token", "footprint_B"))
"""Further results in a notebook, which a terminal has no room for: of iterations, and of servers."""
_MAX_ROWS, _FIRST = 20, 10


def row_of(frame: pd.DataFrame, index: int) -> dict[str, Any]:
    """Return a row with whole numbers as int: pandas holds columns with gaps as floats."""
    row = records(frame.iloc[index : index + 1])[0]
    for name, value in row.items():
        if isinstance(value, float) and value.is_integer():
            column = find_result(name)
            if column is not None and column.kind == "int":
                row[name] = int(value)
    return row


def point_card(frame: pd.DataFrame) -> str:
    """Return a card of one point: its time, its limiter, the breakdown of time, its chip and its memory."""
    row = row_of(frame, 0)
    overrides = escape(" ".join(_overrides(frame)))
    serves = served_points(frame) == ALL or not isinstance(row.get("bound_by"), str)
    if pd.isna(row["time_s"]):
        return card("[bold red]No time can be predicted[/]", [serving.title(row), escape(row["reason"])])
    bands = [band_sheet(row)] if has_bands(row) else []
    inputs = _cost_inputs(frame, row)
    folded: list[tuple[str, Iterable[Part]]] = [("Cost", [cost_sheet(row, inputs)])]
    if serves:
        times, rates, *sheets_below = serving.served_sheets(row, latencies.NO_LIMITS)
        chip_sheet = point.chip_sheet(row, point.num_levels(row), serving.chip_title(row))
        state = serving.stationarity_lines(row, _num_requests(frame, row))
        parts = [
            serving.title(row),
            *serving.conclusion(row, inputs),
            *state,
            times,
            *latencies.group_sheets(row),
            rates,
            *bands,
            chip_sheet,
        ]
        folded[:0] = [("Where the time goes, memory", sheets_below)]
    else:
        chip_sheet = point.chip_sheet(row, point.num_levels(row))
        sheets = training_sheets(row, inputs) if point.is_transformer(row) else (point.phase_sheet(row),)
        parts = [*point.title_parts(row), *point.conclusion(row), *sheets[:2], *bands, chip_sheet]
        if len(sheets) > 2:
            folded[:0] = [("Memory", sheets[2:])]
        if row["devices"] > 1:
            folded.append(("Placement", [point.placement_sheet(row)]))
    folded.append(("Overrides", [overrides or "none: every key has its default"]))
    return card(_headline(row, serves), parts, folded)


def _num_requests(frame: pd.DataFrame, row: Mapping[str, Any]) -> int:
    """Return serve.num_requests of a row: of its column where it is swept, or of its frame's overrides."""
    values = [text.partition("=")[2] for text in _overrides(frame) if text.startswith("serve.num_requests=")]
    value = str(row.get("serve.num_requests", ["0", *values][-1]))
    return int(value) if value.isdigit() else 0


def _cost_inputs(frame: pd.DataFrame, row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the inputs that set the price list and the training tokens of a row, from its frame."""
    overrides = _overrides(frame)
    values = [text.partition("=")[2] for text in overrides if text.startswith(f"{TOKENS_PER_PARAMETER}=")]
    has_tokens = ["", *values][-1].strip("'\"0.") != ""  # not zero
    return {
        "cost.name": str(row.get("cost", price_list_name(overrides))),
        TOKENS_PER_PARAMETER: float(has_tokens),
    }


def _overrides(frame: pd.DataFrame) -> list[str]:
    """Return the overrides of a frame."""
    overrides: list[str] = json.loads(frame.attrs.get("fastflow.overrides", "[]"))
    return overrides


def _headline(row: Mapping[str, Any], serves: bool) -> str:
    """Return the main results of a point in a line."""
    fits = "" if row["feasible"] else ", [bold red]not feasible[/]"
    if not serves:
        rate = row.get("tokens_per_s")
        tokens = f", {quantity('tokens_per_s', rate)} tokens" if rate is not None and rate == rate else ""
        time = f"[bold]{quantity('time_s', row['time_s'])}[/] an iteration"
        return f"{time}{tokens}, bound by {row['bound_by']}{fits}"
    labels = {
        "tokens_per_s": "output tokens", "prefill_tokens_per_s": "tokens of prompts",
        "ttft_s": "to the first token", "tpot_s": "per further token",
    }  # fmt: skip
    present = [name for name in labels if row.get(name) is not None and row[name] == row[name]]
    if "tokens_per_s" in present and "prefill_tokens_per_s" in present:
        present.remove("prefill_tokens_per_s")
    texts = [f"{quantity(name, row[name])} {labels[name]}" for name in present]
    return f"[bold]{texts[0]}[/]{''.join(f', {text}' for text in texts[1:])}{fits}"


def grid_card(frame: pd.DataFrame) -> str:
    """Return points as a line on the best, and a table of the axes and the main results."""
    served = served_points(frame)
    serves = served == ALL
    digest = Digest(serves)
    digest.add(pa.Table.from_pandas(frame[digest.needs], preserve_index=False))
    results = shown_results(served, "tokens_per_s_per_device" in frame)
    results[-1:-1] = [name for name in _EXTRA_RESULTS[serves] if name in frame and name not in results]
    if band_of("time_s")[0] in frame:
        results = with_bands(results)

    def row(index: int) -> dict[str, Any]:
        record = row_of(frame, index)
        return {name: None if value != value else value for name, value in record.items()}

    is_long = len(frame) > _MAX_ROWS
    best = [row(index) for index in digest.best]
    head = [row(index) for index in range(min(len(frame), _FIRST if is_long else _MAX_ROWS))]
    shown_rows = [*head, *best]
    results = present_results(results, shown_rows, serves)
    label_columns = with_winners(axes_of(frame), shown_rows)
    columns = [*label_columns, *(name for name in results if name not in label_columns)]
    num_feasible = int(frame["feasible"].sum())
    lines = [
        *infeasible_lines(digest, len(frame), row),
        *assumption_lines(shown_rows),
        *validation_lines(shown_rows),
    ]
    listing_of_first = listing(f"First {_FIRST} of {len(frame):,} points" if is_long else "", columns, head)
    is_ranked = digest.best == list(range(len(digest.best)))
    listing_of_best = (
        [listing(best_title(serves, num_feasible > 0), columns, best)] if is_long and not is_ranked else []
    )
    line = f"[bold]{pluralize(len(frame), 'point')}[/], {num_feasible:,} feasible"
    return card(
        f"{line}. {_best_line(best[0], label_columns, serves)}",
        [*listing_of_best, *lines, listing_of_first] if listing_of_best else [listing_of_first, *lines],
    )


def _best_line(row: Mapping[str, Any], names: Iterable[str], serves: bool) -> str:
    """Return a line on the best point and its results."""
    if row["time_s"] is None:
        return "None has a time"
    labels = ", ".join(f"{name} {quantity(name, row[name])}" for name in names if row[name] not in (None, ""))
    return f"Best: {escape(labels)}: {_headline(row, serves or row.get('bound_by') is None)}"
