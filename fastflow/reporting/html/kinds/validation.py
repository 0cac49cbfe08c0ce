"""Pages of validations: predictions against measurements."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pandas as pd

from fastflow.analysis.measurements.read import naming_columns
from fastflow.analysis.validation.error_metrics import ALL, errors_of, measured_quantities
from fastflow.config.messages import pluralize
from fastflow.core.errors import InputError
from fastflow.core.units import percent
from fastflow.engine.dataset.folder import ERRORS
from fastflow.engine.dataset.reader import Dataset, find
from fastflow.reporting.charts.style import render
from fastflow.reporting.charts.validation import draw
from fastflow.reporting.html.columns import (
    first_present,
    page_title,
    provenance_of,
    quantities,
    varying_columns,
)
from fastflow.reporting.html.content import LIMITER, Headline, Page, Parts, PointTable, ResultLine, View
from fastflow.reporting.html.kinds.grid import sample_note_of
from fastflow.reporting.html.rows import sample_points
from fastflow.reporting.terminal.validation import file_columns_of, title
from fastflow.schema.validation import ROOFLINE

_CATEGORICALS = ("device", "dtype", "model", "phase", "bound_by", "strategy", "source", "framework")


def page_of(dataset: Dataset) -> Page:
    """Return the page of a validation, from either of its two datasets; raises InputError."""
    rows_dataset = find(dataset.folder.shown.rstrip("/").removesuffix(ERRORS))
    errors = find(f"{rows_dataset.folder.shown.rstrip('/')}{ERRORS}")
    rows, error_rows = (part.read(part.schema.names) for part in (rows_dataset, errors))
    if not rows["predicted_s"].notna().any():
        raise InputError(
            "dataset", rows_dataset.folder.shown, "a validation of fastflow; it has no prediction"
        )
    sample = sample_points(rows, {"error": "more"}, [], "error")
    frame = rows.iloc[sample.rows].reset_index(drop=True)
    return Page(
        title=page_title(rows_dataset, "Validation", Path(rows_dataset.about("measurements")).name),
        summary=f"Validation: {pluralize(len(rows), 'row')} {title(rows_dataset)}",
        provenance=[
            *provenance_of(rows_dataset, f"validate measurements={rows_dataset.about('measurements')}"),
            *(("assumed", line) for line in rows_dataset.texts("said")),
        ],
        headlines=_headlines(rows, error_rows),
        claims=[],
        figure=render(lambda: draw(rows, title(rows_dataset))),
        points=quantities(rows_dataset, frame),
        total=len(rows),
        sample_note=sample_note_of(sample, len(rows), "with the largest error"),
        weight=sample.weight,
        fronts=(),
        view=_view(rows_dataset, frame),
        details=None,
        missing_note="",
    )


def _view(dataset: Dataset, frame: pd.DataFrame) -> View:
    """Return the initial view of the charts; frame: the drawn rows of the dataset."""
    file_columns = file_columns_of(dataset)
    naming = naming_columns(dataset.about("measured"), file_columns)
    further = [
        name
        for quantity in measured_quantities(frame)[1:]
        for name in (quantity.measured, quantity.predicted, quantity.error)
    ]
    results = ("measured_s", "predicted_s", "error", *further, "bound_by")
    listed = dict.fromkeys(("line", *naming, *results, *file_columns, "reason"))
    colour = first_present(_CATEGORICALS, varying_columns(frame, _CATEGORICALS)) or "bound_by"
    needs = {
        name.removeprefix(ROOFLINE).removesuffix("_s"): name
        for name in map(str, frame)
        if name.startswith(ROOFLINE)
    }
    return View(
        x="measured_s",
        y="predicted_s",
        colour=colour,
        bars=colour,
        histogram="error",
        table=PointTable(
            tuple(name for name in listed if name in frame and frame[name].notna().any()),
            sort="error",
            worst_first=True,
        ),
        named=("line", *naming),
        said=(ResultLine("measured", "measured_s"), ResultLine("predicted", "predicted_s"), LIMITER),
        diagonal=True,
        log=True,
        opened=int(frame["error"].fillna(-1.0).to_numpy().argmax()),
        parts=(Parts("Time of each resource alone (they overlap)", needs, overlap=True),) if needs else (),
    )


def _headlines(rows: pd.DataFrame, errors: pd.DataFrame) -> list[Headline]:
    """Return the errors over all rows."""
    of_all_rows = errors[errors["by"] == ALL].iloc[0]  # of times, which come first
    predicted = rows["predicted_s"].notna()
    return [
        Headline("Predicted", f"{int(predicted.sum()):,} of {len(rows):,}", "rows of the file"),
        Headline(
            "Mean error", percent(float(of_all_rows["mean_error"])), "of predicted against measured time"
        ),
        Headline("Median error", percent(float(of_all_rows["median_error"])), "half of the rows have less"),
        Headline("90% are within", percent(float(of_all_rows["p90_error"])), "relative error"),
        Headline("Bias", f"{float(of_all_rows['bias']):.2f}", "median of predicted over measured"),
        *_headlines_of_further(rows, errors),
    ]


def _headlines_of_further(rows: pd.DataFrame, errors: pd.DataFrame) -> Iterator[Headline]:
    """Yield the mean error of every further quantity, with the rows that it is of."""
    for quantity in measured_quantities(rows)[1:]:
        of_quantity = errors_of(errors, quantity)
        for _, of_rows in of_quantity[of_quantity["by"] == ALL].iterrows():
            error = percent(float(of_rows["mean_error"]))
            count = pluralize(int(of_rows["rows"]), "row")
            meter = " that a meter measured" if quantity.is_metered else ""
            yield Headline(f"Mean error of {quantity.name}", error, f"of {count}{meter}")
