"""Pages of grids: points of training, points that serve, and studies with their claims."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import pandas as pd

from fastflow.config.messages import pluralize
from fastflow.engine.dataset.reader import Dataset
from fastflow.reporting.charts import overview, serving
from fastflow.reporting.charts.overview import CHOICES
from fastflow.reporting.charts.style import render
from fastflow.reporting.dataset_title import points_title
from fastflow.reporting.html.columns import (
    comparable_columns,
    describe_span,
    first_present,
    index_of_best,
    page_title,
    provenance_of,
    quantities,
    varying_columns,
)
from fastflow.reporting.html.content import (
    ASSUMED,
    RESULT_LINES,
    VALIDATION,
    Details,
    Headline,
    Page,
    Parts,
    PointTable,
    ResultLine,
    View,
)
from fastflow.reporting.html.feasible import (
    MEMORY_COLUMNS,
    NOT_FEASIBLE,
    any_feasible,
    feasible_headline,
    nearest_to_feasible,
)
from fastflow.reporting.html.point_details import details_of
from fastflow.reporting.html.rows import Sample, sample_points
from fastflow.reporting.studies import report_of
from fastflow.reporting.terminal.tables import quantity

if TYPE_CHECKING:
    from fastflow.reporting.studies.claims import Claim

MEMORY = Parts(
    "Memory of one device",
    {
        "weights": "weight_B", "gradients": "gradient_B", "optimizer": "optimizer_B",
        "activations": "activation_B", "buffers": "buffer_B", "KV cache": "kv_B",
        "workspaces": "workspace_B", "fragments": "fragment_B", "communicators": "communicator_B",
        "context": "context_B", "libraries": "library_B", "graphs": "graph_B",
    },
    limit="dram_offered_B",
    total="footprint_B",
    rest="workspace",
)  # fmt: skip
TIME = Parts(
    "Time of one iteration",
    {"kernels": "compute_s", "exposed communication": "exposed_comm_s", "bubble": "bubble_s"},
)
SERVED_LINES = (
    *(
        ResultLine(label if not part else part.strip("_"), f"{name}{part}_s")
        for label, name in (
            ("time to first token", "ttft"),
            ("time per further token", "tpot"),
            ("time to last token", "e2e"),
        )
        for part in ("", "_p50", "_p90", "_p99")
    ),
    ResultLine("time of a step", "time_s"),
    ResultLine("decode limited by", "decode_bound_by"),
    ResultLine("prefill limited by", "prefill_bound_by"),
    VALIDATION,
    ASSUMED,
)
_BEST = {
    "time_s": "Fastest", "energy_J": "Least energy", "iteration_usd": "Cheapest iteration",
    "carbon_g": "Least carbon",
    "tokens_per_s_per_device": "Most tokens per device", "tokens_per_s_per_user": "Most tokens per user",
    "ttft_s": "Shortest time to first token", "usd_per_million_tokens": "Cheapest million tokens",
}  # fmt: skip
_LISTED = (
    "time_s", "ttft_s", "ttft_slo_s", "tpot_s", "tpot_slo_s", "tokens_per_s", "tokens_per_s_per_device",
    "tokens_per_s_per_user", "bound_by", "energy_J", "site_J", "iteration_usd", "usd_per_million_tokens",
    "train_usd", "carbon_g", "carbon_g_per_token", "train_carbon_kg", "footprint_B", "mfu",
    "feasible", "reason_code", "reason",
)  # fmt: skip
_MAX_HEADLINES = 6
NO_EFFECT = "no_effect"
MAX_COLOURS = 8
"""Most values of a categorical colour."""


def page_of(dataset: Dataset, study: str, config_dir: str | None) -> Page:
    """Return the page of a grid; raises InputError."""
    names = dataset.schema.names
    serves = "tpot_s" in names and "bound_by" not in names
    axes = overview.stored_columns(dataset.texts("axes")) if dataset.about("axes") else []
    chosen = [name for name in (*axes, *CHOICES) if name in names]
    better = comparable_columns(names)
    kept = ("reason", "reason_code", NO_EFFECT, *MEMORY_COLUMNS)
    notes = [name for name in kept if name in names]  # older datasets lack some
    points = dataset.read([*dict.fromkeys((*chosen, *better, "time_s", "feasible", *notes))])
    better = {name: direction for name, direction in better.items() if varying_columns(points, [name])}
    labels = _label_columns(points, axes)
    main = first_present(("tokens_per_s_per_device",) if serves else ("time_s",), better) or "time_s"
    sample = sample_points(points, better, labels, main)
    frame = _sampled_rows(dataset, points, sample)
    details, missing_note = details_of(dataset, frame, config_dir)
    study = study or dataset.about("report")
    return Page(
        title=page_title(dataset, f"Study {study}" if study else "Serving" if serves else "Grid"),
        summary=_summary(dataset, points, labels, study),
        provenance=provenance_of(dataset, "sweep -m" if len(points) > 1 else "sweep"),
        headlines=_headlines(points, labels),
        claims=_claims(dataset, study),
        figure=_figure(dataset, study, serves, axes),
        points=quantities(dataset, frame),
        total=len(points),
        sample_note=sample_note_of(sample, len(points), best_points_text(better, main)),
        weight=sample.weight,
        fronts=sample.fronts,
        view=_view(frame, labels, main, better, details),
        details=details,
        missing_note=missing_note,
    )


def _label_columns(frame: pd.DataFrame, axes: list[str]) -> list[str]:
    """Return the axes that vary, or else the choices that vary, such as the strategy."""
    keys = varying_columns(frame, axes)
    return keys or varying_columns(frame, [name for name in CHOICES if name in frame])[:4]


def _sampled_rows(dataset: Dataset, points: pd.DataFrame, sample: Sample) -> pd.DataFrame:
    """Return the drawn points with all of their columns."""
    names = dataset.schema.names
    if sample.weight is None or "point" not in points:
        return dataset.read(names).iloc[sample.rows].reset_index(drop=True)
    return dataset.read(names, only=points["point"].to_numpy()[sample.rows])


def best_points_text(better: Iterable[str], main: str) -> str:
    """Return a text on the criteria of the best points of a dataset."""
    return (
        f"on the front of any two of {', '.join(better)}, or the best in {main} for two values of what varies"
    )


def sample_note_of(sample: Sample, rows: int, best: str) -> str:
    """Return a note on the drawn points; "" if all are drawn. best: the criteria of the best points."""
    if sample.weight is None:
        return ""
    num_random = sample.rows.size - sample.num_best
    left = f" ({sample.num_dropped:,} of them had no room)" if sample.num_dropped else ""
    return (
        f"Drawn are {sample.rows.size:,} of {rows:,} points: {sample.num_best:,} {best}{left}; and a random"
        f" sample of {num_random:,} of the others. Counts in the charts are estimates for all points."
    )


def _summary(dataset: Dataset, frame: pd.DataFrame, labels: list[str], study: str) -> str:
    """Return a summary of the dataset, and whether it is complete."""
    truncation_note = (
        f" of {dataset.grid_points:,}; the run was cut short" if dataset.grid_points > len(frame) else ""
    )
    axes = describe_span(frame, labels) if labels else ""
    prefix = f"Study {study}: " if study else ""
    none = "" if any_feasible(frame) else "; none is feasible"
    return f"{prefix}{pluralize(len(frame), 'point')}{truncation_note}{f': {axes}' if axes else ''}{none}"


def _headlines(frame: pd.DataFrame, labels: list[str]) -> list[Headline]:
    """Return the number of feasible points, and the best of each main result."""
    usable = frame[frame["feasible"].astype(bool)]
    headlines = [feasible_headline(frame)]
    suffix = ""
    if not len(usable):
        usable, suffix = frame[frame["time_s"].notna()], NOT_FEASIBLE
    headlines += _no_effect_headlines(frame)
    for name, label in _BEST.items():
        if name == "time_s" and "tpot_s" in frame:
            continue  # of servers it is a pass, which nobody asks for
        if varying_columns(usable, [name]):
            row = usable.iloc[index_of_best(usable, name)]
            headlines.append(
                Headline(f"{label}{suffix}", quantity(name, float(row[name])), _point_name(row, labels))
            )
    return headlines[:_MAX_HEADLINES]


def _no_effect_headlines(frame: pd.DataFrame) -> list[Headline]:
    """Return the keys of the user without effect at some points, if any."""
    notes = [text.split("; ") for text in frame.get(NO_EFFECT, pd.Series(dtype=str)).fillna("") if text]
    keys = list(dict.fromkeys(note.partition(": ")[0] for notes_of_point in notes for note in notes_of_point))
    if not keys:
        return []
    value = ", ".join(keys[:2]) + (" and others" if len(keys) > 2 else "")
    equalities = " or ".join(
        dict.fromkeys(note.partition(": ")[2] for notes_of_point in notes for note in notes_of_point)
    )
    where = f"at {len(notes):,} of {pluralize(len(frame), 'point')}, whose results are {equalities}"
    return [Headline("Without effect", value, f"{where} (column {NO_EFFECT})")]


def _point_name(row: pd.Series[Any], labels: list[str]) -> str:
    """Return the name of a point: its number and labels."""
    text = ", ".join(f"{key}={quantity(key, row[key])}" for key in labels)
    return f"point {row['point']:,}: {text}" if "point" in row else text


def _claims(dataset: Dataset, study: str) -> list[Claim]:
    if not study:
        return []
    report = report_of(study)
    return report.claims(dataset.read(report.columns))


def _figure(dataset: Dataset, study: str, serves: bool, axes: list[str]) -> bytes:
    """Return the figure of the dataset, as the command draws it."""
    if study:
        report = report_of(study)
        return render(lambda: report.draw(dataset.read(report.columns)))
    if serves:
        frame = dataset.read(serving.columns_of(dataset.schema.names))
        lines = serving.lines_of(frame)
        title = points_title(dataset, pluralize(len(frame), "point"))
        return render(lambda: serving.draw(lines, title))
    frame = dataset.read(overview.columns_of(dataset.schema.names, axes))
    summaries = overview.axes_of(frame, axes)
    title = points_title(dataset, pluralize(len(frame), "point"))
    return render(lambda: overview.draw(summaries, title))


def _colour_column(frame: pd.DataFrame, labels: list[str]) -> str:
    """Return the column for colours: a categorical with few values, or else a number, or else any label."""
    few = [name for name in labels if frame[name].nunique() <= MAX_COLOURS]
    numbers = [name for name in labels if pd.api.types.is_numeric_dtype(frame[name])]
    return first_present((*few, *numbers, *labels), labels)


def _view(
    frame: pd.DataFrame, labels: list[str], main: str, better: dict[str, str], details: Details | None
) -> View:
    """Return the initial view of the charts."""
    names = list(map(str, frame))
    second_result = first_present(
        ("tokens_per_s_per_user", "iteration_usd", "energy_J", "device_usd", "carbon_g"), better
    )
    if main == "tokens_per_s_per_device":
        x, y, colour = second_result or "ttft_s", main, _colour_column(frame, labels)
    else:
        x, y, colour = second_result or first_present(labels, names) or "point", main, "bound_by"
    across, rows = (*labels, "", "")[:2]
    results = [name for name in _LISTED if name in names and frame[name].notna().any()]
    strategy_columns = [
        name
        for name in ("strategy", "layer_strategies")
        if name in varying_columns(frame, names) and name not in labels
    ]
    limiter = first_present(("bound_by", "decode_bound_by", "prefill_bound_by"), names)
    has_kernels = details is not None and details.kernels.name.size > 0
    parts = [MEMORY] if has_kernels else [TIME, MEMORY]
    nearest = -1 if any_feasible(frame) else nearest_to_feasible(frame)
    return View(
        x=x,
        y=y,
        colour=colour,
        bars=limiter or colour,
        histogram=main,
        rows=rows,
        across=across if rows else "",
        table=PointTable(
            ("point", *labels, *strategy_columns, *results), main if nearest < 0 else "footprint_B"
        ),
        named=tuple(name for name in ("point", *labels, *strategy_columns) if name in names),
        said=SERVED_LINES if "tpot_s" in names else RESULT_LINES,
        opened=index_of_best(frame, main) if nearest < 0 else nearest,
        parts=tuple(part for part in parts if any(name in names for name in part.columns.values())),
    )
