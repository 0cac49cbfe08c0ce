"""Pages of searches: the designs that were scored, the ranking of candidates, and the front."""

from __future__ import annotations

from typing import Any

import pandas as pd

from fastflow.analysis.search.optimizers.design_space import BUDGET_LABELS, BUDGETS
from fastflow.analysis.search.ranges import WithinTolerance
from fastflow.config.messages import pluralize
from fastflow.core import units
from fastflow.engine.dataset.kinds import RANKING, SEARCH
from fastflow.engine.dataset.reader import Dataset
from fastflow.reporting.charts.search import columns_of, draw, draw_front, labels_of
from fastflow.reporting.charts.style import render
from fastflow.reporting.html.columns import (
    comparable_columns,
    first_present,
    index_of_best,
    page_title,
    provenance_of,
    quantities,
    varying_columns,
)
from fastflow.reporting.html.content import RESULT_LINES, Headline, Listing, Page, Parts, PointTable, View
from fastflow.reporting.html.feasible import NOT_FEASIBLE, feasible_headline
from fastflow.reporting.html.kinds.grid import (
    MAX_COLOURS,
    SERVED_LINES,
    best_points_text,
    sample_note_of,
)
from fastflow.reporting.html.point_details import details_of
from fastflow.reporting.html.rows import sample_points
from fastflow.reporting.terminal.ranges import (
    METHOD_NOTE,
    is_converged,
    not_converged,
    ranges_of,
    rows_of,
    title,
)

_LISTED = (
    "objective", "second_objective", "gain", "gap", "baseline_objective", "time_s", "ttft_s", "tpot_s",
    "tokens_per_s_per_device", "tokens_per_s_per_user", "bound_by", "decode_bound_by", "energy_J",
    "joules_per_token", "site_J", "iteration_usd", "token_usd", "carbon_g", "carbon_g_per_token", "feasible",
    "reason_code", "reason",
)  # fmt: skip
_MAX_LISTINGS = 6


def page_of(dataset: Dataset, config_dir: str | None) -> Page:
    """Return the page of a search's history, ranking or front; raises InputError."""
    names = dataset.schema.names
    designs = dataset.read(names)
    if designs.empty:
        return _empty(dataset)
    better = {
        name: direction
        for name, direction in comparable_columns(names).items()
        if varying_columns(designs, [name])
    }
    labels = varying_columns(designs, labels_of(names))
    sample = sample_points(designs, better, labels, "objective")
    frame = designs.iloc[sample.rows].reset_index(drop=True)
    details, missing_note = details_of(dataset, frame, config_dir)
    ranked, is_history = dataset.kind == RANKING, dataset.kind == SEARCH
    size = pluralize(len(designs), "candidate" if ranked else "design")
    number = first_present(("rank", "design"), names)
    rows, within = ranges_of(dataset, labels_of(names))
    return Page(
        title=page_title(dataset, "Search"),
        summary=f"Search: {size}, {'ranked' if ranked else 'as scored' if is_history else 'of the front'}",
        provenance=[*provenance_of(dataset, "search"), ("search", dataset.about("search"))],
        headlines=[
            *_headlines(dataset, designs, labels),
            *(_equivalents(designs, within.tolerance) if rows else []),
        ],
        claims=[],
        figure=_figure(dataset, designs),
        points=quantities(dataset, frame),
        total=len(designs),
        sample_note=sample_note_of(sample, len(designs), best_points_text(better, "objective")),
        weight=sample.weight,
        fronts=sample.fronts,
        view=_view(designs, labels, number)._replace(opened=index_of_best(frame, "objective")),
        details=details,
        missing_note=missing_note,
        listings=_listings(rows, within) if rows else (),
    )


def _listings(rows: list[dict[str, Any]], within: WithinTolerance) -> tuple[Listing, ...]:
    """Return the ranges of the shares of the best designs, a table for each of a few problems."""
    designs = pd.DataFrame(rows)
    labels = varying_columns(designs, labels_of(list(map(str, designs))))
    listings = []
    for index, row in enumerate(rows[:_MAX_LISTINGS]):
        name = f": {_point_name(designs.iloc[index], labels)}" if labels else ""
        note = f"{METHOD_NOTE}." + ("" if is_converged(row, within) else f" {not_converged(row, within)}.")
        cells = tuple(map(tuple, rows_of(row, within)))
        listings.append(
            Listing(
                f"{title(within)}{name}",
                note,
                ("component", *(BUDGET_LABELS[budget] for budget in BUDGETS)),
                cells,
            )
        )
    return tuple(listings)


def _equivalents(frame: pd.DataFrame, tolerance: float) -> list[Headline]:
    """Return the number of candidates of a ranking within the tolerance of the best of their competition."""
    if "gap" not in frame or len(frame) < 2:
        return []
    num_equivalent = int((frame["gap"] <= tolerance).sum())
    return [
        Headline(
            f"Within {100.0 * tolerance:g}% of the best",
            f"{num_equivalent:,} of {len(frame):,}",
            "candidates",
        )
    ]


def _empty(dataset: Dataset) -> Page:
    """Return the page of a front without designs."""
    view = View(x="", y="", colour="", bars="", histogram="")
    summary = "Search: no design has a time"
    provenance = [*provenance_of(dataset, "search"), ("search", dataset.about("search"))]
    return Page(
        page_title(dataset, "Search"), summary, provenance, [], [], b"", [], 0, "", None, (), view, None, ""
    )


def _headlines(dataset: Dataset, frame: pd.DataFrame, labels: list[str]) -> list[Headline]:
    """Return the best design, its gain over the unchanged chip, and the number of feasible designs."""
    feasible = frame["feasible"].astype(bool)
    rows = frame[feasible & frame["objective"].notna()]
    headlines = [feasible_headline(frame)]
    suffix = ""
    if rows.empty:
        rows, suffix = frame[frame["objective"].notna()], NOT_FEASIBLE
    if rows.empty:
        return headlines
    for name in ("objective", "second_objective"):
        if name in rows and rows[name].notna().any():
            best = rows.iloc[index_of_best(rows, name)]
            headlines.append(
                Headline(
                    f"Best {_meaning(dataset, name)}{suffix}",
                    _value(dataset, best, name),
                    _point_name(best, labels),
                )
            )
    best = rows.iloc[index_of_best(rows, "objective")]
    baseline = _baseline_objective(frame, best)
    if baseline and baseline == baseline:
        headlines.append(
            Headline(
                "Gain over the unchanged chip",
                f"{baseline / best['objective']:.2f}x",
                "of the same candidate",
            )
        )
    return headlines


def _baseline_objective(frame: pd.DataFrame, best: pd.Series[Any]) -> float:
    """Return the objective of the candidate's unchanged chip, NaN if unknown."""
    if "baseline_objective" in frame:
        return float(best["baseline_objective"])
    if "step" not in frame:
        return float("nan")
    first = frame[frame["candidate"] == best["candidate"]].iloc[0]  # a search begins with the unchanged chip
    return float(first["objective"])


def _meaning(dataset: Dataset, name: str) -> str:
    metadata = dataset.schema.field(name).metadata or {}
    return str(metadata.get(b"meaning", b"objective").decode())


def _value(dataset: Dataset, row: pd.Series[Any], name: str) -> str:
    unit = (dataset.schema.field(name).metadata or {}).get(b"unit", b"").decode()
    return units.show(float(row[name]), unit)


def _point_name(row: pd.Series[Any], labels: list[str]) -> str:
    return ", ".join(f"{label}={row[label]}" for label in labels) or str(row["strategy"])


def _figure(dataset: Dataset, frame: pd.DataFrame) -> bytes:
    """Return the figure of a history or a front, as the command draws it; a ranking has none."""
    names = dataset.schema.names
    if dataset.kind == RANKING:
        return b""
    labels = labels_of(names)
    rows = frame[[*labels, *(name for name in columns_of(names) if name not in labels)]]
    axes = [dataset.axis(name) for name in ("objective", "second_objective") if name in rows]
    if dataset.kind == SEARCH:
        return render(lambda: draw(rows, labels, *axes))
    return render(lambda: draw_front(rows, labels, *axes))


def _view(frame: pd.DataFrame, labels: list[str], number: str) -> View:
    """Return the initial view of the charts."""
    names = list(map(str, frame))
    shares = [name for name in names if name.startswith(tuple(f"chip.{budget}." for budget in BUDGETS))]
    second = varying_columns(frame, ["second_objective"])
    x = second[0] if second else "chip.area.core" if "chip.area.core" in shares else number
    few = [label for label in labels if frame[label].nunique() <= MAX_COLOURS]
    limiter = first_present(
        ("bound_by", "decode_bound_by", "prefill_bound_by"), varying_columns(frame, names)
    )
    colour = first_present(few, names) or limiter or "feasible"
    rows, across = (*labels, "", "")[:2]
    numbering = [number] if number else []
    results = [name for name in _LISTED if name in names and frame[name].notna().any()]
    return View(
        x=x,
        y="objective",
        colour=colour,
        bars=limiter or "feasible",
        histogram="objective",
        rows=rows if across else "",
        across=across,
        table=PointTable((*numbering, *labels, *results), "objective"),
        said=SERVED_LINES if "tpot_s" in names else RESULT_LINES,
        named=tuple(dict.fromkeys((*numbering, *labels, "strategy"))),
        parts=tuple(
            _budget_parts(budget, shares) for budget in BUDGETS if _budget_parts(budget, shares).columns
        ),
    )


def _budget_parts(budget: str, shares: list[str]) -> Parts:
    """Return the shares of a budget as parts of a bar."""
    prefix = f"chip.{budget}."
    columns = {name.removeprefix(prefix): name for name in shares if name.startswith(prefix)}
    return Parts(f"Shares of the chip's {BUDGET_LABELS[budget]}", columns)
