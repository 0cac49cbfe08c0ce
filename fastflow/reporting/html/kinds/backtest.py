"""Pages of back-tests: real chips and generated chips."""

from __future__ import annotations

import pandas as pd

from fastflow.analysis.backtest.study import read
from fastflow.config.messages import pluralize
from fastflow.core.units import percent
from fastflow.engine.dataset.kinds import BACKTEST, TITLES
from fastflow.engine.dataset.reader import Dataset
from fastflow.reporting.charts.backtest import draw
from fastflow.reporting.charts.style import render
from fastflow.reporting.html.columns import (
    first_present,
    page_title,
    provenance_of,
    quantities,
    varying_columns,
)
from fastflow.reporting.html.content import Headline, Page, PointTable, View

_TOLERANCE = 0.2  # relative; a usual bound of a good prediction


def page_of(dataset: Dataset) -> Page:
    """Return the page of any table of a back-test; raises InputError."""
    _, backtest, question = read(dataset)
    frame = dataset.read(dataset.schema.names).reset_index(drop=True)
    kind = TITLES[dataset.kind]
    names = list(map(str, frame))
    texts = varying_columns(frame, [name for name in names if frame[name].dtype.kind not in "fiu"])
    has_chips = dataset.kind == BACKTEST
    numbers = [name for name in names if frame[name].dtype.kind == "f"]
    x = "difference" if has_chips else numbers[0]
    y = "quantity" if has_chips else first_present(("foundry_gain", "generated_error", *numbers[1:]), names)
    colour = first_present(("scaling", *texts), texts) or names[0]
    return Page(
        title=page_title(dataset, "Back-test"),
        summary=(
            f"{kind.removeprefix('a ').removeprefix('the ').capitalize()}: {pluralize(len(frame), 'row')}"
        ),
        provenance=provenance_of(dataset, "backtest"),
        headlines=_headlines(backtest.chips) if has_chips else [],
        claims=[],
        figure=render(lambda: draw(backtest.gains, question.known)),
        points=quantities(dataset, frame),
        total=len(frame),
        sample_note="",
        weight=None,
        fronts=(),
        view=View(
            x=x,
            y=y,
            colour=colour,
            bars=texts[0] if texts else colour,
            histogram=x,
            table=PointTable(tuple(names)),
            named=tuple(texts),
            diagonal=not has_chips,
            log=False,
        ),
        details=None,
        missing_note="",
    )


def _headlines(chips: pd.DataFrame) -> list[Headline]:
    """Return the number of quantities near those of the real chips, by scaling."""
    headlines = []
    for scaling, rows in chips.groupby("scaling", observed=True):
        differences = rows["difference"].abs().dropna()
        num_within = int((differences <= _TOLERANCE).sum())
        headlines.append(
            Headline(
                f"scaling={scaling}",
                f"{num_within:,} of {len(differences):,}",
                f"quantities within {percent(_TOLERANCE)} of the real chips;"
                f" median {percent(differences.median())}",
            )
        )
    return headlines
