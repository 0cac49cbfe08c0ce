"""Pages of sensitivities of a result."""

from __future__ import annotations

import pandas as pd

from fastflow.analysis.sensitivity.study import read
from fastflow.config.messages import pluralize
from fastflow.engine.dataset.reader import Dataset
from fastflow.reporting.charts.sensitivity import draw, important_parameters
from fastflow.reporting.charts.style import render
from fastflow.reporting.html.columns import page_title, provenance_of, quantities
from fastflow.reporting.html.content import Headline, Page, PointTable, View
from fastflow.reporting.terminal.tables import quantity

_MAX_NAMED = 4  # parameters named
_SECTION = "section"


def page_of(dataset: Dataset) -> Page:
    """Return the page of a sensitivity; raises InputError."""
    result = read(dataset)
    parameters = result.parameters.reset_index(drop=True)
    frame = parameters.assign(**{_SECTION: parameters["parameter"].astype(str).str.split(".").str[0]})
    important = important_parameters(parameters)
    notes = (("assumed", result.assumptions), ("validation", result.validation_class))
    return Page(
        title=page_title(dataset, "Sensitivity"),
        summary=f"Sensitivity of {result.objective} to {pluralize(len(parameters), 'parameter')}",
        provenance=[
            *provenance_of(dataset, "sensitivity"),
            ("change of a parameter", f"{100 * parameters.attrs['step']:g}%"),
            *((name, text) for name, text in notes if text),
        ],
        headlines=_headlines(important, result.objective, result.value, len(parameters)),
        claims=[],
        figure=b""
        if parameters["insensitive"].all()
        else render(lambda: draw(result.parameters, result.objective, result.value)),
        points=quantities(dataset, frame),
        total=len(frame),
        sample_note="",
        weight=None,
        fronts=(),
        view=View(
            x="elasticity",
            y="parameter",
            colour=_SECTION,
            bars=_SECTION,
            histogram="elasticity",
            table=PointTable(tuple(map(str, parameters.columns[parameters.notna().any()]))),
            named=("parameter",),
            log=False,
        ),
        details=None,
        missing_note="",
    )


def _headlines(important: pd.DataFrame, objective: str, value: float, count: int) -> list[Headline]:
    """Return the result and the parameters with the largest effect."""
    headlines = [
        Headline(objective, quantity(objective, value), "of the point itself"),
        Headline("Parameters that move it", f"{len(important):,} of {count:,}", "by 0.01% for 1% or more"),
    ]
    for row in important.head(_MAX_NAMED).itertuples():
        headlines.append(
            Headline(str(row.parameter), f"{row.elasticity:+.2f}%", f"of {objective} for 1% more")
        )
    return headlines
