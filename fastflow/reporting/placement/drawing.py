"""A figure of a placement: the ranks of every device, and the load of every link (5.2, Figure 5).

The first panel shows the ranks; each other panel shows the load of one parallel dimension.
"""

from __future__ import annotations

from io import BytesIO
from math import ceil, floor, log2
from pathlib import Path
from textwrap import fill
from typing import Any, NamedTuple

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import LinearSegmentedColormap, LogNorm, to_hex
from matplotlib.figure import Figure

from fastflow.core.errors import InputError
from fastflow.core.tables import Floats
from fastflow.core.units import show
from fastflow.performance.prediction import Prediction
from fastflow.physics.network.routing.topology import FULL, TREE
from fastflow.reporting.colours import IDLE, INK, QUIET
from fastflow.reporting.placement.floorplan import DEVICE, Floorplan, floorplan
from fastflow.reporting.placement.ranks import draw_ranks
from fastflow.reporting.placement.scene import Scene, Traffic, scene
from fastflow.reporting.placement.shapes import draw_boxes, draw_building, draw_lines, draw_title
from fastflow.reporting.placement.wiring import CUT, PLANE, WRAP, strokes

ENDINGS = (".svg", ".png", ".pdf")
_STYLE: dict[Any, Any] = {"svg.hashsalt": "fastflow", "svg.fonttype": "none", "font.family": "DejaVu Sans"}
_METADATA: dict[str, dict[str, Any]] = {
    ".svg": {"Date": None, "Creator": None}, ".png": {"Software": None}, ".pdf": {"CreationDate": None},
}  # fmt: skip
# lengths [inch]: of the picture, and of the panels at most
_WIDTH, _HEIGHT = 13.0, 5.3
_SIDE, _SPACING, _TOP, _TITLE, _BOTTOM = 0.3, 0.2, 0.6, 0.78, 1.25
_MAX_PITCH = 0.62
_MIN_PITCH_TWO_WAY = 8.0  # pitch [pt] below which the two directions of a link overlap
_LANE_OFFSET = 0.1  # offset of each direction from the middle [pitch]
_MAX_IDLE_MESH = 16  # devices of a full mesh whose idle links are drawn
_HEAT = LinearSegmentedColormap.from_list("load", ["#f2c14e", "#e8702a", "#b5179e", "#3a0ca3"])
_DEVICE, _GROUP = "#e9edf1", "#3d4f60"


class _Sheet(NamedTuple):
    """Positions of the panels [inch]."""

    columns: int
    pitch: float
    low: Floats  # corners of a panel [pitch]
    high: Floats
    height: float  # of the picture


def draw_placement(path: str | Path, prediction: Prediction, point: int) -> None:
    """Draw the placement of one point, and the number of logical edges on every link.

    path: ends in .svg, .png or .pdf. The same prediction gives the same file, byte for byte.
    Raises InputError for another ending, ValueError for a point without a time, and OSError where the
    file cannot be written.
    """
    suffix = Path(path).suffix
    if suffix not in ENDINGS:
        raise InputError("picture", str(path), "a file whose name ends in " + " or ".join(ENDINGS))
    Path(path).write_bytes(render_placement(prediction, point, suffix))


def render_placement(prediction: Prediction, point: int, suffix: str = ".svg") -> bytes:
    """Return the file of a drawing of one point's placement, one of ENDINGS.

    Raises ValueError for a point without a time.
    """
    shown = scene(prediction, point)
    file = BytesIO()
    with matplotlib.rc_context():
        matplotlib.rcdefaults()  # independent of the user's settings
        matplotlib.rcParams.update(_STYLE)
        _figure(shown).savefig(file, format=suffix[1:], dpi=150, metadata=_METADATA[suffix])
    return file.getvalue()


def _figure(shown: Scene) -> Figure:
    """Return the whole picture."""
    plan = floorplan(shown.network)
    sheet = _sheet(plan, 1 + len(shown.traffic))
    figure = Figure(figsize=(_WIDTH, sheet.height), facecolor="white")
    idle_note = f" ({plan.devices - shown.used:,} idle)" if shown.used < plan.devices else ""
    plural = "s" if plan.devices > 1 else ""
    for text, size, colour, below in (
        (f"{shown.strategy} on {plan.devices:,} device{plural}{idle_note}: {shown.system}", 13, INK, 0.24),
        (f"placement {shown.order}, innermost first", 10, QUIET, 0.5),
    ):
        figure.text(_SIDE / _WIDTH, 1 - below / sheet.height, text, size=size, color=colour, va="center")
    patches = draw_ranks(_panel(figure, sheet, 0), shown, plan, 72 * sheet.pitch)
    if patches:
        figure.legend(
            handles=patches, loc="upper left", ncols=12, frameon=False, fontsize=8, handlelength=1.2,
            columnspacing=1.1, borderpad=0, borderaxespad=0,
            bbox_to_anchor=(_SIDE / _WIDTH, (_BOTTOM - 0.3) / sheet.height),
        )  # fmt: skip

    loads = [traffic.edges[traffic.edges > 0.0] for traffic in shown.traffic]
    sorts: set[int] = set()
    if loads:
        all_loads = np.concatenate(loads)
        norm = LogNorm(all_loads.min(), max(all_loads.max(), 2 * all_loads.min()))
        for number, traffic in enumerate(shown.traffic, 1):
            sorts |= _draw_load(_panel(figure, sheet, number), shown, traffic, plan, 72 * sheet.pitch, norm)
        _scale(figure, norm, float(all_loads.min()), float(all_loads.max()), sheet)
    caption = fill(" ".join(_caption(shown, plan, 72 * sheet.pitch, sorts)), 215)
    figure.text(
        _SIDE / _WIDTH, 0.12 / sheet.height, caption, size=7.5, color=QUIET, va="bottom", linespacing=1.4
    )
    return figure


def _sheet(plan: Floorplan, panels: int) -> _Sheet:
    """Arrange panels at the largest size that fits."""
    low, high = plan.outer.low - 0.5, plan.outer.high + 0.5
    wide, tall = (high - low).tolist()

    def pitch(columns: int) -> float:
        across = (_WIDTH - 2 * _SIDE - (columns - 1) * _SPACING) / (columns * wide)
        down = (_HEIGHT / ceil(panels / columns) - _TITLE) / tall
        return float(min(across, down, _MAX_PITCH))

    columns = max(range(1, panels + 1), key=pitch)
    height = _TOP + ceil(panels / columns) * (_TITLE + pitch(columns) * tall) + _BOTTOM
    return _Sheet(columns=columns, pitch=pitch(columns), low=low, high=high, height=height)


def _panel(figure: Figure, sheet: _Sheet, number: int) -> Axes:
    """Return an empty panel that is measured in pitches."""
    row, column = divmod(number, sheet.columns)
    wide, tall = ((sheet.high - sheet.low) * sheet.pitch).tolist()
    room = (_WIDTH - 2 * _SIDE) / sheet.columns
    left = _SIDE + column * room + (room - wide) / 2
    bottom = sheet.height - _TOP - (row + 1) * (_TITLE + tall)
    axes = figure.add_axes((left / _WIDTH, bottom / sheet.height, wide / _WIDTH, tall / sheet.height))
    axes.set_axis_off()
    axes.set_xlim(sheet.low[0], sheet.high[0])
    axes.set_ylim(sheet.low[1], sheet.high[1])
    return axes


def _draw_load(
    axes: Axes, shown: Scene, traffic: Traffic, plan: Floorplan, pitch: float, norm: LogNorm
) -> set[int]:
    """Draw the load of links by one parallel dimension; returns the sorts of lines. pitch [pt]."""
    draw_building(axes, plan, pitch)
    device = np.arange(plan.drawn)
    is_mate = (device < shown.used) & (device == traffic.rank(device) * traffic.stride)
    draw_boxes(axes, plan.position[~is_mate], DEVICE, _DEVICE, "none", 2)
    draw_boxes(axes, plan.position[is_mate], DEVICE, _GROUP, "none", 2)
    offset = _LANE_OFFSET if pitch >= _MIN_PITCH_TWO_WAY else 0.0
    stroke_groups = strokes(plan, shown.network, traffic.links, traffic.edges, offset)
    width = min(max(0.06 * pitch, 0.5), 2.4)
    for group in stroke_groups:
        for value in np.unique(group.value).tolist():
            lines = group.line[group.value == value]
            if value > 0.0:
                heat = float(norm(value))
                colour = to_hex(_HEAT(heat))
                draw_lines(axes, lines, colour, width * (0.8 + 0.8 * heat), 3 + heat)
            elif _draws_idle(shown):
                draw_lines(axes, lines, IDLE, 0.6 * width, 1.5)
    draw_title(
        axes,
        f"{traffic.name}: {traffic.degree:,} ranks, {traffic.stride:,} apart",
        f"busiest link {_edges(float(traffic.edges.max()))}",
        f"{traffic.hops} hop{'s' if traffic.hops > 1 else ''}; {show(traffic.bandwidth, 'B/s')}",
    )
    return {group.sort for group in stroke_groups}


def _draws_idle(shown: Scene) -> bool:
    return not (shown.network.size[shown.network.kind == FULL] > _MAX_IDLE_MESH).any()


def _edges(count: float) -> str:
    return f"{count:.3g} edge{'s' if count != 1.0 else ''}"


def _scale(figure: Figure, norm: LogNorm, least: float, most: float, sheet: _Sheet) -> None:
    """Draw the scale of colours, with powers of two from `least` to `most`."""
    width, height_of_bar = 3.2, 0.11
    bounds = (_WIDTH - _SIDE - width, _BOTTOM - 0.42, width, height_of_bar)
    axes = figure.add_axes(
        (bounds[0] / _WIDTH, bounds[1] / sheet.height, bounds[2] / _WIDTH, bounds[3] / sheet.height)
    )
    bar = figure.colorbar(ScalarMappable(norm, _HEAT), cax=axes, orientation="horizontal")
    ticks = [2.0**power for power in range(ceil(log2(least)), floor(log2(most)) + 1)]
    bar.set_ticks(ticks, labels=[f"{tick:g}" for tick in ticks])
    bar.minorticks_off()
    bar.outline.set_visible(False)
    axes.tick_params(labelsize=7.5, length=2, color=QUIET, labelcolor=QUIET, pad=1.5)
    axes.set_title("logical edges that share a link", size=8, color=INK, pad=3, loc="left")


def _caption(shown: Scene, plan: Floorplan, pitch: float, sorts: set[int]) -> list[str]:
    """Return the notes below the figure."""
    network = shown.network
    notes: list[str] = []
    if plan.drawn < plan.devices:
        notes.append(f"Drawn: the first {plan.drawn:,} of {plan.devices:,} devices.")
    if not shown.traffic:
        return notes
    notes.append("Dark: the group of ranks that device 0 is in.")
    if pitch >= _MIN_PITCH_TWO_WAY:
        notes.append("A link's two directions are side by side, each to the right of its way.")
    else:
        notes.append("Of a link's two directions the busier one is drawn.")
    notes.append("Grey links are idle." if _draws_idle(shown) else "Idle links are not drawn.")
    names = {traffic.name for traffic in shown.traffic}
    if names != {"pp"}:
        notes.append("A ring has an edge each way between neighbours, of half of the bytes.")
    if "pp" in names:
        notes.append("pp: activations forward or gradients backward, whichever load a link more.")
    if WRAP in sorts:
        notes.append("Stubs at an edge lead to the opposite one.")
    if PLANE in sorts:
        notes.append("Slanting stubs lead to the planes before and after.")
    if CUT in sorts:
        notes.append("Other stubs lead to devices that are not drawn.")
    if plan.package > 1 and (network.level == 1).any():
        rails = f"the busiest of its {plan.package} devices' links is drawn"
        notes.append(f"A package's frame stands for all of it between packages: {rails}.")
    if (network.kind == TREE).any():
        notes.append("Between leaf switches and spine, edges are those of one cable of a device's bandwidth.")
    if shown.has_layer_strategies:
        notes.append("Kinds of layer with a cut of their own exchange otherwise than shown.")
    return notes
