"""Columns of a frame of points, and its figure."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pandas as pd

from fastflow.config.messages import pluralize
from fastflow.schema import ALL, SOME

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_TEXT_COLUMNS = ("model", "chip", "tech", "mem", "net", "strategy", "reason", "reason_code")
_DTYPE_KINDS = {"point": "i", "time_s": "f", "feasible": "b"}
"""Columns of a frame of points, and the kinds of their dtypes."""


def has_all_columns(frame: pd.DataFrame) -> bool:
    """Return whether a frame has points and all of their columns: those with units and the texts."""
    names = set(frame.columns)
    return (
        len(frame) > 0
        and frame.columns.is_unique
        and bool(frame.attrs.get("units"))
        and names.issuperset((*frame.attrs["units"], *_TEXT_COLUMNS, *_DTYPE_KINDS))
        and all(frame[name].dtype.kind == kind for name, kind in _DTYPE_KINDS.items())
    )


def axes_of(frame: pd.DataFrame) -> list[str]:
    """Return the swept columns, or the columns that vary if the axes are unknown."""
    from fastflow.reporting.charts.overview import stored_columns, swept_columns

    axes = stored_columns(json.loads(frame.attrs.get("fastflow.axes", "[]")))
    return [name for name in axes if name in frame] or swept_columns(frame)


def served_points(frame: pd.DataFrame) -> str:
    """Return which of the points serve, by their columns: `schema.ALL`, SOME or "" for none."""
    return "" if "tpot_s" not in frame else SOME if "bound_by" in frame else ALL


def draw(frame: pd.DataFrame) -> Figure:
    """Draw points as their command does: the figure of a study, of servers, or of the axes of a grid."""
    from fastflow.reporting.charts import overview, serving
    from fastflow.reporting.charts.style import figure_style
    from fastflow.reporting.studies import report_of
    from fastflow.schema.studies import STUDIES

    title = pluralize(len(frame), "point")
    with figure_style():
        study = frame.attrs.get("fastflow.report")
        if study in STUDIES and len(frame) == int(frame.attrs["fastflow.points"]):
            return report_of(study).draw(frame)
        if served_points(frame) == ALL:
            return serving.draw(serving.lines_of(frame), f"Serving: {title}")
        return overview.draw(overview.axes_of(frame, axes_of(frame)), title)
