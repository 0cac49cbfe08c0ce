"""What a frame of points holds, and the figure of it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pandas as pd

from fastflow.config.messages import counted
from fastflow.schema import ALL, SOME

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_TEXTS = ("model", "chip", "tech", "mem", "net", "strategy", "reason")
_KINDS = {"point": "i", "time_s": "f", "feasible": "b"}
"""Columns that a frame of points has, and the kinds of their types."""


def is_whole(frame: pd.DataFrame) -> bool:
    """Say whether a frame has points, and all of their columns: those with units, and what they are."""
    names = set(frame.columns)
    return (
        len(frame) > 0
        and frame.columns.is_unique
        and bool(frame.attrs.get("units"))
        and names.issuperset((*frame.attrs["units"], *_TEXTS, *_KINDS))
        and all(frame[name].dtype.kind == kind for name, kind in _KINDS.items())
    )


def axes_of(frame: pd.DataFrame) -> list[str]:
    """Return the columns of what was swept, or of what varies where that is not known."""
    from fastflow.reporting.charts.overview import stored, swept

    asked = stored(json.loads(frame.attrs.get("fastflow.axes", "[]")))
    return [name for name in asked if name in frame] or swept(frame)


def served_of(frame: pd.DataFrame) -> str:
    """Say which of the points serve, by their columns: `schema.ALL`, SOME or "" for none."""
    return "" if "tpot_s" not in frame else SOME if "bound_by" in frame else ALL


def draw(frame: pd.DataFrame) -> Figure:
    """Draw points as their command does: the figure of a study, of servers, or of the axes of a grid."""
    from fastflow.reporting.charts import overview, serving
    from fastflow.reporting.charts.style import styled
    from fastflow.reporting.studies import report_of
    from fastflow.schema.studies import STUDIES

    title = counted(len(frame), "point")
    with styled():
        study = frame.attrs.get("fastflow.report")
        if study in STUDIES and len(frame) == int(frame.attrs["fastflow.points"]):
            return report_of(study).draw(frame)
        if served_of(frame) == ALL:
            return serving.draw(serving.lines_of(frame), f"Serving: {title}")
        return overview.draw(overview.axes_of(frame, axes_of(frame)), title)
