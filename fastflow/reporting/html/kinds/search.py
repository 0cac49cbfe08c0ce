"""Pages of searches: the designs that were scored, the ranking of candidates, and the front."""

from __future__ import annotations

from typing import Any

import pandas as pd

from fastflow.analysis.search.optimizers.design_space import BUDGETS
from fastflow.analysis.search.ranges import WithinTolerance
from fastflow.config.messages import counted
from fastflow.core import units
from fastflow.engine.dataset.reader import Dataset
from fastflow.reporting.charts.search import columns_of, draw, draw_front
from fastflow.reporting.charts.style import render
from fastflow.reporting.html.columns import asked_of, best_row, compared, first_of, quantities, varying
from fastflow.reporting.html.content import SAID, Headline, Listing, Page, Parts, View
from fastflow.reporting.html.kinds.grid import COLOURS, NOT_FEASIBLE, SERVED, best_of, first_reason, told_of
from fastflow.reporting.html.point_details import details_of
from fastflow.reporting.html.rows import drawn_of
from fastflow.reporting.terminal.ranges import HOW, is_converged, not_converged, ranges_of, rows_of, title
from fastflow.reporting.terminal.ranking import labels_of

_LISTED = (
    "objective", "second_objective", "gain", "gap", "own_objective", "time_s", "ttft_s", "tpot_s",
    "tokens_per_s_per_device", "tokens_per_s_per_user", "bound_by", "decode_bound_by", "energy_J",
    "joules_per_token", "iteration_usd", "token_usd", "feasible", "reason",
)  # fmt: skip
_MOST_LISTINGS = 6


def page_of(dataset: Dataset, config_dir: str | None) -> Page:
    """Return the page of a search's history, ranking or front; raises InputError."""
    names = dataset.schema.names
    whole = dataset.read(names)
    if whole.empty:
        return _empty(dataset)
    better = {name: which for name, which in compared(names).items() if varying(whole, [name])}
    labels = varying(whole, labels_of(names))
    drawn = drawn_of(whole, better, labels, "objective")
    frame = whole.iloc[drawn.rows].reset_index(drop=True)
    details, lacks = details_of(dataset, frame, config_dir)
    is_ranking, is_history = "rank" in names, "step" in names
    what = counted(len(whole), "candidate" if is_ranking else "design")
    number = first_of(("rank", "design"), names)
    rows, within = ranges_of(dataset, labels_of(names))
    return Page(
        title=dataset.folder.shown.rstrip("/").rpartition("/")[2],
        what=f"Search: {what}, {'ranked' if is_ranking else 'as scored' if is_history else 'of the front'}",
        asked=[*asked_of(dataset, "search"), ("search", dataset.about("search"))],
        headlines=[*_headlines(dataset, whole, labels), *(_as_good(whole, within.tolerance) if rows else [])],
        claims=[],
        figure=_figure(dataset, whole),
        points=quantities(dataset, frame),
        total=len(whole),
        drawn=told_of(drawn, len(whole), best_of(better, "objective")),
        weight=drawn.weight,
        fronts=drawn.fronts,
        view=_view(whole, labels, number)._replace(opened=best_row(frame, "objective")),
        details=details,
        lacks=lacks,
        listings=_listings(rows, within) if rows else (),
    )


def _listings(rows: list[dict[str, Any]], within: WithinTolerance) -> tuple[Listing, ...]:
    """Return the ranges of the shares of the best designs, a table for each of a few problems."""
    of_all = pd.DataFrame(rows)
    labels = varying(of_all, labels_of(list(map(str, of_all))))
    listings = []
    for place, row in enumerate(rows[:_MOST_LISTINGS]):
        named = f": {_named(of_all.iloc[place], labels)}" if labels else ""
        note = f"{HOW}." + ("" if is_converged(row, within) else f" {not_converged(row, within)}.")
        cells = tuple(map(tuple, rows_of(row, within)))
        listings.append(Listing(f"{title(within)}{named}", note, ("component", *BUDGETS), cells))
    return tuple(listings)


def _as_good(frame: pd.DataFrame, tolerance: float) -> list[Headline]:
    """Return how many candidates of a ranking are as good as the best of those that they compete with."""
    if "gap" not in frame or len(frame) < 2:
        return []
    near = int((frame["gap"] <= tolerance).sum())
    return [
        Headline(f"Within {100.0 * tolerance:g}% of the best", f"{near:,} of {len(frame):,}", "candidates")
    ]


def _empty(dataset: Dataset) -> Page:
    """Return the page of a front without designs."""
    view = View(x="", y="", colour="", bars="", histogram="")
    nothing = "Search: no design has a time"
    asked = [*asked_of(dataset, "search"), ("search", dataset.about("search"))]
    title = dataset.folder.shown.rstrip("/").rpartition("/")[2]
    return Page(title, nothing, asked, [], [], b"", [], 0, "", None, (), view, None, "")


def _headlines(dataset: Dataset, frame: pd.DataFrame, labels: list[str]) -> list[Headline]:
    """Return the best design, what it gains over the chip's own breakdown, and how many fit."""
    fits = frame["feasible"].astype(bool)
    rows = frame[fits & frame["objective"].notna()]
    told = [Headline("Feasible", f"{int(fits.sum()):,} of {len(frame):,}", first_reason(frame))]
    fit = ""
    if rows.empty:
        rows, fit = frame[frame["objective"].notna()], NOT_FEASIBLE
    if rows.empty:
        return told
    for name in ("objective", "second_objective"):
        if name in rows and rows[name].notna().any():
            best = rows.iloc[best_row(rows, name)]
            told.append(
                Headline(
                    f"Best {_meaning(dataset, name)}{fit}", _value(dataset, best, name), _named(best, labels)
                )
            )
    best = rows.iloc[best_row(rows, "objective")]
    own = _own(frame, best)
    if own and own == own:
        told.append(
            Headline(
                "Gain over the chip's own shares", f"{own / best['objective']:.2f}x", "of the same candidate"
            )
        )
    return told


def _own(frame: pd.DataFrame, best: pd.Series[Any]) -> float:
    """Return the objective of the candidate's own chip, NaN where it is not known."""
    if "own_objective" in frame:
        return float(best["own_objective"])
    if "step" not in frame:
        return float("nan")
    first = frame[frame["candidate"] == best["candidate"]].iloc[0]  # a search begins with the chip as it is
    return float(first["objective"])


def _meaning(dataset: Dataset, name: str) -> str:
    held = dataset.schema.field(name).metadata or {}
    return str(held.get(b"meaning", b"objective").decode())


def _value(dataset: Dataset, row: pd.Series[Any], name: str) -> str:
    unit = (dataset.schema.field(name).metadata or {}).get(b"unit", b"").decode()
    return units.show(float(row[name]), unit)


def _named(row: pd.Series[Any], labels: list[str]) -> str:
    return ", ".join(f"{label}={row[label]}" for label in labels) or str(row["strategy"])


def _figure(dataset: Dataset, frame: pd.DataFrame) -> bytes:
    """Return the figure that the command draws of a history or a front; a ranking has none."""
    names = dataset.schema.names
    if "rank" in names:
        return b""
    labels = labels_of(names)
    rows = frame[[*labels, *(name for name in columns_of(names) if name not in labels)]]
    axes = [dataset.axis(name) for name in ("objective", "second_objective") if name in rows]
    if "step" in names:
        return render(lambda: draw(rows, labels, *axes))
    return render(lambda: draw_front(rows, labels, *axes))


def _view(frame: pd.DataFrame, labels: list[str], number: str) -> View:
    """Return what the charts show first."""
    names = list(map(str, frame))
    shares = [name for name in names if name.startswith(tuple(f"chip.{budget}." for budget in BUDGETS))]
    several = varying(frame, ["second_objective"])
    x = several[0] if several else "chip.area.core" if "chip.area.core" in shares else number
    few = [label for label in labels if frame[label].nunique() <= COLOURS]
    limiter = first_of(("bound_by", "decode_bound_by", "prefill_bound_by"), varying(frame, names))
    colour = first_of(few, names) or limiter or "feasible"
    rows, across = (*labels, "", "")[:2]
    return View(
        x=x,
        y="objective",
        colour=colour,
        bars=limiter or "feasible",
        histogram="objective",
        sort="objective",
        rows=rows if across else "",
        across=across,
        listed=(
            *([number] if number else []),
            *labels,
            *(name for name in _LISTED if name in names and frame[name].notna().any()),
        ),
        said=SERVED if "tpot_s" in names else SAID,
        named=tuple(dict.fromkeys((*([number] if number else []), *labels, "strategy"))),
        parts=tuple(_shares_of(budget, shares) for budget in BUDGETS if _shares_of(budget, shares).columns),
    )


def _shares_of(budget: str, shares: list[str]) -> Parts:
    """Return how a budget is shared, as parts of one bar."""
    prefix = f"chip.{budget}."
    columns = {name.removeprefix(prefix): name for name in shares if name.startswith(prefix)}
    return Parts(f"Shares of the chip's {budget}", columns)
