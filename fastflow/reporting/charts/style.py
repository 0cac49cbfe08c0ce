"""Style of the figures, and rendering to files."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from io import BytesIO
from textwrap import wrap
from typing import TYPE_CHECKING, Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from fastflow.config.messages import pluralize
from fastflow.reporting.colours import INK, QUIET

if TYPE_CHECKING:
    import pandas as pd

SEQUENTIAL = ("#f2c14e", "#e8702a", "#b5179e", "#3a0ca3")
"""Colours of ordered choices, such as generations of a memory."""
LIMITERS = {
    "compute": "#3d4f60", "l0": "#d5e8dc", "l1": "#97c6ac", "l2": "#3f9270", "l3": "#2a6b51", "l4": "#174633",
    "dram": "#e8702a", "launch": "#dcdcdc",
}  # fmt: skip
"""Colours of the limiters of kernels; on-chip memories are greens."""
QUALITATIVE = (
    "#26547c", "#ef476f", "#06a77d", "#ff9f1c", "#7b2cbf", "#a44a3f", "#118ab2", "#5c677d",
)  # fmt: skip
"""Colours of unordered choices."""
_STYLE: dict[Any, Any] = {
    "svg.hashsalt": "fastflow", "svg.fonttype": "none", "font.family": "DejaVu Sans", "font.size": 8.5,
    "axes.titlesize": 9.5, "axes.titleweight": "bold", "axes.titlecolor": INK, "axes.titlelocation": "left",
    "axes.labelcolor": QUIET, "axes.edgecolor": "#b8c4d0", "axes.linewidth": 0.8, "axes.axisbelow": True,
    "axes.spines.top": False, "axes.spines.right": False, "axes.grid": True, "axes.grid.axis": "y",
    "grid.color": "#e9edf1", "grid.linewidth": 0.8, "xtick.color": QUIET, "ytick.color": QUIET,
    "xtick.bottom": False, "ytick.left": False, "legend.frameon": False, "figure.facecolor": "white",
}  # fmt: skip
_METADATA: dict[str, dict[str, Any]] = {
    "svg": {"Date": None, "Creator": None}, "png": {"Software": None}, "pdf": {"CreationDate": None},
}  # fmt: skip


@contextmanager
def figure_style() -> Iterator[None]:
    """Context with fastflow's style, independent of the user's settings."""
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(_STYLE)
        yield


def render(draw: Callable[[], Figure], kind: str = "svg") -> bytes:
    """Return the file of a figure, as svg, png or pdf; the same figure gives the same bytes."""
    file = BytesIO()
    with figure_style():
        draw().savefig(file, format=kind, dpi=150, metadata=_METADATA[kind])
    return file.getvalue()


def memory_note(frame: pd.DataFrame) -> str:
    """Return a note on the points with a time that fit their memory: "84 points, none fits its memory"."""
    feasible = frame.loc[frame["time_s"].notna(), "feasible"].astype(bool)
    points, fit = len(feasible), int(feasible.sum())
    if fit in (0, points):
        verb = "fit their memory" if points > 1 and fit else "fits its memory"
        return f"{pluralize(points, 'point')}, {'none ' if not fit else 'all ' if points > 1 else ''}{verb}"
    rest_note = "1 does not fit its" if points - fit == 1 else f"{points - fit:,} do not fit their"
    return f"{points:,} points, {rest_note} memory"


_LETTER_WIDTH = 0.068  # width of a letter at 9 pt, on average [in]


def draw_heading(figure: Figure, title: str, about: str) -> None:
    """Write a title, and one or two lines below it, at the upper left of a figure."""
    width, height = figure.get_size_inches()
    about = "\n".join(wrap(about, int((width - 0.4) / _LETTER_WIDTH)))
    for text, size, colour, weight, below in (
        (title, 12, INK, "bold", 0.19),
        (about, 9, QUIET, "normal", 0.445),
    ):
        figure.text(0.3 / width, 1.0 - below / height, text, size=size, color=colour, weight=weight, va="top")


def draw_limiter_legend(figure: Figure, left: float, bottom: float) -> None:
    """Draw the legend of the limiters in a figure; left, bottom: as shares of its size."""
    shown = {
        box.get_label()
        for axes in figure.axes
        for box in axes.containers
        if any(bar.get_height() > 0.0 for bar in box)
    }
    patches = [Patch(color=colour, label=name) for name, colour in LIMITERS.items() if name in shown]
    if patches:
        figure.legend(
            handles=patches, ncols=len(patches), loc="lower left", bbox_to_anchor=(left, bottom),
            handlelength=1.2, columnspacing=1.4, borderaxespad=0.0,
        )  # fmt: skip


def draw_limiter_shares(axes: Axes, labels: Sequence[str], shares: dict[str, list[float]]) -> None:
    """Draw shares of kernel time by limiter, a column a label. shares: limiter to a value a label."""
    bottom = [0.0] * len(labels)
    for name, values in shares.items():
        axes.bar(range(len(labels)), values, bottom=bottom, width=0.74, color=LIMITERS[name], label=name)
        bottom = [low + value for low, value in zip(bottom, values, strict=True)]
    axes.set_xticks(range(len(labels)), labels)
    axes.set_xlim(-0.6, len(labels) - 0.4)
    axes.set_ylim(0.0, 1.0)
    axes.set_yticks([0.0, 0.25, 0.5, 0.75, 1.0], ["0%", "25%", "50%", "75%", "100%"])
    axes.grid(visible=False)


def display_name(name: str) -> str:
    """Write a choice of the library as the paper does: n1_4, hbm2e and ndr_x8 as N1.4, HBM2e and NDR-x8."""
    if name.startswith("hbm"):
        return name.replace("hbm", "HBM")
    if name.endswith("_x8"):
        return f"{name.removesuffix('_x8').upper()}-x8"
    return name.replace("_", ".").upper() if name[:1] == "n" and name[1:2].isdigit() else name
