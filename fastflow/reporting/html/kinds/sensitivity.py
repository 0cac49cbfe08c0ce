"""Pages of sensitivities: what a result hangs on."""

from __future__ import annotations

import pandas as pd

from fastflow.analysis.sensitivity.study import read
from fastflow.config.messages import counted
from fastflow.engine.dataset.reader import Dataset
from fastflow.reporting.charts.sensitivity import draw, listed
from fastflow.reporting.charts.style import render
from fastflow.reporting.html.columns import asked_of, quantities
from fastflow.reporting.html.content import Headline, Page, View
from fastflow.reporting.terminal.tables import quantity

_MOST = 4  # figures named
_SECTION = "section"


def page_of(dataset: Dataset) -> Page:
    """Return the page of a sensitivity; raises InputError."""
    found = read(dataset)
    figures = found.figures.reset_index(drop=True)
    frame = figures.assign(**{_SECTION: figures["figure"].astype(str).str.split(".").str[0]})
    moving = listed(figures)
    trust = (("assumed", found.assumptions), ("validation", found.validation_class))
    return Page(
        title=dataset.folder.shown.rstrip("/").rpartition("/")[2],
        what=f"Sensitivity of {found.objective} to {counted(len(figures), 'figure')}",
        asked=[
            *asked_of(dataset, "sensitivity"),
            ("change of a figure", f"{100 * figures.attrs['step']:g}%"),
            *((name, text) for name, text in trust if text),
        ],
        headlines=_headlines(moving, found.objective, found.value, len(figures)),
        claims=[],
        figure=b""
        if figures["flat"].all()
        else render(lambda: draw(found.figures, found.objective, found.value)),
        points=quantities(dataset, frame),
        total=len(frame),
        drawn="",
        weight=None,
        fronts=(),
        view=View(
            x="elasticity",
            y="figure",
            colour=_SECTION,
            bars=_SECTION,
            histogram="elasticity",
            listed=tuple(map(str, figures.columns[figures.notna().any()])),
            named=("figure",),
            log=False,
        ),
        details=None,
        lacks="",
    )


def _headlines(moving: pd.DataFrame, objective: str, value: float, count: int) -> list[Headline]:
    """Return the result and the figures that move it most."""
    told = [
        Headline(objective, quantity(objective, value), "of the point itself"),
        Headline("Figures that move it", f"{len(moving):,} of {count:,}", "by 0.01% for 1% or more"),
    ]
    for row in moving.head(_MOST).itertuples():
        told.append(Headline(str(row.figure), f"{row.elasticity:+.2f}%", f"of {objective} for 1% more"))
    return told
