"""Scaling logic, memory and network technology under naive data parallelism (section 9.1, Figure 9)."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise, product

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fastflow.core.units import percent
from fastflow.reporting.charts.style import (
    SEQUENTIAL,
    display_name,
    draw_heading,
    draw_limiter_legend,
    draw_limiter_shares,
    memory_note,
)
from fastflow.reporting.studies.claims import COUNTS, MUCH, SIGNIFICANT, Claim, gain, judge

NODES = ("n12", "n7", "n5", "n3", "n2", "n1_4", "n1")
MEMORIES = ("hbm2", "hbm2e", "hbm3", "hbm4")
NETWORKS = ("ndr_x8", "xdr_x8", "gdr_x8")
_AXES = ("tech", "mem", "net")
_ON_CHIP = ("l0", "l1", "l2")
_LIMITERS = ("compute", *_ON_CHIP, "dram", "launch")
COLUMNS = (*_AXES, "time_s", "feasible", *(f"{name}_bound_frac" for name in _LIMITERS))

Point = tuple[str, str, str]
"""Logic node, memory, network."""


class CaseStudy:
    """Times and shares of kernel time by node, memory and network; the first of repeated rows."""

    def __init__(self, frame: pd.DataFrame) -> None:
        """Take rows in point order."""
        first = frame[frame["time_s"].notna()].drop_duplicates(list(_AXES))
        keys = list(zip(*(first[axis].astype(str) for axis in _AXES), strict=True))
        self.time: dict[Point, float] = dict(zip(keys, first["time_s"].tolist(), strict=True))
        shares = {name: first[f"{name}_bound_frac"].tolist() for name in _LIMITERS}
        self.share: dict[Point, dict[str, float]] = {
            key: {name: values[row] for name, values in shares.items()} for row, key in enumerate(keys)
        }

    def missing(
        self,
        nodes: Sequence[str] = NODES,
        memories: Sequence[str] = MEMORIES,
        networks: Sequence[str] = NETWORKS,
    ) -> list[str]:
        """Return the names of the missing points."""
        return [_name(*key) for key in product(nodes, memories, networks) if key not in self.time]

    def gain(self, before: Point, after: Point) -> float:
        """Return the gain of a point over another."""
        return gain(self.time[before], self.time[after])

    def saturated(self, memory: str, network: str) -> int:
        """Return the first node after which all later nodes together gain less than COUNTS."""
        last = (NODES[-1], memory, network)
        return next(i for i, node in enumerate(NODES) if self.gain((node, memory, network), last) < COUNTS)


def _name(*choices: str) -> str:
    return " ".join(map(display_name, choices))


def claims(frame: pd.DataFrame) -> list[Claim]:
    """Judge the claims of section 9.1; rows in point order."""
    case = CaseStudy(frame)
    return [
        judge(
            "the step from N12 to N7 is the largest with every memory",
            case.missing(),
            lambda: _judge_first_step(case),
        ),
        judge(
            "at N12 a significant share of kernel time is L2-bound, with every memory",
            case.missing(NODES[:1]),
            lambda: _judge_l2_bound(case),
        ),
        judge(
            "from N7 to N3 main memory limits most, with HBM2",
            case.missing(NODES[1:4], MEMORIES[:1]),
            lambda: _judge_memory_bound(case),
        ),
        judge(
            "from N7 to N3 a better HBM gains, with every network",
            case.missing(NODES[1:4], ("hbm2", "hbm4")),
            lambda: _judge_memory_gains(case),
        ),
        judge(
            "a better HBM moves saturation to later nodes", case.missing(), lambda: _judge_saturation(case)
        ),
        judge(
            "with HBM4 logic saturates at about N3",
            case.missing(NODES, ("hbm4",)),
            lambda: _judge_saturation_with_hbm4(case),
        ),
        judge(
            "beyond N3 the gain of logic is marginal, even with HBM4 and GDR",
            case.missing(("n3", "n1"), ("hbm4",), ("gdr_x8",)),
            lambda: _judge_late_logic(case),
        ),
        judge(
            "beyond N3 caches are the bottleneck, with HBM4 and GDR",
            case.missing(NODES[4:], ("hbm4",), ("gdr_x8",)),
            lambda: _judge_cache_bound(case),
        ),
        judge(
            "beyond N3 networks gain far more than logic, with every memory",
            case.missing(("n3", "n1")),
            lambda: _judge_networks(case),
        ),
    ]


def _judge_first_step(case: CaseStudy) -> tuple[str, bool]:
    steps = {
        (memory, network): [
            case.gain((before, memory, network), (after, memory, network))
            for before, after in pairwise(NODES)
        ]
        for memory, network in product(MEMORIES, NETWORKS)
    }
    least = min(steps, key=lambda key: steps[key][0])
    most = max(steps, key=lambda key: steps[key][0])
    later = max(max(step[1:]) for step in steps.values())
    figure = (
        f"gains {percent(steps[least][0])} ({_name(*least)}) to {percent(steps[most][0])} ({_name(*most)}),"
        f" no later step more than {percent(later)}"
    )
    largest = all(step[0] > max(step[1:]) for step in steps.values())
    return figure, largest and steps[least][0] >= COUNTS


def _judge_l2_bound(case: CaseStudy) -> tuple[str, bool]:
    shares = {memory: min(case.share["n12", memory, net]["l2"] for net in NETWORKS) for memory in MEMORIES}
    figure = ", ".join(f"{display_name(memory)} {percent(share)}" for memory, share in shares.items())
    return figure, min(shares.values()) >= SIGNIFICANT


def _judge_memory_bound(case: CaseStudy) -> tuple[str, bool]:
    shares = {
        node: min((case.share[node, "hbm2", net] for net in NETWORKS), key=lambda share: share["dram"])
        for node in NODES[1:4]
    }
    figure = ", ".join(f"{display_name(node)} {percent(share['dram'])}" for node, share in shares.items())
    return f"{figure} of kernel time", all(share["dram"] == max(share.values()) for share in shares.values())


def _judge_memory_gains(case: CaseStudy) -> tuple[str, bool]:
    gains = {
        (node, net): case.gain((node, "hbm2", net), (node, "hbm4", net))
        for node, net in product(NODES[1:4], NETWORKS)
    }
    least, most = min(gains, key=lambda key: gains[key]), max(gains, key=lambda key: gains[key])
    figure = (
        f"HBM4 over HBM2 gains {percent(gains[least])} ({_name(*least)}) to {percent(gains[most])}"
        f" ({_name(*most)})"
    )
    return figure, gains[least] >= COUNTS


def _judge_saturation(case: CaseStudy) -> tuple[str, bool]:
    rows = {net: [case.saturated(memory, net) for memory in MEMORIES] for net in NETWORKS}
    figure = "; ".join(
        f"{display_name(net)}: "
        + ", ".join(f"{display_name(m)} {display_name(NODES[i])}" for m, i in zip(MEMORIES, row, strict=True))
        for net, row in rows.items()
    )
    return f"saturated at {figure}", all(row == sorted(row) and row[0] < row[-1] for row in rows.values())


def _judge_saturation_with_hbm4(case: CaseStudy) -> tuple[str, bool]:
    at = {net: case.saturated("hbm4", net) for net in NETWORKS}
    figure = ", ".join(f"{display_name(net)} {display_name(NODES[i])}" for net, i in at.items())
    return figure, all(abs(i - NODES.index("n3")) <= 1 for i in at.values())


def _judge_late_logic(case: CaseStudy) -> tuple[str, bool]:
    gain_of_logic = case.gain(("n3", "hbm4", "gdr_x8"), ("n1", "hbm4", "gdr_x8"))
    return f"N3 to N1 gains {percent(gain_of_logic)}", gain_of_logic < COUNTS


def _judge_cache_bound(case: CaseStudy) -> tuple[str, bool]:
    shares = {node: case.share[node, "hbm4", "gdr_x8"] for node in NODES[4:]}
    caches = {node: sum(share[level] for level in _ON_CHIP) for node, share in shares.items()}
    figure = ", ".join(
        f"{display_name(node)} caches {percent(caches[node])} and main memory {percent(share['dram'])}"
        for node, share in shares.items()
    )
    others = {
        node: max(share[name] for name in _LIMITERS if name not in _ON_CHIP) for node, share in shares.items()
    }
    return f"{figure} of kernel time", all(caches[node] > others[node] for node in shares)


def _judge_networks(case: CaseStudy) -> tuple[str, bool]:
    words, holds = [], True
    for memory in MEMORIES:
        start = ("n3", memory, "ndr_x8")
        network, logic = (
            case.gain(start, ("n3", memory, "gdr_x8")),
            case.gain(start, ("n1", memory, "ndr_x8")),
        )
        words.append(f"{display_name(memory)} {percent(network)} against {percent(logic)}")
        holds &= network >= MUCH * logic
    return "NDR to GDR against N3 to N1: " + ", ".join(words), holds


TITLE = "Scaling logic, memory and network technology (section 9.1)"


def draw(frame: pd.DataFrame, title: str = TITLE) -> Figure:
    """Draw iteration time over nodes, a panel a network, and the limiters of kernels, a panel a memory."""
    case = CaseStudy(frame)
    nodes, memories, networks = (
        _in_order(known, {key[axis] for key in case.time})
        for axis, known in enumerate((NODES, MEMORIES, NETWORKS))
    )
    figure = Figure(figsize=(13.0, 7.0))
    about = "time of one iteration by logic node, and limiters of the kernels of a device"
    draw_heading(figure, title, f"{about}; {memory_note(frame)}")
    above, below = (
        figure.add_gridspec(1, max(1, columns), left=0.055, right=0.985, bottom=bottom, top=top, wspace=space)
        for columns, bottom, top, space in (
            (len(networks), 0.53, 0.865, 0.06),
            (len(memories), 0.095, 0.385, 0.06),
        )
    )
    most = 1.08 * max(case.time.values(), default=1.0)
    for index, network in enumerate(networks):
        axes = figure.add_subplot(above[0, index])
        _draw_times(axes, case, nodes, memories, network)
        axes.set_ylim(0.0, most)
        axes.set_title(f"network {display_name(network)}")
        if index:
            axes.tick_params(labelleft=False)
        else:
            axes.set_ylabel("time [s]")
    if networks:
        figure.axes[0].legend(ncols=2, loc="lower left")
    for index, memory in enumerate(memories):
        axes = figure.add_subplot(below[0, index])
        at = [key for node in nodes for key in [_any_network(case, node, memory, networks)] if key]
        shares = {name: [case.share[key][name] for key in at] for name in _LIMITERS}
        draw_limiter_shares(axes, [display_name(key[0]) for key in at], shares)
        axes.set_title(f"memory {display_name(memory)}")
        if index:
            axes.tick_params(labelleft=False)
        else:
            axes.set_ylabel("share of kernel time by limiter")
    draw_limiter_legend(figure, 0.055, 0.018)
    return figure


def _draw_times(
    axes: Axes, case: CaseStudy, nodes: Sequence[str], memories: Sequence[str], network: str
) -> None:
    """Draw a line a memory."""
    for index, memory in enumerate(memories):
        at = [i for i, node in enumerate(nodes) if (node, memory, network) in case.time]
        times = [case.time[nodes[i], memory, network] for i in at]
        colour = SEQUENTIAL[index % len(SEQUENTIAL)]
        axes.plot(
            at, times, color=colour, marker="o", markersize=4, linewidth=1.6, label=display_name(memory)
        )
    axes.set_xticks(range(len(nodes)), [display_name(node) for node in nodes])


def _any_network(case: CaseStudy, node: str, memory: str, networks: Sequence[str]) -> Point | None:
    """Return a point of a node and memory; the limiters of kernels do not depend on the network."""
    keys = ((node, memory, network) for network in networks)
    return next((key for key in keys if key in case.time), None)


def _in_order(known: Sequence[str], present: set[str]) -> list[str]:
    """Return choices in the paper's order, others after them."""
    return [name for name in known if name in present] + sorted(present - set(known))
