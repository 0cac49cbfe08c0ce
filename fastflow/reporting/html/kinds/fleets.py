"""Pages of searches over fleets, and of their capacity plans."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import pandas as pd

from fastflow.config.messages import pluralize
from fastflow.engine.dataset.kinds import PLAN
from fastflow.engine.dataset.reader import Dataset
from fastflow.reporting.charts.fleet_search import columns_of_keys, draw_front, draw_plan
from fastflow.reporting.charts.style import render
from fastflow.reporting.html.columns import page_title, provenance_of, quantities
from fastflow.reporting.html.content import Headline, Page, PointTable, View
from fastflow.reporting.terminal.fleet_search import result_columns, stopped
from fastflow.reporting.terminal.tables import quantity


def page_of(dataset: Dataset) -> Page:
    """Return the page of the configurations of a search over fleets, or of its plan; raises InputError."""
    is_plan, about = dataset.kind == PLAN, dataset.mapping("fleets")
    order = "period" if is_plan else "rank"
    frame = dataset.read(dataset.schema.names).sort_values(order, ignore_index=True)
    keys = columns_of_keys(about, frame)
    listed = (order, *keys, *result_columns(about, frame, keys))
    x, y = ("period_start_s", "devices") if is_plan else ("devices", about["pareto"] or "ttft_p99_s")
    draws = is_plan or about["pareto"]
    draw = partial(draw_plan if is_plan else draw_front, frame, about)
    noun = "period" if is_plan else "fleet"
    return Page(
        title=page_title(dataset, "Capacity plan" if is_plan else "Search over fleets"),
        summary=f"{pluralize(len(frame), noun)} by {about['objective']}",
        provenance=[
            *provenance_of(dataset, "search"),
            ("constraints", ", ".join(about["constraints"]) or "none"),
        ],
        headlines=[*_counts(frame, about, is_plan)],
        claims=[],
        figure=render(draw) if draws and len(frame) else b"",
        points=quantities(dataset, frame),
        total=len(frame),
        sample_note="",
        weight=None,
        fronts=(),
        view=View(
            x=x,
            y=y,
            colour="model",
            bars="model",
            histogram=y,
            table=PointTable(listed),
            named=(order, *keys),
            log=False,
        ),
        details=None,
        missing_note="",
    )


def _counts(frame: pd.DataFrame, about: Mapping[str, Any], is_plan: bool) -> list[Headline]:
    """Return how many configurations were simulated, and the best objective."""
    if is_plan:
        planned = int(frame["point"].notna().sum())
        return [
            Headline("Periods with a fleet", f"{planned:,} of {len(frame):,}", "that meets the constraints")
        ]
    simulated = f"{about['simulated']:,} of {about['points']:,}{stopped(about)}"
    headlines = [Headline("Configurations simulated", simulated, "bounds exclude the others")]
    if len(frame) and frame["meets_constraints"].iloc[0]:
        value = quantity(about["objective"], frame[about["objective"]].iloc[0])
        headlines.append(Headline(f"Best {about['objective']}", value, "of those that meet the constraints"))
    return headlines
