"""Pages of grids: points of training, points that serve, and studies with their claims."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import pandas as pd

from fastflow.config.messages import counted
from fastflow.engine.dataset.reader import Dataset
from fastflow.reporting.charts import overview, serving
from fastflow.reporting.charts.overview import CHOICES
from fastflow.reporting.charts.style import render
from fastflow.reporting.html.columns import (
    asked_of,
    best_row,
    compared,
    first_of,
    quantities,
    spanned,
    varying,
)
from fastflow.reporting.html.content import (
    ASSUMED,
    SAID,
    VALIDATION,
    Details,
    Headline,
    Page,
    Parts,
    Said,
    View,
)
from fastflow.reporting.html.point_details import details_of
from fastflow.reporting.html.rows import Drawn, drawn_of
from fastflow.reporting.studies import report_of
from fastflow.reporting.terminal.tables import quantity

if TYPE_CHECKING:
    from fastflow.reporting.studies.claims import Claim

MEMORY = Parts(
    "Memory of one device",
    {
        "weights": "weight_B", "gradients": "gradient_B", "optimizer": "optimizer_B",
        "activations": "activation_B", "buffers": "buffer_B", "caches": "kv_B",
    },
    limit="dram_capacity_B",
    total="footprint_B",
    rest="working memory",
)  # fmt: skip
TIME = Parts(
    "Time of one iteration",
    {"kernels": "compute_s", "exposed communication": "exposed_comm_s", "bubble": "bubble_s"},
)
SERVED = (
    Said("first token", "ttft_s"), Said("each further token", "tpot_s"), Said("one pass", "time_s"),
    Said("decoding limited by", "decode_bound_by"), Said("prompts by", "prefill_bound_by"), VALIDATION,
    ASSUMED,
)  # fmt: skip
NOT_FEASIBLE = ", of what is not feasible"
_BEST = {
    "time_s": "Fastest", "energy_J": "Least energy", "iteration_usd": "Cheapest iteration",
    "tokens_per_s_per_device": "Most tokens a device", "tokens_per_s_per_user": "Most tokens a user",
    "ttft_s": "Soonest first token", "usd_per_million_tokens": "Cheapest million tokens",
}  # fmt: skip
_RESULTS = (
    "time_s", "ttft_s", "ttft_slo_s", "tpot_s", "tpot_slo_s", "tokens_per_s", "tokens_per_s_per_device",
    "tokens_per_s_per_user", "bound_by", "energy_J", "iteration_usd", "usd_per_million_tokens", "train_usd",
    "footprint_B", "mfu", "feasible", "reason",
)  # fmt: skip
_MOST_HEADLINES = 5
NO_EFFECT = "no_effect"
COLOURS = 8
"""Choices that colours tell apart."""


def page_of(dataset: Dataset, study: str, config_dir: str | None) -> Page:
    """Return the page of a grid; raises InputError."""
    names = dataset.schema.names
    serves = "tpot_s" in names and "bound_by" not in names
    axes = overview.stored(dataset.texts("axes")) if dataset.about("axes") else []
    chosen = [name for name in (*axes, *CHOICES) if name in names]
    better = compared(names)
    said = [name for name in ("reason", NO_EFFECT) if name in names]  # which older datasets lack
    first = dataset.read([*dict.fromkeys((*chosen, *better, "time_s", "feasible", *said))])
    better = {name: which for name, which in better.items() if varying(first, [name])}
    apart = _apart(first, axes)
    main = first_of(("tokens_per_s_per_device",) if serves else ("time_s",), better) or "time_s"
    drawn = drawn_of(first, better, apart, main)
    frame = _drawn_rows(dataset, first, drawn)
    details, lacks = details_of(dataset, frame, config_dir)
    study = study or dataset.about("report")
    return Page(
        title=dataset.folder.shown.rstrip("/").rpartition("/")[2],
        what=_what(dataset, first, apart, study),
        asked=asked_of(dataset, "sweep -m" if len(first) > 1 else "sweep"),
        headlines=_headlines(first, apart),
        claims=_claims(dataset, study),
        figure=_figure(dataset, study, serves, axes),
        points=quantities(dataset, frame),
        total=len(first),
        drawn=told_of(drawn, len(first), best_of(better, main)),
        weight=drawn.weight,
        fronts=drawn.fronts,
        view=_view(frame, apart, main, better, details),
        details=details,
        lacks=lacks,
    )


def _apart(frame: pd.DataFrame, axes: list[str]) -> list[str]:
    """Return what varies among points, the strategy that was found among it where it was asked for."""
    keys = varying(frame, axes)
    return keys or varying(frame, [name for name in CHOICES if name in frame])[:4]


def _drawn_rows(dataset: Dataset, first: pd.DataFrame, drawn: Drawn) -> pd.DataFrame:
    """Return the drawn points with all of their columns."""
    names = dataset.schema.names
    if drawn.weight is None or "point" not in first:
        return dataset.read(names).iloc[drawn.rows].reset_index(drop=True)
    return dataset.read(names, only=first["point"].to_numpy()[drawn.rows])


def best_of(better: Iterable[str], main: str) -> str:
    """Say what the best points of a dataset are the best of."""
    return (
        f"on the front of any two of {', '.join(better)}, or the best in {main} for two values of what varies"
    )


def told_of(drawn: Drawn, rows: int, best: str) -> str:
    """Say which points are drawn of how many; "" where all are. best: what some of them are there for."""
    if drawn.weight is None:
        return ""
    sampled = drawn.rows.size - drawn.best
    left = f" ({drawn.left:,} of them had no room)" if drawn.left else ""
    return (
        f"Drawn are {drawn.rows.size:,} of {rows:,} points: {drawn.best:,} {best}{left}; and a random"
        f" sample of {sampled:,} of the others. Counts in the charts are estimates for all points."
    )


def _what(dataset: Dataset, frame: pd.DataFrame, apart: list[str], study: str) -> str:
    """Say what the dataset is, and whether it is whole."""
    short = f" of {dataset.grid_points:,}; the run was cut short" if dataset.grid_points > len(frame) else ""
    axes = spanned(frame, apart) if apart else ""
    of_study = f"Study {study}: " if study else ""
    return f"{of_study}{counted(len(frame), 'point')}{short}{f': {axes}' if axes else ''}"


def _headlines(frame: pd.DataFrame, apart: list[str]) -> list[Headline]:
    """Return how many points are feasible, and the best of each result that matters."""
    usable = frame[frame["feasible"].astype(bool)]
    told = [Headline("Feasible", f"{len(usable):,} of {len(frame):,}", first_reason(frame))]
    fit = ""
    if not len(usable):
        usable, fit = frame[frame["time_s"].notna()], NOT_FEASIBLE
    told += _without_effect(frame)
    names = _BEST | ({"time_s": "Shortest pass"} if "tpot_s" in frame else {})
    for name, label in names.items():
        if varying(usable, [name]):
            row = usable.iloc[best_row(usable, name)]
            told.append(Headline(f"{label}{fit}", quantity(name, float(row[name])), _named(row, apart)))
    return told[:_MOST_HEADLINES]


def _without_effect(frame: pd.DataFrame) -> list[Headline]:
    """Return which of the user's keys change nothing at some points, if any."""
    said = [text.split("; ") for text in frame.get(NO_EFFECT, pd.Series(dtype=str)).fillna("") if text]
    keys = list(dict.fromkeys(one.partition(": ")[0] for texts in said for one in texts))
    if not keys:
        return []
    value = ", ".join(keys[:2]) + (" and others" if len(keys) > 2 else "")
    alike = " or ".join(dict.fromkeys(one.partition(": ")[2] for texts in said for one in texts))
    where = f"at {len(said):,} of {counted(len(frame), 'point')}, whose results are {alike}"
    return [Headline("Without effect", value, f"{where} (column {NO_EFFECT})")]


def first_reason(frame: pd.DataFrame) -> str:
    """Return why the first point that is not feasible is not."""
    others = frame[~frame["feasible"].astype(bool)]
    if others.empty:
        return "every point has a time and fits its memory"
    row = others.iloc[0]
    return f"point {row['point']:,}: {row['reason']}" if "point" in row else str(row["reason"])


def _named(row: pd.Series[Any], apart: list[str]) -> str:
    """Name a point by what tells it apart."""
    told = ", ".join(f"{key}={quantity(key, row[key])}" for key in apart)
    return f"point {row['point']:,}: {told}" if "point" in row else told


def _claims(dataset: Dataset, study: str) -> list[Claim]:
    if not study:
        return []
    how = report_of(study)
    return how.claims(dataset.read(how.columns))


def _figure(dataset: Dataset, study: str, serves: bool, axes: list[str]) -> bytes:
    """Return the figure that the command draws of the dataset."""
    if study:
        how = report_of(study)
        return render(lambda: how.draw(dataset.read(how.columns)))
    name = dataset.folder.shown.rstrip("/").rpartition("/")[2]
    if serves:
        frame = dataset.read(serving.columns_of(dataset.schema.names))
        lines = serving.lines_of(frame)
        return render(lambda: serving.draw(lines, f"{counted(len(frame), 'point')} of {name}"))
    frame = dataset.read(overview.columns_of(dataset.schema.names, axes))
    summaries = overview.axes_of(frame, axes)
    return render(lambda: overview.draw(summaries, f"{counted(len(frame), 'point')} of {name}"))


def _told_apart(frame: pd.DataFrame, apart: list[str]) -> str:
    """Return what colours tell best: a choice among few, or else a number, or else anything."""
    few = [name for name in apart if frame[name].nunique() <= COLOURS]
    numbers = [name for name in apart if pd.api.types.is_numeric_dtype(frame[name])]
    return first_of((*few, *numbers, *apart), apart)


def _view(
    frame: pd.DataFrame, apart: list[str], main: str, better: dict[str, str], details: Details | None
) -> View:
    """Return what the charts show first."""
    names = list(map(str, frame))
    beside = first_of(("tokens_per_s_per_user", "iteration_usd", "energy_J", "device_usd"), better)
    if main == "tokens_per_s_per_device":
        x, y, colour = beside or "ttft_s", main, _told_apart(frame, apart)
    else:
        x, y, colour = beside or first_of(apart, names) or "point", main, "bound_by"
    across, rows = (*apart, "", "")[:2]
    results = [name for name in _RESULTS if name in names and frame[name].notna().any()]
    beside_asked = [
        name for name in ("strategy", "cuts") if name in varying(frame, names) and name not in apart
    ]
    limiter = first_of(("bound_by", "decode_bound_by", "prefill_bound_by"), names)
    has_kernels = details is not None and details.kernels.name.size > 0
    parts = [MEMORY] if has_kernels else [TIME, MEMORY]
    return View(
        x=x,
        y=y,
        colour=colour,
        bars=limiter or colour,
        histogram=main,
        sort=main,
        rows=rows,
        across=across if rows else "",
        listed=("point", *apart, *beside_asked, *results),
        named=tuple(name for name in ("point", *apart, *beside_asked) if name in names),
        said=SERVED if "tpot_s" in names else SAID,
        opened=best_row(frame, main),
        parts=tuple(part for part in parts if any(name in names for name in part.columns.values())),
    )
