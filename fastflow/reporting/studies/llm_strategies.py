"""The best layouts of transformers over devices: strategies, MFU, and the breakdown of time."""

from __future__ import annotations

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fastflow.core.units import percent
from fastflow.reporting.charts.style import draw_heading
from fastflow.reporting.studies.claims import Claim
from fastflow.schema.results import EXPOSED

_PARTS = {
    "attention": (("attention_s",), "#3d5a80"),
    "feed forward and experts": (("feed_forward_s", "experts_s"), "#98c1d9"),
    "embedding, head and other": (("lm_head_s", "other_s", "optimizer_s"), "#d9d9d9"),
    "exposed communication": (
        tuple(column for name, column in EXPOSED.items() if name not in ("offload", "host", "joint")),
        "#ee6c4d",
    ),
    "bubble": (("bubble_s",), "#f2c14e"),
}
"""Columns of the parts of an iteration, and their colours."""
COLUMNS = (
    "model", "devices", "strategy", "time_s", "mfu", "feasible",
    *(name for names, _ in _PARTS.values() for name in names),
)  # fmt: skip


def claims(frame: pd.DataFrame) -> list[Claim]:
    """Return no claims: no paper makes a claim on these points."""
    return []


def draw(frame: pd.DataFrame) -> Figure:
    """Draw the breakdown of the time of every point, a panel a model, without points that lack memory."""
    frame = frame[frame["feasible"].astype(bool) & frame["time_s"].notna()]
    models = list(dict.fromkeys(frame["model"].astype(str)))
    figure = Figure(figsize=(13.0, 5.6))
    about = "shares of an iteration by devices, and the share of their peak that the model's operations reach"
    draw_heading(figure, "The best layout of a transformer", about)
    panels = figure.add_gridspec(
        1, max(1, len(models)), left=0.05, right=0.985, bottom=0.31, top=0.8, wspace=0.1
    )
    for index, model in enumerate(models):
        axes = figure.add_subplot(panels[0, index])
        _draw_model(axes, frame[frame["model"] == model].sort_values("devices"))
        axes.set_title(model, pad=18)
    if models:
        figure.axes[0].set_ylabel("share of the iteration")
        handles, names = figure.axes[0].get_legend_handles_labels()
        figure.legend(handles, names, ncols=len(names), loc="lower left", bbox_to_anchor=(0.045, 0.01))
    return figure


def _draw_model(axes: Axes, rows: pd.DataFrame) -> None:
    """Draw a bar a point, named by its devices and its layout."""
    time, bottom = rows["time_s"].to_numpy(), 0.0 * rows["time_s"].to_numpy()
    positions = range(len(rows))
    for name, (columns, colour) in _PARTS.items():
        share = rows[list(columns)].fillna(0.0).sum(axis=1).to_numpy() / time
        axes.bar(positions, share, bottom=bottom, width=0.74, color=colour, label=name)
        bottom = bottom + share
    for position, mfu in enumerate(rows["mfu"]):
        axes.text(position, 1.02, percent(mfu), ha="center", va="bottom", size=8)
    labels = [
        f"{devices:,}\n{strategy}"
        for devices, strategy in zip(rows["devices"], rows["strategy"], strict=True)
    ]
    axes.set_xticks(positions, labels, rotation=40, ha="right", size=8)
    axes.set_ylim(0.0, 1.0)
    axes.set_yticks([0.0, 0.25, 0.5, 0.75, 1.0], ["0%", "25%", "50%", "75%", "100%"])
    axes.grid(visible=False)
