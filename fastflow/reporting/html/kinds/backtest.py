"""Pages of back-tests: real chips beside what their budgets make."""

from __future__ import annotations

import pandas as pd

from fastflow.analysis.backtest.study import read
from fastflow.config.messages import counted
from fastflow.core.units import percent
from fastflow.engine.dataset.kinds import BACKTEST, kind_of_table
from fastflow.engine.dataset.reader import Dataset
from fastflow.reporting.charts.backtest import draw
from fastflow.reporting.charts.style import render
from fastflow.reporting.html.columns import asked_of, first_of, quantities, varying
from fastflow.reporting.html.content import Headline, Page, View

_NEAR = 0.2  # what the field takes for a good prediction


def page_of(dataset: Dataset) -> Page:
    """Return the page of any table of a back-test; raises InputError."""
    _, found, question = read(dataset)
    frame = dataset.read(dataset.schema.names).reset_index(drop=True)
    kind = kind_of_table(dataset.schema)
    names = list(map(str, frame))
    texts = varying(frame, [name for name in names if frame[name].dtype.kind not in "fiu"])
    is_chips = kind == BACKTEST
    numbers = [name for name in names if frame[name].dtype.kind == "f"]
    x = "difference" if is_chips else numbers[0]
    y = "quantity" if is_chips else first_of(("foundry_gain", "generated_error", *numbers[1:]), names)
    colour = first_of(("scaling", *texts), texts) or names[0]
    return Page(
        title=dataset.folder.shown.rstrip("/").rpartition("/")[2],
        what=f"{kind.removeprefix('a ').removeprefix('the ').capitalize()}: {counted(len(frame), 'row')}",
        asked=asked_of(dataset, "backtest"),
        headlines=_headlines(found.chips) if is_chips else [],
        claims=[],
        figure=render(lambda: draw(found.gains, question.known)),
        points=quantities(dataset, frame),
        total=len(frame),
        drawn="",
        weight=None,
        fronts=(),
        view=View(
            x=x,
            y=y,
            colour=colour,
            bars=texts[0] if texts else colour,
            histogram=x,
            listed=tuple(names),
            named=tuple(texts),
            diagonal=not is_chips,
            log=False,
        ),
        details=None,
        lacks="",
    )


def _headlines(chips: pd.DataFrame) -> list[Headline]:
    """Return how many quantities come out near those of the real chips, by scaling."""
    told = []
    for scaling, rows in chips.groupby("scaling", observed=True):
        differences = rows["difference"].abs().dropna()
        near = int((differences <= _NEAR).sum())
        told.append(
            Headline(
                f"scaling={scaling}",
                f"{near:,} of {len(differences):,}",
                f"quantities within {percent(_NEAR)} of the real chips;"
                f" median {percent(differences.median())}",
            )
        )
    return told
