"""Drawing primitives of network figures: lines and rectangles in bulk, titles, colours."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import PathPatch
from matplotlib.path import Path

from fastflow.core.tables import Floats
from fastflow.reporting.colours import INK
from fastflow.reporting.placement.floorplan import Floorplan

_SWITCH, _PACKAGE, _FRAME = "#8899aa", "#f7f9fb", "#b8c4d0"


def draw_lines(axes: Axes, lines: Floats, colour: str, width: float, order: float) -> None:
    """Draw lines, of shape (lines, corners, 2), as one shape, so that the file stays small; width [pt]."""
    count, corners, _ = lines.shape
    codes = np.tile([Path.MOVETO, *[Path.LINETO] * (corners - 1)], count)
    outline = Path(lines.reshape(-1, 2), codes)
    axes.add_patch(
        PathPatch(outline, fill=False, edgecolor=colour, linewidth=width, zorder=order, capstyle="butt")
    )


def draw_boxes(
    axes: Axes, centre: Floats, half: Floats | float, face: str, edge: str, order: float, width: float = 0.5
) -> None:
    """Draw rectangles about centres, of shape (boxes, 2), as one shape."""
    corner = np.array([[-1.0, -1.0], [1.0, -1.0], [1.0, 1.0], [-1.0, 1.0], [-1.0, -1.0]]) * half
    codes = np.tile([Path.MOVETO, *[Path.LINETO] * 3, Path.CLOSEPOLY], centre.shape[0])
    outline = Path((centre[:, None, :] + corner).reshape(-1, 2), codes)
    axes.add_patch(PathPatch(outline, facecolor=face, edgecolor=edge, linewidth=width, zorder=order))


def draw_building(axes: Axes, plan: Floorplan, pitch: float) -> None:
    """Draw the frames of packages, and switches; pitch [pt]."""
    if plan.package > 1:
        draw_boxes(axes, plan.outer.centre, plan.outer.half, _PACKAGE, _FRAME, 0)
    width = min(3.0, 0.14 * pitch)
    for line in plan.outer.switches:
        draw_lines(axes, line[None], _SWITCH, width, 1)
    for line in plan.inner.switches:
        draw_lines(axes, line + plan.origin[:, None, :], _SWITCH, width, 1)


def draw_title(axes: Axes, title: str, *lines: str) -> None:
    """Write a title and up to two lines above a panel."""
    for text, size, weight, up in ((title, 9.5, "bold", 31), ("\n".join(lines), 8.5, "normal", 29)):
        axes.annotate(
            text, (0.5, 1.0), (0.0, up), "axes fraction", "offset points",
            ha="center", va="bottom" if weight == "bold" else "top", size=size, weight=weight, color=INK,
            linespacing=1.35,
        )  # fmt: skip
