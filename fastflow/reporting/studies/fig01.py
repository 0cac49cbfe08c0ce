"""Computation intensity of one product, by degree of parallelism and strategy (section 2, Figure 1)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fastflow.core.tables import Floats
from fastflow.physics.parallelism.strategy import COLUMN_ROW, parse
from fastflow.reporting.charts.style import SCALE, head
from fastflow.reporting.studies.claims import MUCH, Claim, judge

DEGREES = tuple(2**power for power in range(1, 17))
"""Devices of the paper's figure."""
COLUMNS = ("strategy", "devices", "tiling", "intensity")
_BEST = "divisors"  # the tiling that is not one random draw
_BOX, _LINE = "#dfe6ec", "#3d4f60"

Spread = dict[int, Floats]
"""Number of devices, in order, to the intensities of its points [flop/B]."""


def _spread(frame: pd.DataFrame) -> Spread:
    timed = frame[frame["intensity"].notna()]
    return {int(str(d)): rows["intensity"].to_numpy() for d, rows in timed.groupby("devices", sort=True)}


def _by_strategy(frame: pd.DataFrame, devices: int) -> dict[str, Floats]:
    """Return the intensities of every strategy on so many devices: RC from few to many rows, then CR."""
    rows = frame[(frame["devices"] == devices) & frame["intensity"].notna()]
    found = {
        str(name): part["intensity"].to_numpy() for name, part in rows.groupby("strategy", observed=True)
    }
    return {name: found[name] for name in sorted(found, key=_place)}


def _place(strategy: str) -> tuple[bool, int, int]:
    read = parse(strategy)
    return read.kernel == COLUMN_ROW, read.kp1, read.kp2


def _short(number: int) -> str:
    """Write a number of devices as the paper does: 65536 as 64K."""
    return f"{number // 1024}K" if number % 1024 == 0 else str(number)


def _round(value: float) -> str:
    """Write a figure to three digits or to whole ones."""
    return f"{value:,.0f}" if value >= 100.0 else f"{value:.3g}"


def claims(frame: pd.DataFrame) -> list[Claim]:
    """Judge the claims of section 2."""
    spread = _spread(frame)
    absent = [f"{_short(degree)} devices" for degree in DEGREES if degree not in spread]
    most = DEGREES[-1]
    strategies = _by_strategy(frame, most)
    few = [f"a second strategy on {_short(most)} devices"] if len(strategies) < 2 else []
    return [
        judge("intensity is much smaller at higher degrees of parallelism", absent, lambda: _falls(spread)),
        judge("the spread is large at every degree", absent, lambda: _is_large(spread)),
        judge("the spread is larger at lower degrees", absent, lambda: _is_larger_below(spread)),
        judge(
            f"the optimum differs between strategies on {_short(most)} devices",
            few,
            lambda: _differs(strategies),
        ),
    ]


def _falls(spread: Spread) -> tuple[str, bool]:
    median = {degree: float(np.median(values)) for degree, values in spread.items()}
    shown = [DEGREES[0], DEGREES[len(DEGREES) // 2 - 1], DEGREES[-1]]
    figure = ", ".join(f"{_round(median[degree])} on {_short(degree)}" for degree in shown)
    return f"median {figure} [flop/B]", median[shown[-1]] <= median[shown[0]] / MUCH


def _is_large(spread: Spread) -> tuple[str, bool]:
    ratio = {degree: float(values.max() / values.min()) for degree, values in spread.items()}
    least, most = min(ratio, key=lambda d: ratio[d]), max(ratio, key=lambda d: ratio[d])
    ends = " to ".join(f"{_round(ratio[degree])} (on {_short(degree)})" for degree in (least, most))
    return f"highest over lowest {ends}", ratio[least] >= MUCH


def _is_larger_below(spread: Spread) -> tuple[str, bool]:
    half = len(DEGREES) // 2
    below, above = (
        float(np.mean([np.ptp(spread[degree]) for degree in degrees]))
        for degrees in (DEGREES[:half], DEGREES[half:])
    )
    ends = f"up to {_short(DEGREES[half - 1])}", f"{_round(above)} from {_short(DEGREES[half])} on"
    return f"highest less lowest {_round(below)} {ends[0]}, {ends[1]} [flop/B]", below >= MUCH * above


def _differs(strategies: dict[str, Floats]) -> tuple[str, bool]:
    highest = {name: float(values.max()) for name, values in strategies.items()}
    low, high = min(highest, key=lambda s: highest[s]), max(highest, key=lambda s: highest[s])
    figure = f"highest {_round(highest[high])} flop/B under {high}, {_round(highest[low])} under {low}"
    return figure, highest[high] >= MUCH * highest[low]


def draw(frame: pd.DataFrame) -> Figure:
    """Draw intensities over degrees of parallelism, and over strategies at the highest degree."""
    spread = _spread(frame)
    most = max(spread, default=DEGREES[-1])
    strategies = _by_strategy(frame, most)
    best = frame[(frame["tiling"] == _BEST) & frame["intensity"].notna()]
    figure = Figure(figsize=(13.0, 5.4))
    about = "operations over bytes of main memory; boxes show quartiles, whiskers the extremes"
    head(figure, "Computation intensity of a matrix product (section 2)", about)
    left, right = (figure.add_axes((x / 13.0, 0.95 / 5.4, 6.0 / 13.0, 3.42 / 5.4)) for x in (0.7, 6.85))
    _draw_boxes(left, [_short(d) for d in spread], list(spread.values()))
    highest = best.groupby("devices", sort=True)["intensity"].max()
    places = [list(spread).index(int(d)) for d in highest.index]
    label = "best strategy under the best tiling"
    left.plot(places, highest.to_numpy(), "o", color=SCALE[2], markersize=4, label=label)
    left.set_title("by devices, all strategies and tilings")
    left.set_xlabel("devices")
    left.set_ylabel("intensity [flop/B]")
    _draw_boxes(right, list(strategies), list(strategies.values()))
    own = best[best["devices"] == most].groupby("strategy", observed=True)["intensity"].max()
    places = [list(strategies).index(str(name)) for name in own.index]
    right.plot(places, own.to_numpy(), "o", color=SCALE[2], markersize=4, label="best tiling")
    right.set_title(f"by strategy, {_short(most)} devices, all tilings")
    right.set_xticks(
        range(len(strategies)), list(strategies), rotation=55, ha="right", rotation_mode="anchor", size=7.5
    )
    if places:
        left.legend(loc="lower left")
        right.legend(loc="upper left")
    low = min(axes.get_ylim()[0] for axes in (left, right))
    high = max(axes.get_ylim()[1] for axes in (left, right))
    for axes in (left, right):
        axes.set_ylim(low, high)
    right.tick_params(labelleft=False)
    return figure


def _draw_boxes(axes: Axes, labels: Sequence[str], values: Sequence[Floats]) -> None:
    """Draw a box a label, with whiskers to the extremes."""
    if values:
        line = {"color": _LINE, "linewidth": 1.0}
        axes.boxplot(
            values, positions=range(len(values)), widths=0.6, whis=(0.0, 100.0), patch_artist=True,
            boxprops={"facecolor": _BOX, "edgecolor": _LINE}, whiskerprops=line, capprops=line,
            medianprops={"color": SCALE[1], "linewidth": 1.6},
        )  # fmt: skip
    axes.set_yscale("log", base=2)
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.set_xticks(range(len(labels)), labels)
