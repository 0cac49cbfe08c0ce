"""Technology under servers of a dense model and of a mixture of experts (docs/serving_study.md).

The claims were written before the study was run. Every technology has several layouts and numbers of
concurrent requests; the best of them counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise, product
from typing import NamedTuple

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from fastflow.core.units import percent, show
from fastflow.reporting.charts.style import SEQUENTIAL, display_name, draw_heading
from fastflow.reporting.colours import QUIET
from fastflow.reporting.studies.claims import MUCH, Claim, judge
from fastflow.reporting.studies.fig09 import MEMORIES, NETWORKS, NODES

DENSE, MIXTURE = "llama3_70b", "qwen3_235b"
ANSWERS, PROMPTS = (1024, 1024), (8192, 128)
"""Loads as (input tokens, output tokens): decode-bound and prefill-bound."""
LIMIT = 0.040
"""Longest time per token of an interactive server [s]: MLPerf Inference 5.0, Llama 2 70B interactive."""
SATURATED = 0.05
"""Gain of a node below which logic is saturated."""
FEW = 8
"""Requests at a time on a device where times are compared."""
COLUMNS = (
    "tech", "mem", "net", "model", "strategy", "devices", "serve.isl", "serve.concurrency", "feasible",
    "tokens_per_s_per_device", "ttft_s", "tpot_s", "decode_bound_by", "prefill_bound_by",
)  # fmt: skip

Technology = tuple[str, str, str]
"""Logic node, memory, network."""
Load = tuple[int, int]


class Best(NamedTuple):
    """Best result of a technology."""

    tokens: float  # output tokens [1/s] of one device
    bound_by: str  # limiter of its decode passes, or of prefill under the load of prompts


class Servers:
    """Best servers by model, load and technology."""

    def __init__(self, frame: pd.DataFrame) -> None:
        """Take rows in point order; infeasible rows are omitted."""
        rows = frame[frame["feasible"].astype(bool) & frame["tpot_s"].notna()].copy()
        rows["requests"] = rows["serve.concurrency"] / rows["devices"]
        self._most = _best(rows)
        self._interactive = _best(_within_limit(rows))
        few = rows[rows["requests"] == FEW]
        self._times = {
            name: few.groupby(_KEY, sort=False)[name].min().to_dict() for name in ("ttft_s", "tpot_s")
        }

    def best(self, model: str, load: Load, technology: Technology) -> Best | None:
        """Return the most tokens; of answers, those of an interactive server."""
        results = self._interactive if load == ANSWERS else self._most
        return results.get((model, load[0], *technology))

    def tokens(self, model: str, load: Load, technology: Technology) -> float:
        """Return tokens [1/s] of one device; 0 for a technology without a server."""
        result = self.best(model, load, technology)
        return result.tokens if result else 0.0

    def unlimited(self, model: str, technology: Technology) -> float:
        """Return tokens [1/s] of answers without a limit of time; the technology must be present."""
        return self._most[model, ANSWERS[0], *technology].tokens

    def shortest(self, name: str, technology: Technology) -> float:
        """Return the shortest ttft_s or tpot_s [s] of the dense model's answers, a few at a time."""
        return float(self._times[name][DENSE, ANSWERS[0], *technology])

    def gain(self, model: str, load: Load, before: Technology, after: Technology) -> float:
        """Return the gain in tokens of a technology over another; 0.1 if 1.1 times as many."""
        return self.tokens(model, load, after) / self.tokens(model, load, before) - 1.0

    def missing(
        self,
        loads: Sequence[tuple[str, Load]] = ((DENSE, ANSWERS),),
        nodes: Sequence[str] = NODES,
        memories: Sequence[str] = MEMORIES,
        networks: Sequence[str] = NETWORKS,
    ) -> list[str]:
        """Return the names of the technologies without a server."""
        return [
            f"{model} on {_name(*technology)}"
            for (model, load), *technology in product(loads, nodes, memories, networks)
            if self.best(model, load, (technology[0], technology[1], technology[2])) is None
        ]


_TOKENS = "tokens_per_s_per_device"
_KEY = ["model", "serve.isl", "tech", "mem", "net"]


def _best(rows: pd.DataFrame) -> dict[tuple[str, int, str, str, str], Best]:
    """Return the row with the most tokens of every model, load and technology; the first of equal rows."""
    rows = rows.sort_values(_TOKENS, ascending=False, kind="stable").drop_duplicates(_KEY)
    results = {}
    for row in rows.to_dict("records"):
        limiter = row["prefill_bound_by" if row["serve.isl"] == PROMPTS[0] else "decode_bound_by"]
        key = (str(row["model"]), int(row["serve.isl"]), str(row["tech"]), str(row["mem"]), str(row["net"]))
        results[key] = Best(float(row[_TOKENS]), str(limiter))
    return results


def _within_limit(rows: pd.DataFrame) -> pd.DataFrame:
    """Return rows within the limit; the last row of each layout is interpolated to the limit."""
    layout = [*_KEY, "strategy"]
    rows = rows.sort_values([*layout, "requests"], kind="stable")
    next_row = rows.groupby(layout, sort=False)[["tpot_s", _TOKENS]].shift(-1)
    share = ((LIMIT - rows["tpot_s"]) / (next_row["tpot_s"] - rows["tpot_s"])).where(
        next_row["tpot_s"] > LIMIT, 0.0
    )
    tokens_at_limit = rows[_TOKENS] + share * (next_row[_TOKENS] - rows[_TOKENS]).fillna(0.0)
    return rows.assign(**{_TOKENS: tokens_at_limit})[rows["tpot_s"] <= LIMIT]


def _name(*choices: str) -> str:
    return " ".join(map(display_name, choices))


def claims(frame: pd.DataFrame) -> list[Claim]:
    """Judge the claims, which were written before the study was run; rows in point order."""
    case = Servers(frame)
    both = ((DENSE, ANSWERS), (MIXTURE, ANSWERS))
    return [
        judge(
            "dense, answers: HBM2 to HBM4 gains more than N12 to N7, with every network",
            [*case.missing(nodes=("n12",), memories=("hbm2", "hbm4")),
             *case.missing(nodes=("n7",), memories=("hbm2",))],
            lambda: _judge_memory_against_logic(case, ("n12", "hbm2"), "n7", "hbm4"),
        ),
        judge(
            "dense, answers: beyond N5 and HBM3, HBM4 gains more than all nodes to N1, with every network",
            [*case.missing(nodes=("n5",), memories=("hbm3", "hbm4")),
             *case.missing(nodes=("n1",), memories=("hbm3",))],
            lambda: _judge_memory_against_logic(case, ("n5", "hbm3"), "n1", "hbm4"),
        ),
        judge(
            "dense, answers: decoding saturates, every node after N5 gains less than 5%, with every memory",
            case.missing(nodes=NODES[2:]),
            lambda: _judge_steps(case, ((DENSE, ANSWERS),), MEMORIES, saturates=True),
        ),
        judge(
            "prompts of both models: every node after N5 gains 5% or more, with HBM4",
            case.missing(((DENSE, PROMPTS), (MIXTURE, PROMPTS)), NODES[2:], ("hbm4",)),
            lambda: _judge_steps(case, ((DENSE, PROMPTS), (MIXTURE, PROMPTS)), ("hbm4",), saturates=False),
        ),
        judge(
            "answers at N5: NDR to GDR gains the mixture at least twice what it gains the dense model,"
            " with every memory",
            case.missing(both, ("n5",), networks=("ndr_x8", "gdr_x8")),
            lambda: _judge_networks(case),
        ),
        judge(
            "dense, few requests: the first token gains more from N5 to N1 than from HBM2e to HBM4,"
            " further ones the other way round",
            case.missing(nodes=("n5", "n1"), memories=("hbm2e", "hbm4"), networks=("xdr_x8",)),
            lambda: _judge_latencies(case),
        ),
        judge(
            "dense, answers at any pace at N5: HBM2 to HBM2e gains more than its bandwidth, 2 times:"
            " room limits HBM2",
            case.missing(nodes=("n5",), memories=("hbm2", "hbm2e")),
            lambda: _judge_capacity(case),
        ),
        judge(
            "answers from N7 on with HBM3: main memory limits decoding of the dense model, the network"
            " that of the mixture",
            case.missing(both, NODES[1:], ("hbm3",)),
            lambda: _judge_limiters(case),
        ),
    ]  # fmt: skip


def _judge_memory_against_logic(
    case: Servers, start: tuple[str, str], node: str, memory: str
) -> tuple[str, bool]:
    words, holds = [], True
    for network in NETWORKS:
        before = (*start, network)
        better = case.gain(DENSE, ANSWERS, before, (start[0], memory, network))
        later = case.gain(DENSE, ANSWERS, before, (node, start[1], network))
        words.append(f"{display_name(network)} {percent(better)} against {percent(later)}")
        holds &= better > later
    return ", ".join(words), holds


def _judge_steps(
    case: Servers, loads: Sequence[tuple[str, Load]], memories: Sequence[str], *, saturates: bool
) -> tuple[str, bool]:
    gains = {
        (model, before, after, memory, network): case.gain(
            model, load, (before, memory, network), (after, memory, network)
        )
        for (model, load), (before, after), memory, network in product(
            loads, pairwise(NODES[2:]), memories, NETWORKS
        )
    }
    words = []
    for key in (min(gains, key=lambda key: gains[key]), max(gains, key=lambda key: gains[key])):
        model, before, after, *rest = key
        words.append(f"{percent(gains[key])} ({model}, {_name(before)} to {_name(after, *rest)})")
    is_saturated = [gain < SATURATED for gain in gains.values()]
    figure = f"steps gain {' to '.join(words)}, {sum(is_saturated)} of {len(is_saturated)} less than 5%"
    return figure, all(is_saturated) if saturates else not any(is_saturated)


def _judge_networks(case: Servers) -> tuple[str, bool]:
    words, holds = [], True
    for memory in MEMORIES:
        before, after = (("n5", memory, network) for network in ("ndr_x8", "gdr_x8"))
        dense, mixture = (case.gain(model, ANSWERS, before, after) for model in (DENSE, MIXTURE))
        words.append(f"{display_name(memory)} {percent(mixture)} against {percent(dense)}")
        holds &= mixture > 0.0 and mixture >= MUCH * dense
    return ", ".join(words), holds


def _judge_latencies(case: Servers) -> tuple[str, bool]:
    words, gains = [], {}
    start, node, memory = (("n5", "hbm2e", "xdr_x8"), ("n1", "hbm2e", "xdr_x8"), ("n5", "hbm4", "xdr_x8"))
    for name in ("ttft_s", "tpot_s"):
        times = [case.shortest(name, technology) for technology in (start, node, memory)]
        gains[name] = tuple(times[0] / after - 1.0 for after in times[1:])
        words.append(
            f"{name} {show(times[0], 's')}, nodes gain {percent(gains[name][0])},"
            f" memory {percent(gains[name][1])}"
        )
    (first_node, first_memory), (node_gain, memory_gain) = gains["ttft_s"], gains["tpot_s"]
    return "; ".join(words), first_node > first_memory and memory_gain > node_gain


def _judge_capacity(case: Servers) -> tuple[str, bool]:
    ratios = {
        network: case.unlimited(DENSE, ("n5", "hbm2e", network))
        / case.unlimited(DENSE, ("n5", "hbm2", network))
        for network in NETWORKS
    }
    figure = ", ".join(f"{display_name(network)} {ratio:.2f} times" for network, ratio in ratios.items())
    return figure, min(ratios.values()) > MUCH


def _judge_limiters(case: Servers) -> tuple[str, bool]:
    words, holds = [], True
    for model, expected in ((DENSE, "dram"), (MIXTURE, "network")):
        limiters = [
            best.bound_by
            for node, network in product(NODES[1:], NETWORKS)
            if (best := case.best(model, ANSWERS, (node, "hbm3", network)))
        ]
        counts = ", ".join(f"{name} {limiters.count(name)}" for name in dict.fromkeys(limiters))
        words.append(f"{model}: {counts} of {len(limiters)}")
        holds &= all(name == expected for name in limiters)
    return "; ".join(words), holds


_MARKS = {
    "compute": "D",
    "l0": "v",
    "l1": "v",
    "l2": "v",
    "dram": "s",
    "network": "X",
    "launch": "o",
    "host": "*",
}
_MARKED = {
    "D": "compute",
    "v": "on-chip memory",
    "s": "main memory",
    "X": "network",
    "o": "launches",
    "*": "host",
}
"""Markers of the limiters of passes, and their names."""
_ROWS = (
    (DENSE, ANSWERS, "70B dense, answers"), (MIXTURE, ANSWERS, "235B mixture, answers"),
    (DENSE, PROMPTS, "70B dense, prompts"), (MIXTURE, PROMPTS, "235B mixture, prompts"),
)  # fmt: skip


def draw(frame: pd.DataFrame) -> Figure:
    """Draw tokens of a device over nodes: a row a model and load, a column a network, a line a memory."""
    case = Servers(frame)
    figure = Figure(figsize=(13.0, 11.6))
    about = (
        f"output tokens per second of one device: answers (1,024 tokens in, 1,024 out) at {LIMIT * 1e3:.0f}"
        " ms a token or less, prompts (8,192 in, 128 out) at any pace; the best of several layouts and loads"
    )
    draw_heading(figure, "Technology under servers of a dense model and of a mixture of experts", about)
    panels = figure.add_gridspec(
        len(_ROWS), len(NETWORKS), left=0.06, right=0.985, bottom=0.075, top=0.925, wspace=0.05, hspace=0.24
    )
    seen: set[str] = set()
    for row, (model, load, title) in enumerate(_ROWS):
        first: Axes | None = None
        for column, network in enumerate(NETWORKS):
            axes = figure.add_subplot(panels[row, column], sharey=first)
            seen |= _draw_panel(axes, case, model, load, network)
            axes.set_title(f"{title}, {display_name(network)}")
            axes.tick_params(labelleft=first is None)
            if first is None:
                first = axes
                axes.set_ylabel("tokens/s a device")
        if first is not None:
            first.set_ylim(bottom=0.0)
    lines = [
        Line2D([], [], color=colour, linewidth=1.6, label=display_name(memory))
        for memory, colour in zip(MEMORIES, SEQUENTIAL, strict=True)
    ]
    marks = [
        Line2D([], [], color=QUIET, marker=mark, linestyle="", markersize=6, label=name)
        for mark, name in _MARKED.items()
        if mark in seen
    ]
    figure.legend(handles=lines, ncols=len(lines), loc="lower left", bbox_to_anchor=(0.05, 0.008))
    figure.legend(
        handles=marks, ncols=len(marks), loc="lower right", bbox_to_anchor=(0.99, 0.008), title="limited by",
        title_fontsize=8.5,
    )  # fmt: skip
    return figure


def _draw_panel(axes: Axes, case: Servers, model: str, load: Load, network: str) -> set[str]:
    """Draw a line a memory; return the markers that it has."""
    seen = set()
    for memory, colour in zip(MEMORIES, SEQUENTIAL, strict=True):
        best_of_node = {i: case.best(model, load, (node, memory, network)) for i, node in enumerate(NODES)}
        present = {i: best for i, best in best_of_node.items() if best}
        axes.plot(list(present), [best.tokens for best in present.values()], color=colour, linewidth=1.4)
        for i, best in present.items():
            mark = _MARKS.get(best.bound_by, "*")
            axes.plot(i, best.tokens, color=colour, marker=mark, markersize=6, markeredgecolor="white",
                      markeredgewidth=0.5)  # fmt: skip
            seen.add(mark)
    axes.set_xticks(range(len(NODES)), [display_name(node) for node in NODES])
    axes.set_xlim(-0.4, len(NODES) - 0.6)
    return seen
