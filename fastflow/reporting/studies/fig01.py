"""Computation intensity of one product, by degree of parallelism and strategy (section 2, Figure 1)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fastflow.core.tables import Floats
from fastflow.physics.parallelism.strategy import COLUMN_ROW, parse
from fastflow.reporting.charts.style import SEQUENTIAL, draw_heading
from fastflow.reporting.studies.claims import MUCH, Claim, judge

DEGREES = tuple(2**power for power in range(1, 17))
"""Devices of the paper's figure."""
COLUMNS = ("strategy", "devices", "tiling", "intensity")
_BEST = "divisors"  # the tiling without a random draw
_BOX, _LINE = "#dfe6ec", "#3d4f60"

Intensities = dict[int, Floats]
"""Number of devices, in order, to the intensities of its points [flop/B]."""


def _intensities(frame: pd.DataFrame) -> Intensities:
    """Return the intensities of all points, by number of devices."""
    timed = frame[frame["intensity"].notna()]
    return {int(str(d)): rows["intensity"].to_numpy() for d, rows in timed.groupby("devices", sort=True)}


def _by_strategy(frame: pd.DataFrame, devices: int) -> dict[str, Floats]:
    """Return the intensities of every strategy on so many devices: RC from few to many rows, then CR."""
    rows = frame[(frame["devices"] == devices) & frame["intensity"].notna()]
    intensities = {
        str(name): part["intensity"].to_numpy() for name, part in rows.groupby("strategy", observed=True)
    }
    return {name: intensities[name] for name in sorted(intensities, key=_strategy_order)}


def _strategy_order(strategy: str) -> tuple[bool, int, int]:
    parsed = parse(strategy)
    return parsed.kernel == COLUMN_ROW, parsed.kp1, parsed.kp2


def _format_degree(number: int) -> str:
    """Write a number of devices as the paper does: 65536 as 64K."""
    return f"{number // 1024}K" if number % 1024 == 0 else str(number)


def _format_number(value: float) -> str:
    """Write a number with three digits, or as an integer from 100 on."""
    return f"{value:,.0f}" if value >= 100.0 else f"{value:.3g}"


def claims(frame: pd.DataFrame) -> list[Claim]:
    """Judge the claims of section 2."""
    intensities = _intensities(frame)
    missing = [f"{_format_degree(degree)} devices" for degree in DEGREES if degree not in intensities]
    most = DEGREES[-1]
    strategies = _by_strategy(frame, most)
    missing_strategies = (
        [f"a second strategy on {_format_degree(most)} devices"] if len(strategies) < 2 else []
    )
    return [
        judge(
            "intensity is much smaller at higher degrees of parallelism",
            missing,
            lambda: _judge_fall(intensities),
        ),
        judge("the spread is large at every degree", missing, lambda: _judge_range(intensities)),
        judge("the spread is larger at lower degrees", missing, lambda: _judge_range_by_degree(intensities)),
        judge(
            f"the optimum differs between strategies on {_format_degree(most)} devices",
            missing_strategies,
            lambda: _judge_optimum(strategies),
        ),
    ]


def _judge_fall(intensities: Intensities) -> tuple[str, bool]:
    median = {degree: float(np.median(values)) for degree, values in intensities.items()}
    shown = [DEGREES[0], DEGREES[len(DEGREES) // 2 - 1], DEGREES[-1]]
    figure = ", ".join(f"{_format_number(median[degree])} on {_format_degree(degree)}" for degree in shown)
    return f"median {figure} [flop/B]", median[shown[-1]] <= median[shown[0]] / MUCH


def _judge_range(intensities: Intensities) -> tuple[str, bool]:
    ratio = {degree: float(values.max() / values.min()) for degree, values in intensities.items()}
    least, most = min(ratio, key=lambda d: ratio[d]), max(ratio, key=lambda d: ratio[d])
    ends = " to ".join(
        f"{_format_number(ratio[degree])} (on {_format_degree(degree)})" for degree in (least, most)
    )
    return f"highest over lowest {ends}", ratio[least] >= MUCH


def _judge_range_by_degree(intensities: Intensities) -> tuple[str, bool]:
    half = len(DEGREES) // 2
    below, above = (
        float(np.mean([np.ptp(intensities[degree]) for degree in degrees]))
        for degrees in (DEGREES[:half], DEGREES[half:])
    )
    ends = (
        f"up to {_format_degree(DEGREES[half - 1])}",
        f"{_format_number(above)} from {_format_degree(DEGREES[half])} on",
    )
    return f"highest less lowest {_format_number(below)} {ends[0]}, {ends[1]} [flop/B]", below >= MUCH * above


def _judge_optimum(strategies: dict[str, Floats]) -> tuple[str, bool]:
    highest = {name: float(values.max()) for name, values in strategies.items()}
    low, high = min(highest, key=lambda s: highest[s]), max(highest, key=lambda s: highest[s])
    most, least = _format_number(highest[high]), _format_number(highest[low])
    figure = f"highest {most} flop/B under {high}, {least} under {low}"
    return figure, highest[high] >= MUCH * highest[low]


def draw(frame: pd.DataFrame) -> Figure:
    """Draw intensities over degrees of parallelism, and over strategies at the highest degree."""
    intensities = _intensities(frame)
    most = max(intensities, default=DEGREES[-1])
    strategies = _by_strategy(frame, most)
    best = frame[(frame["tiling"] == _BEST) & frame["intensity"].notna()]
    figure = Figure(figsize=(13.0, 5.4))
    about = "operations over bytes of main memory; boxes show quartiles, whiskers the extremes"
    draw_heading(figure, "Computation intensity of a matrix product (section 2)", about)
    left, right = (figure.add_axes((x / 13.0, 0.95 / 5.4, 6.0 / 13.0, 3.42 / 5.4)) for x in (0.7, 6.85))
    _draw_boxes(left, [_format_degree(d) for d in intensities], list(intensities.values()))
    highest = best.groupby("devices", sort=True)["intensity"].max()
    positions = [list(intensities).index(int(d)) for d in highest.index]
    label = "best strategy under the best tiling"
    left.plot(positions, highest.to_numpy(), "o", color=SEQUENTIAL[2], markersize=4, label=label)
    left.set_title("by devices, all strategies and tilings")
    left.set_xlabel("devices")
    left.set_ylabel("intensity [flop/B]")
    _draw_boxes(right, list(strategies), list(strategies.values()))
    highest_of_strategy = best[best["devices"] == most].groupby("strategy", observed=True)["intensity"].max()
    positions = [list(strategies).index(str(name)) for name in highest_of_strategy.index]
    right.plot(
        positions, highest_of_strategy.to_numpy(), "o", color=SEQUENTIAL[2], markersize=4, label="best tiling"
    )
    right.set_title(f"by strategy, {_format_degree(most)} devices, all tilings")
    right.set_xticks(
        range(len(strategies)), list(strategies), rotation=55, ha="right", rotation_mode="anchor", size=7.5
    )
    if positions:
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
            medianprops={"color": SEQUENTIAL[1], "linewidth": 1.6},
        )  # fmt: skip
    axes.set_yscale("log", base=2)
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.set_xticks(range(len(labels)), labels)
