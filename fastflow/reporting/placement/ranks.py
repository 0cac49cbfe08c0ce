"""The panel of ranks: as colours, and as text if it fits."""

from __future__ import annotations

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_hex, to_rgb
from matplotlib.patches import Patch

from fastflow.core.tables import Ints
from fastflow.reporting.colours import IDLE, INK
from fastflow.reporting.placement.floorplan import Floorplan
from fastflow.reporting.placement.scene import Scene, Traffic
from fastflow.reporting.placement.shapes import draw_boxes, draw_building, draw_title

_HALF_TILE = 0.45  # half a device's side, where no links are drawn [pitch]
_MAX_LABELLED = 64
_MIN_TEXT, _MAX_TEXT = 4.5, 9.0  # [pt]
_MAX_SHADES = 4
_LIGHTEST = 0.62  # share of white
_ALTERNATE_WHITE = 0.3  # share of white in every second of many ranks, to distinguish neighbours
# of Okabe and Ito, Color universal design (2008), without black, and grey
_HUES = ("#56b4e9", "#e69f00", "#009e73", "#cc79a7", "#f0e442", "#0072b2", "#d55e00", "#999999")
_GRADIENT = "viridis"  # for more ranks than hues
_NAMES = {
    "kp1": "kernel rank (kp1)", "kp2": "kernel rank (kp2)", "tp": "tensor rank (tp)",
    "cp": "context rank (cp)", "ep": "expert rank (ep)", "dp": "data-parallel rank (dp)",
    "pp": "pipeline stage (pp)",
}  # fmt: skip
_LETTERS = {"kp1": "k", "kp2": "k", "tp": "t", "cp": "c", "ep": "e", "dp": "d", "pp": "p"}
_COLOUR_PRIORITY = ("dp", "pp", "kp1", "kp2", "tp", "cp", "ep")
"""Parallel dimensions in the order of preference for hue and lightness."""


def draw_ranks(axes: Axes, shown: Scene, plan: Floorplan, pitch: float) -> list[Patch]:
    """Draw every device in the colour of its rank; returns the legend's patches. pitch [pt].

    Hue shows data-parallel ranks, and lightness stages; without these, kernel ranks.
    """
    draw_building(axes, plan, pitch)
    hue, shade = _colour_dimensions(shown)
    device = np.arange(plan.drawn)
    colours = np.array([_colour(hue, shade, index) for index in device.tolist()], dtype=object)
    is_idle = device >= shown.used
    for colour in dict.fromkeys(colours[~is_idle].tolist()):
        draw_boxes(axes, plan.position[~is_idle & (colours == colour)], _HALF_TILE, colour, "white", 2)
    if is_idle.any():
        draw_boxes(axes, plan.position[is_idle], _HALF_TILE - 0.05, "white", IDLE, 2)
    has_text = plan.drawn <= _MAX_LABELLED and _write_ranks(axes, shown, plan, pitch, colours.tolist())
    notes = [f"colour: {_NAMES[hue.name]}"] if hue else ["no parallel dimension"]
    notes += [f"light to dark: {_NAMES[shade.name]}"] if shade else []
    notes += ["" if shade else "text: ranks"] if has_text else []
    draw_title(axes, "Who sits where", *notes[:2])
    return _legend_patches(hue, shade)


def _colour_dimensions(shown: Scene) -> tuple[Traffic | None, Traffic | None]:
    """Return the dimensions of hue and of lightness: data parallelism first, the outermost."""
    dimensions = sorted(shown.traffic, key=lambda traffic: _COLOUR_PRIORITY.index(traffic.name))
    hue, shade = (*dimensions, None, None)[:2]
    if hue is None or shade is None or hue.degree > len(_HUES) or shade.degree > _MAX_SHADES:
        shade = None
    return hue, shade


def _colour(hue: Traffic | None, shade: Traffic | None, device: int) -> str:
    if hue is None:
        return "#e6e6e6"
    rank = _rank(hue, device)
    if hue.degree > len(_HUES):
        colour = matplotlib.colormaps[_GRADIENT](rank / (hue.degree - 1))[:3]
        return _lighter(colour, _ALTERNATE_WHITE * (rank % 2))
    white = _LIGHTEST / 2
    if shade is not None:
        white = _LIGHTEST * (1.0 - _rank(shade, device) / (shade.degree - 1))
    return _lighter(to_rgb(_HUES[rank]), white)


def _rank(traffic: Traffic, device: int) -> int:
    return device // traffic.stride % traffic.degree


def _lighter(colour: tuple[float, ...], white: float) -> str:
    red, green, blue = (part + (1.0 - part) * white for part in colour)
    return to_hex((red, green, blue))


def _text(shown: Scene, device: int) -> str:
    """Write a device's ranks, such as k0,1 above d2 p1."""
    ranks = [(_LETTERS[traffic.name], str(_rank(traffic, device))) for traffic in shown.traffic]
    kernel = ",".join(rank for letter, rank in ranks if letter == "k")
    others = " ".join(letter + rank for letter, rank in ranks if letter != "k")
    return "\n".join(line for line in (f"k{kernel}" if kernel else "", others) if line)


def _write_ranks(axes: Axes, shown: Scene, plan: Floorplan, pitch: float, colours: list[str]) -> bool:
    """Write ranks on devices if they fit; returns whether they do."""
    texts = [_text(shown, device) for device in range(min(plan.drawn, shown.used))]
    longest = max(len(line) for text in texts for line in text.split("\n"))
    # DejaVu Sans: a character is some 0.6 of its size wide, a line 1.2 high
    size = min(_MAX_TEXT, 2 * _HALF_TILE * pitch / max(0.62 * (longest + 0.6), 3.0))
    if size < _MIN_TEXT or not longest:
        return False
    for text, (x, y), behind in zip(texts, plan.position.tolist(), colours, strict=False):
        # luma of Rec. 601
        is_dark = float(np.dot(to_rgb(behind), (0.299, 0.587, 0.114))) < 0.45
        ink = "white" if is_dark else INK
        axes.text(x, y, text, size=size, color=ink, ha="center", va="center", zorder=3, linespacing=1.1)
    return True


def _legend_patches(hue: Traffic | None, shade: Traffic | None) -> list[Patch]:
    """Return a patch for every hue and every shade; for many ranks, samples of the gradient."""
    if hue is None:
        return []
    ranks: Ints = np.arange(hue.degree)
    if hue.degree > len(_HUES):
        ranks = np.unique(np.linspace(0, hue.degree - 1, 6).round().astype(np.int64))
    patches = [
        Patch(color=_colour(hue, None, int(rank) * hue.stride), label=f"{hue.name} {rank}") for rank in ranks
    ]
    for rank in range(shade.degree if shade else 0):
        white = _LIGHTEST * (1.0 - rank / (shade.degree - 1)) if shade else 0.0
        patches.append(
            Patch(color=_lighter((0.4,) * 3, white), label=f"{shade.name if shade else ''} {rank}")
        )
    return patches
