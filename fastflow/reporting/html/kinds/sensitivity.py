"""Pages of sensitivities of a result."""

from __future__ import annotations

import pandas as pd

from fastflow.analysis.sensitivity.study import read
from fastflow.config.messages import pluralize
from fastflow.engine.dataset.reader import Dataset
from fastflow.reporting.charts.sensitivity import draw, important_figures
from fastflow.reporting.charts.style import render
from fastflow.reporting.html.columns import page_title, provenance_of, quantities
from fastflow.reporting.html.content import Headline, Page, PointTable, View
from fastflow.reporting.terminal.tables import quantity

_MAX_NAMED = 4  # figures named
_SECTION = "section"


def page_of(dataset: Dataset) -> Page:
    """Return the page of a sensitivity; raises InputError."""
    result = read(dataset)
    figures = result.figures.reset_index(drop=True)
    frame = figures.assign(**{_SECTION: figures["figure"].astype(str).str.split(".").str[0]})
    important = important_figures(figures)
    notes = (("assumed", result.assumptions), ("validation", result.validation_class))
    return Page(
        title=page_title(dataset, "Sensitivity"),
        summary=f"Sensitivity of {result.objective} to {pluralize(len(figures), 'figure')}",
        provenance=[
            *provenance_of(dataset, "sensitivity"),
            ("change of a figure", f"{100 * figures.attrs['step']:g}%"),
            *((name, text) for name, text in notes if text),
        ],
        headlines=_headlines(important, result.objective, result.value, len(figures)),
        claims=[],
        figure=b""
        if figures["flat"].all()
        else render(lambda: draw(result.figures, result.objective, result.value)),
        points=quantities(dataset, frame),
        total=len(frame),
        sample_note="",
        weight=None,
        fronts=(),
        view=View(
            x="elasticity",
            y="figure",
            colour=_SECTION,
            bars=_SECTION,
            histogram="elasticity",
            table=PointTable(tuple(map(str, figures.columns[figures.notna().any()]))),
            named=("figure",),
            log=False,
        ),
        details=None,
        missing_note="",
    )


def _headlines(important: pd.DataFrame, objective: str, value: float, count: int) -> list[Headline]:
    """Return the result and the figures with the largest effect."""
    headlines = [
        Headline(objective, quantity(objective, value), "of the point itself"),
        Headline("Figures that move it", f"{len(important):,} of {count:,}", "by 0.01% for 1% or more"),
    ]
    for row in important.head(_MAX_NAMED).itertuples():
        headlines.append(Headline(str(row.figure), f"{row.elasticity:+.2f}%", f"of {objective} for 1% more"))
    return headlines
