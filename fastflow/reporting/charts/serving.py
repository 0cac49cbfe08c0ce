"""Figures of points that serve: throughput of a device against that of a user, and latency over load."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fastflow.config.messages import pluralize
from fastflow.core import units
from fastflow.core.pareto import nondominated
from fastflow.core.reasons.codes import Code
from fastflow.core.tables import Ints
from fastflow.performance.serving.slo import COMPARED
from fastflow.reporting.charts.overview import choice_columns, label, swept_columns
from fastflow.reporting.charts.style import QUALITATIVE, display_name, draw_heading
from fastflow.reporting.colours import INK, QUIET
from fastflow.reporting.dataset_title import points_title

if TYPE_CHECKING:
    from fastflow.engine.dataset.reader import Dataset

_LATENCIES = {f"{name}_s": compared for name, compared in COMPARED.items()}
"""Mean latencies, and the columns that limits compare with."""
USER, DEVICE, PROMPTS = "tokens_per_s_per_user", "tokens_per_s_per_device", "prefill_tokens_per_s_per_device"
REQUIRED = (
    "point", "time_s", *_LATENCIES, USER, DEVICE, "prefill_tokens_per_s", "joules_per_token", "devices",
    "feasible", "reason",
)  # fmt: skip
REASON_CODE = "reason_code"
_MAX_TICKS = 10
_FRONT_COLOUR = "#f2e3bd"
_OTHERS_COLOUR = "#c9d3dc"
LOADS = {
    "serve.concurrency": "requests at a time",
    "serve.request_rate": "requests a second",
    "serve.batch": "sequences of the pass",
    "serve.trace_speed": "speed of the trace",
}
"""Inputs that set the load of a server: a line runs through their values."""
_TITLES = {
    "ttft_s": ("Time to the first token", "mean time to the first token"),
    "ttft_slo_s": ("Time to the first token", "time to the first token that serve.slo limits"),
    "tpot_s": ("Time per further token", "mean time per further token"),
    "tpot_slo_s": ("Time per further token", "time per further token that serve.slo limits"),
    PROMPTS: ("Prompts that a device reads", "tokens of prompts per second and device [1/s]"),
}


class Lines(NamedTuple):
    """Points that serve, grouped into lines that vary in their load only."""

    frame: pd.DataFrame  # points with results and enough memory, with columns `line` and `late`
    names: list[str]  # of lines
    load: str  # the column along a line; "" if no load varies
    front: Ints  # rows of the frame on the overall front, fewest tokens per user first


def columns_of(names: Sequence[str]) -> list[str]:
    """Return the columns of a dataset that figures and tables of served points read."""
    optional = (
        name for name in (*COMPARED.values(), REASON_CODE) if name in names
    )  # older datasets lack some
    return list(dict.fromkeys([*choice_columns(names), *REQUIRED, *optional]))


def has_code(frame: pd.DataFrame, code: Code) -> pd.Series[bool]:
    """Say which points have a reason of a code; none of a dataset of an older version."""
    codes = frame[REASON_CODE] if REASON_CODE in frame else pd.Series("", index=frame.index)
    return codes.eq(code.label)


def latencies_of(frame: pd.DataFrame) -> list[str]:
    """Return the latency columns: those that limits compare with if all points have them, or means."""
    has_limit = {
        mean: compared in frame and bool((frame[compared].notna() >= frame[mean].notna()).all())
        for mean, compared in _LATENCIES.items()
    }
    return [compared if has_limit[mean] else mean for mean, compared in _LATENCIES.items()]


def lines_of(frame: pd.DataFrame) -> Lines:
    """Group points by all axes but their load; frame: `columns_of` a dataset."""
    ordered = frame[["chip", *(name for name in frame if name != "chip" and name not in LOADS)]]
    keys = swept_columns(ordered)  # of a chip and its default memory, the chip
    load = next((name for name in LOADS if name in frame and len(frame[name].unique()) > 1), "")
    late = ~frame["feasible"] & has_code(frame, Code.SLO)
    usable = frame["time_s"].notna() & (frame["feasible"] | late)
    texts = [
        frame[key].map(lambda value, key=key: display_name(label(key, value))).astype(str) for key in keys
    ]
    line = pd.concat(texts, axis=1).agg(", ".join, axis=1) if texts else "all points"
    labelled = frame.assign(
        line=line, late=late, **{PROMPTS: frame["prefill_tokens_per_s"] / frame["devices"]}
    )
    valid = labelled[usable].reset_index(drop=True)
    names = list(dict.fromkeys(valid["line"]))
    rates = valid.loc[~valid["late"], [USER, DEVICE]].dropna()
    order_of_front = nondominated(-rates[USER].to_numpy(), -rates[DEVICE].to_numpy())[::-1]
    return Lines(valid, names, load, rates.index.to_numpy()[order_of_front])


def draw_dataset(dataset: Dataset) -> Figure:
    """Draw points that serve as `draw`; raises InputError where the dataset has others."""
    frame = dataset.read(columns_of(dataset.schema.names))
    return draw(lines_of(frame), f"Serving: {points_title(dataset, pluralize(len(frame), 'point'))}")


def draw(lines: Lines, title: str) -> Figure:
    """Draw the front of the token rates of devices and users, and the latencies over load."""
    frame = lines.frame
    has_front = bool(frame[USER].notna().any())
    panels = [USER] if has_front else [PROMPTS] if lines.load else []
    latencies = latencies_of(frame)
    panels += [
        name for name in latencies[: 1 if has_front and frame["ttft_s"].notna().any() else 2] if lines.load
    ]
    panels = [name for name in panels if name in (USER, PROMPTS) or frame[name].notna().any()]
    width = 1.0 + 4.9 * max(len(panels), 1) + 1.6
    figure = Figure(figsize=(width, 4.7))
    late = int(frame["late"].sum())
    late_note = f"; hollow: {late:,} that miss serve.slo" if late else ""
    load_note = f"lines run through {LOADS[lines.load]}" if lines.load else "one load"
    draw_heading(figure, title, load_note + late_note)
    if not panels:
        return figure
    grid = figure.add_gridspec(
        1, len(panels), left=0.85 / width, right=1.0 - 2.3 / width, bottom=0.135, top=0.81, wspace=0.27,
        width_ratios=[1.25 if name == USER else 1.0 for name in panels],
    )  # fmt: skip
    colours = _colours(lines)
    for column, name in enumerate(panels):
        axes = figure.add_subplot(grid[0, column])
        if name == USER:
            _draw_front(axes, lines, colours)
        else:
            _draw_over_load(axes, lines, colours, name)
    _draw_legend(figure, lines, colours)
    return figure


def _colours(lines: Lines) -> dict[str, str]:
    """Return the colours of lines; of many, those of the front and the first have distinct colours."""
    by_priority = dict.fromkeys([*lines.frame.loc[lines.front, "line"], *lines.names])
    selected = set(list(by_priority)[: len(QUALITATIVE)])
    coloured = [name for name in lines.names if name in selected]
    return dict.fromkeys(lines.names, _OTHERS_COLOUR) | dict(zip(coloured, QUALITATIVE, strict=False))


def _draw_front(axes: Axes, lines: Lines, colours: dict[str, str]) -> None:
    frame = lines.frame
    front = frame.loc[lines.front]
    axes.plot(
        front[USER], front[DEVICE], color=_FRONT_COLOUR, linewidth=9.0, solid_capstyle="round", zorder=1,
        solid_joinstyle="round",
    )  # fmt: skip
    for name, colour in colours.items():
        rows = frame[frame["line"] == name]
        if lines.load:
            rows = rows.sort_values(lines.load, kind="stable")
        _draw_line(axes, rows, USER, DEVICE, colour, bool(lines.load))
    axes.plot(
        front[USER], front[DEVICE], "o", markersize=8.0, markerfacecolor="none", markeredgecolor=INK,
        markeredgewidth=0.9, zorder=5, clip_on=False,
    )  # fmt: skip
    if lines.load and len(front):
        _label_ends(axes, lines, front)
    axes.set(xlim=(0.0, 1.08 * frame[USER].max()), ylim=(0.0, 1.1 * frame[DEVICE].max()))
    axes.set_title("Tokens of a device against those of a user")
    axes.set_xlabel("tokens per second and user [1/s]")
    axes.set_ylabel("tokens per second and device [1/s]")
    axes.yaxis.set_major_formatter("{x:,.0f}")
    axes.grid(axis="x")


def _label_ends(axes: Axes, lines: Lines, front: pd.DataFrame) -> None:
    """Label both ends of the front with their loads."""
    suffix = " at a time" if lines.load == "serve.concurrency" else ""
    for row, ends in ((front.iloc[0], (7, 5)), (front.iloc[-1], (7, 4)))[: len(front)]:
        axes.annotate(
            f"{row[lines.load]:,.4g}{suffix}",
            (row[USER], row[DEVICE]), xytext=ends, textcoords="offset points", size=7.5, color=QUIET,
        )  # fmt: skip


def _draw_line(axes: Axes, rows: pd.DataFrame, x: str, y: str, colour: str, has_line: bool) -> None:
    """Draw the points of a line; late points are hollow."""
    zorder = 2 if colour == _OTHERS_COLOUR else 3
    if has_line:
        axes.plot(rows[x], rows[y], color=colour, linewidth=1.5, zorder=zorder)
    for late, face in ((True, "white"), (False, colour)):
        group = rows[rows["late"] == late]
        axes.plot(
            group[x], group[y], "o", color=colour, markersize=4.5, markerfacecolor=face, markeredgewidth=1.2,
            zorder=zorder + 1, clip_on=False,
        )  # fmt: skip


def _draw_over_load(axes: Axes, lines: Lines, colours: dict[str, str], name: str) -> None:
    frame, (title, ylabel) = lines.frame, _TITLES[name]
    largest, smallest = frame[name].max(), frame[name].min()
    _, scale, unit = (1.0, 1.0, "") if name == PROMPTS else units.scale_of(largest, "s")
    for line, colour in colours.items():
        rows = frame[frame["line"] == line].sort_values(lines.load, kind="stable")
        _draw_line(axes, rows.assign(shown=rows[name] / scale), lines.load, "shown", colour, True)
    if largest > 20.0 * smallest:
        axes.set_yscale("log")
    else:
        axes.set_ylim(0.0, 1.1 * largest / scale)
    loads = np.unique(frame[lines.load].to_numpy(dtype=np.float64))
    if loads[0] > 0.0 and loads[-1] > 8.0 * loads[0]:
        axes.set_xscale("log")
        shown = loads[:: -(-loads.size // _MAX_TICKS)]
        axes.set_xticks(shown, [f"{load:,.4g}" for load in shown])
        axes.set_xticks([], [], minor=True)
    else:
        axes.set_xlim(0.0, 1.08 * loads[-1])
    axes.set_title(title)
    axes.set_xlabel(LOADS[lines.load])
    axes.set_ylabel(f"{ylabel} [{unit}]" if unit else ylabel)


def _draw_legend(figure: Figure, lines: Lines, colours: dict[str, str]) -> None:
    """Draw the legend of lines, right of the panels."""
    from matplotlib.lines import Line2D

    handles: list[Any] = [
        Line2D([], [], color=colour, marker="o", markersize=4.5, linewidth=1.5, label=_short(name))
        for name, colour in colours.items()
        if colour != _OTHERS_COLOUR
    ]
    others = sum(colour == _OTHERS_COLOUR for colour in colours.values())
    if others:
        handles.append(
            Line2D([], [], color=_OTHERS_COLOUR, marker="o", markersize=4.5, label=f"{others:,} others")
        )
    if lines.frame[USER].notna().any():
        band = Line2D(
            [], [], color=_FRONT_COLOUR, linewidth=7.0, marker="o", markersize=7.0, label="overall front"
        )
        band.set(markerfacecolor="none", markeredgecolor=INK)
        handles.append(band)
    width = figure.get_size_inches()[0]
    figure.legend(
        handles=handles, loc="upper left", bbox_to_anchor=(1.0 - 2.15 / width, 0.83), labelspacing=0.75,
        borderaxespad=0.0, handlelength=1.8,
    )  # fmt: skip


def _short(name: str) -> str:
    return name if len(name) <= 26 else name[:25] + "…"
