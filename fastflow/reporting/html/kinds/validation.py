"""Pages of validations: predictions against measurements."""

from __future__ import annotations

import pandas as pd

from fastflow.analysis.measurements.read import naming_columns
from fastflow.analysis.validation.error_metrics import ALL
from fastflow.config.messages import counted
from fastflow.core.errors import InputError
from fastflow.core.units import percent
from fastflow.engine.dataset.folder import ERRORS
from fastflow.engine.dataset.reader import Dataset, find
from fastflow.reporting.charts.style import render
from fastflow.reporting.charts.validation import draw
from fastflow.reporting.html.columns import asked_of, first_of, quantities, varying
from fastflow.reporting.html.content import LIMITER, Headline, Page, Parts, Said, View
from fastflow.reporting.html.kinds.grid import told_of
from fastflow.reporting.html.rows import drawn_of
from fastflow.reporting.terminal.validation import title

_TEXTS = ("device", "dtype", "model", "phase", "bound_by", "strategy", "source", "framework")


def page_of(dataset: Dataset) -> Page:
    """Return the page of a validation, given either of its two datasets; raises InputError."""
    whole = find(dataset.folder.shown.rstrip("/").removesuffix(ERRORS))
    errors = find(f"{whole.folder.shown.rstrip('/')}{ERRORS}")
    rows, of_errors = (one.read(one.schema.names) for one in (whole, errors))
    if not rows["predicted_s"].notna().any():
        raise InputError("dataset", whole.folder.shown, "a validation of fastflow; it has no prediction")
    drawn = drawn_of(rows, {"error": "more"}, [], "error")
    frame = rows.iloc[drawn.rows].reset_index(drop=True)
    own = [field.name for field in whole.schema if b"own" in (field.metadata or {})]
    colour = first_of(_TEXTS, varying(frame, _TEXTS)) or "bound_by"
    names = list(map(str, frame))
    naming = naming_columns(whole.about("kind"), own)
    alone = "Time of each resource alone (they overlap)"
    needs = {name[6:-2]: name for name in names if name.startswith("needs_")}
    return Page(
        title=whole.folder.shown.rstrip("/").rpartition("/")[2],
        what=f"Validation: {counted(len(rows), 'row')} {title(whole)}",
        asked=[
            *asked_of(whole, f"validate measurements={whole.about('measurements')}"),
            *(("assumed", line) for line in whole.texts("said")),
        ],
        headlines=_headlines(rows, of_errors),
        claims=[],
        figure=render(lambda: draw(rows, title(whole))),
        points=quantities(whole, frame),
        total=len(rows),
        drawn=told_of(drawn, len(rows), "with the largest error"),
        weight=drawn.weight,
        fronts=(),
        view=View(
            x="measured_s",
            y="predicted_s",
            colour=colour,
            bars=colour,
            histogram="error",
            sort="error",
            worst_first=True,
            listed=tuple(
                name
                for name in dict.fromkeys(
                    ("line", *naming, "measured_s", "predicted_s", "error", "bound_by", *own, "reason")
                )
                if name in frame and frame[name].notna().any()
            ),
            named=("line", *naming),
            said=(Said("measured", "measured_s"), Said("predicted", "predicted_s"), LIMITER),
            diagonal=True,
            log=True,
            opened=int(frame["error"].fillna(-1.0).to_numpy().argmax()),
            parts=(Parts(alone, needs, overlap=True),) if needs else (),
        ),
        details=None,
        lacks="",
    )


def _headlines(rows: pd.DataFrame, errors: pd.DataFrame) -> list[Headline]:
    """Return the errors over all rows."""
    whole = errors[errors["by"] == ALL].iloc[0]
    known = rows["predicted_s"].notna()
    return [
        Headline("Predicted", f"{int(known.sum()):,} of {len(rows):,}", "rows of the file"),
        Headline("Mean error", percent(float(whole["mean_error"])), "of predicted against measured time"),
        Headline("Median error", percent(float(whole["median_error"])), "half of the rows are nearer"),
        Headline("90% are within", percent(float(whole["p90_error"])), "relative error"),
        Headline("Bias", f"{float(whole['bias']):.2f}", "median of predicted over measured"),
    ]
