"""Power limits of 40 to 100% of the budget under training and servers (docs/power_cap.md).

The claims were written before the study was run. Speed is tokens per second of a device, energy is of the
devices alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import product
from typing import NamedTuple

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from fastflow.core.units import percent
from fastflow.reporting.charts.style import QUALITATIVE, draw_heading
from fastflow.reporting.colours import QUIET
from fastflow.reporting.studies.claims import Claim, judge

DENSE, MIXTURE = "llama3_8b", "mixtral_8x7b"
CHIPS = ("h100_sxm", "a100_sxm_80")
TRAINING, FEW, MANY = "training", "few requests", "many requests"
REQUESTS = {8: FEW, 64: MANY}
"""Kinds of servers, by the number of concurrent requests of a device."""
FEW_PERCENT = 0.07
"""Most speed that is a few percent: Llama 65B took 6.7% longer at 175 of 250 W (Samsi et al., HPEC 2023)."""
SAVED = 0.20
"""Least share of the energy that the same work saved: 23% of it, rounded down."""
CAP, HALF, LEAST = 0.70, 0.50, 0.40
"""Limits over the budget, where claims are judged."""
COLUMNS = (
    "chip", "model", "serve.concurrency", "devices", "feasible", "power_limit_W",
    "tokens_per_s", "tokens_per_s_per_device", "time_s", "energy_J", "joules_per_token",
)  # fmt: skip

Case = tuple[str, str, str]
"""Chip, model, kind of work."""
CASES: tuple[Case, ...] = tuple(product(CHIPS, (DENSE, MIXTURE), (TRAINING, FEW, MANY)))
_NAMES = {
    DENSE: "8B dense", MIXTURE: "47B mixture", "h100_sxm": "H100", "a100_sxm_80": "A100",
}  # fmt: skip


class Limited(NamedTuple):
    """A case at a limit."""

    speed: float  # tokens per second of a device, over those at the budget
    joules: float  # of a token, over those at the budget
    tokens: float  # per second of a device
    joules_per_token: float  # [J]


class Limits:
    """Results of every case, by the limit over the budget."""

    def __init__(self, frame: pd.DataFrame) -> None:
        """Take rows in point order; infeasible rows are omitted."""
        rows = frame[frame["feasible"].astype(bool) & frame["power_limit_W"].notna()]
        by_case: dict[Case, dict[float, tuple[float, float]]] = {}
        for row in rows.to_dict("records"):
            work, joules = TRAINING, row["joules_per_token"]
            if pd.notna(row["serve.concurrency"]):
                work = REQUESTS.get(round(row["serve.concurrency"] / row["devices"]), "")
            else:
                joules = row["energy_J"] / (row["tokens_per_s"] * row["time_s"])
            case = (str(row["chip"]), str(row["model"]), work)
            limit = float(row["power_limit_W"])
            by_case.setdefault(case, {})[limit] = float(row["tokens_per_s_per_device"]), float(joules)
        self._results = {case: _over_budget(limits) for case, limits in by_case.items()}

    def curve(self, case: Case) -> dict[float, Limited]:
        """Return the results of a case by limit, over the budget; empty where it has no rows."""
        return self._results.get(case, {})

    def at(self, case: Case, limit: float) -> Limited:
        """Return the results of a case at a limit over the budget, which must be present."""
        return self._results[case][limit]

    def lost(self, case: Case, limit: float = CAP) -> float:
        """Return the share of speed that a limit costs."""
        return 1.0 - self.at(case, limit).speed

    def best(self, case: Case) -> float:
        """Return the limit of least energy of a token, over the budget; the highest of equal ones."""
        curve = self._results[case]
        return min(sorted(curve, reverse=True), key=lambda limit: curve[limit].joules)

    def missing(self, cases: Iterable[Case]) -> list[str]:
        """Return the names of cases that lack a limit at which claims are judged."""
        return [
            f"{name_of(case)} at {limit:.0%}"
            for case, limit in product(cases, (LEAST, HALF, CAP, 1.0))
            if limit not in self.curve(case)
        ]


def _over_budget(limits: dict[float, tuple[float, float]]) -> dict[float, Limited]:
    """Return results over those at the highest limit, the budget, by limit in ascending order."""
    budget = max(limits)
    tokens, joules = limits[budget]
    return {
        round(limit / budget, 4): Limited(speed / tokens, energy / joules, speed, energy)
        for limit, (speed, energy) in sorted(limits.items())
    }


def name_of(case: Case) -> str:
    """Return a case in words."""
    chip, model, work = case
    return f"{_NAMES[model]} on {_NAMES[chip]}, {work}"


def claims(frame: pd.DataFrame) -> list[Claim]:
    """Judge the claims, which were written before the study was run; rows in point order."""
    limits = Limits(frame)
    of_work = {work: [case for case in CASES if case[2] == work] for work in (TRAINING, FEW, MANY)}
    served = [*of_work[FEW], *of_work[MANY]]
    texts: list[tuple[str, list[Case], Callable[[list[Case]], tuple[str, bool]]]] = [
        ("training: 70% of the limit costs at most 7% of speed", of_work[TRAINING],
         lambda cases: _judge_lost(limits, cases)),
        ("servers of many requests: 70% of the limit costs at most 7% of speed", of_work[MANY],
         lambda cases: _judge_lost(limits, cases)),
        ("servers of few requests: 70% of the limit costs at most 7% of speed", of_work[FEW],
         lambda cases: _judge_lost(limits, cases)),
        ("servers of many requests: 70% of the limit saves at least 20% of the energy of a token",
         of_work[MANY], lambda cases: _judge_saved(limits, cases)),
        ("70% of the limit costs training more speed than the servers of the same model and chip",
         list(CASES), lambda _: _judge_order(limits, _pairs(TRAINING))),
        ("few requests lose less speed at 50% of the limit than many", served,
         lambda _: _judge_order(limits, _pairs(MANY), HALF)),
        ("every case takes least energy a token at 40 to 70% of the limit", list(CASES),
         lambda cases: _judge_best(limits, cases)),
        ("at 40% of the limit a token of training takes more energy than at the best limit, since rest takes"
         " longer", of_work[TRAINING], lambda cases: _judge_rest(limits, cases)),
    ]  # fmt: skip

    def bound(
        decide: Callable[[list[Case]], tuple[str, bool]], cases: list[Case]
    ) -> Callable[[], tuple[str, bool]]:
        return lambda: decide(cases)

    return [judge(text, limits.missing(cases), bound(decide, cases)) for text, cases, decide in texts]


def _span(values: Iterable[float]) -> str:
    low, high = min(values := list(values)), max(values)
    return f"{percent(low)} to {percent(high)}"


def _judge_lost(limits: Limits, cases: list[Case]) -> tuple[str, bool]:
    lost = [limits.lost(case) for case in cases]
    return f"it costs {_span(lost)}", max(lost) <= FEW_PERCENT


def _judge_saved(limits: Limits, cases: list[Case]) -> tuple[str, bool]:
    saved = [1.0 - limits.at(case, CAP).joules for case in cases]
    return f"it saves {_span(saved)}", min(saved) >= SAVED


def _pairs(more: str) -> list[tuple[Case, Case]]:
    """Return pairs of cases of a model on a chip: the one that is to lose more, and the other."""
    others = (FEW, MANY) if more == TRAINING else (FEW,)
    return [
        ((chip, model, more), (chip, model, other))
        for chip, model, other in product(CHIPS, (DENSE, MIXTURE), others)
    ]


def _judge_order(limits: Limits, pairs: list[tuple[Case, Case]], limit: float = CAP) -> tuple[str, bool]:
    lost = [(limits.lost(more, limit), limits.lost(less, limit)) for more, less in pairs]
    figure = f"{_span(more for more, _ in lost)} against {_span(less for _, less in lost)}"
    return figure, all(more > less for more, less in lost)


def _judge_best(limits: Limits, cases: list[Case]) -> tuple[str, bool]:
    best = [limits.best(case) for case in cases]
    saved = [1.0 - limits.at(case, at).joules for case, at in zip(cases, best, strict=True)]
    lost = [limits.lost(case, at) for case, at in zip(cases, best, strict=True)]
    figure = f"at {_span(best)}, where they save {_span(saved)} and lose {_span(lost)} of speed"
    return figure, min(best) >= LEAST and max(best) <= CAP


def _judge_rest(limits: Limits, cases: list[Case]) -> tuple[str, bool]:
    more = [limits.at(case, LEAST).joules / limits.at(case, limits.best(case)).joules - 1.0 for case in cases]
    return f"{_span(more)} more", min(more) > 0.0


def draw(frame: pd.DataFrame) -> Figure:
    """Draw speed and energy of a token over the limit: a row a quantity, a column a model and chip."""
    limits = Limits(frame)
    figure = Figure(figsize=(13.0, 6.6))
    about = (
        "over those at the budget (H100: 700 W, A100: 400 W), by power limit; rings: least energy of a token"
    )
    draw_heading(figure, "Speed and energy of a token under a power limit", about)
    columns = list(product(CHIPS, (DENSE, MIXTURE)))
    panels = figure.add_gridspec(
        2, len(columns), left=0.055, right=0.985, bottom=0.145, top=0.855, wspace=0.08, hspace=0.22
    )
    for row, (field, label) in enumerate((("speed", "tokens per second"), ("joules", "joules a token"))):
        first: Axes | None = None
        for column, (chip, model) in enumerate(columns):
            axes = figure.add_subplot(panels[row, column], sharey=first)
            _draw_panel(axes, limits, (chip, model), field)
            axes.tick_params(labelleft=first is None, labelbottom=row == 1)
            if row == 0:
                axes.set_title(f"{_NAMES[model]}, {_NAMES[chip]}")
            if first is None:
                first = axes
                axes.set_ylabel(label)
        if first is not None:
            first.yaxis.set_major_formatter("{x:.0%}")
    lines = [
        Line2D([], [], color=colour, linewidth=1.6, label=work)
        for work, colour in zip((TRAINING, FEW, MANY), QUALITATIVE, strict=False)
    ]
    figure.legend(handles=lines, ncols=len(lines), loc="lower left", bbox_to_anchor=(0.045, 0.008))
    figure.text(0.985, 0.03, "power limit over the budget", ha="right", color=QUIET)
    return figure


def _draw_panel(axes: Axes, limits: Limits, column: tuple[str, str], field: str) -> None:
    """Draw a line for each kind of work, with a ring at the least energy."""
    for work, colour in zip((TRAINING, FEW, MANY), QUALITATIVE, strict=False):
        case = (*column, work)
        curve = limits.curve(case)
        if not curve:
            continue
        values = {limit: getattr(result, field) for limit, result in curve.items()}
        axes.plot(list(values), list(values.values()), color=colour, linewidth=1.6, marker=".", markersize=4)
        best = limits.best(case)
        axes.plot(best, values[best], marker="o", markersize=9, color=colour, fillstyle="none")
    axes.axvline(CAP, color=QUIET, linewidth=0.8, linestyle=":")
    axes.set_xlim(LEAST - 0.02, 1.02)
    axes.set_xticks((0.4, 0.6, 0.8, 1.0))
    axes.xaxis.set_major_formatter("{x:.0%}")
