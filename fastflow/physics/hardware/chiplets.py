"""Chiplets: a package of several dies, the node of each die, and the traffic between dies.

`chip.dies` equal dies hold the cores, and all parts that no other kind of die holds. `chip.chiplets.NAME` is
another kind with a node of its own, for main memory's controllers, links, or levels that all cores share.
Links between dies (`chip.link`) take area, power and the edges between adjacent dies. The dies tile a
square.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from fastflow.core.tables import Bools, Floats, Inputs, Ints

CHIPLETS = "chip.chiplets."
_AREA = "chip.area."
LINK = "link"
"""The links between dies, as a part of a chip's budgets."""
HOLDABLE = ("l2", "l3", "l4", "dram", "intra", "inter")
"""The parts that a kind of die may hold; cores and their private levels are on the same die."""
OF_NODE = {
    "generation": "tech.generation",
    "logic_area": "tech.half_node.logic_area",
    "logic_power": "tech.half_node.logic_power",
    "wafer_price": "tech.wafer_price",
    "defect_density": "tech.defect_density",
    "defect_cluster": "tech.defect_cluster",
    "fab_energy": "tech.fab_energy",
    "fab_gas": "tech.fab_gas",
}
"""The properties of a die's node, and the inputs of a chip that has one kind of die."""


class Crossing(NamedTuple):
    """The die-to-die link on a level's path to the previous level; shape (points,)."""

    bandwidth: Floats  # of the links, infinite where no traffic crosses [B/s]
    latency: Floats  # [s]
    energy: Floats  # [J/bit]


def die_kinds(inputs: Inputs) -> list[str]:
    """Return the names of the kinds of dies, without that of the cores."""
    return list(_kinds_among(tuple(inputs)))


@lru_cache(maxsize=64)
def _kinds_among(keys: tuple[str, ...]) -> tuple[str, ...]:
    """Return the names of the kinds of dies among keys, which all parts of a chip ask for."""
    names = (key.removeprefix(CHIPLETS).partition(".")[0] for key in keys if key.startswith(CHIPLETS))
    return tuple(dict.fromkeys(names))


def has_links(inputs: Inputs) -> bool:
    """Return whether the inputs describe links between dies."""
    return f"chip.area.{LINK}" in inputs


def holds(inputs: Inputs, kind: str, part: str) -> Bools:
    """Return in which points a kind of die holds a part, shape (points,)."""
    texts = inputs[f"{CHIPLETS}{kind}.holds"]
    has_part = {text: part in str(text).split() for text in np.unique(texts).tolist()}
    column: Bools = np.array([has_part[text] for text in texts.tolist()], dtype=np.bool_)
    return column


def inputs_at_die(inputs: Inputs, part: str) -> Inputs:
    """Return the inputs with the node of the die that holds a part, instead of the cores'."""
    changed = dict(inputs)
    for kind in die_kinds(inputs):
        rows = holds(inputs, kind, part)
        if rows.any():
            for name, key in OF_NODE.items():
                changed[key] = np.where(rows, inputs[f"{CHIPLETS}{kind}.{name}"], changed[key])
    return changed


def dies(inputs: Inputs) -> Floats:
    """Return how many dies a package has, of all kinds, shape (points,)."""
    total = np.asarray(inputs["chip.dies"], dtype=np.float64)
    for kind in die_kinds(inputs):
        total = total + inputs[f"{CHIPLETS}{kind}.dies"]
    return total


def inner_edge(inputs: Inputs) -> Floats:
    """Return the length of edges between dies [m], shape (points,): equal squares that tile a square."""
    edge: Floats = 2.0 * np.sqrt(inputs["chip.die_area"]) * (np.sqrt(dies(inputs)) - 1.0)
    return edge


def needed_area(inputs: Inputs, kind: str) -> Floats:
    """Return the area of all parts on the dies of a kind, with their share of the links [m^2], (points,).

    kind: "" for the dies of the cores.
    """
    number = inputs[f"{CHIPLETS}{kind}.dies" if kind else "chip.dies"]
    share = inputs.get(f"chip.area.{LINK}", np.zeros(number.size)) * number / dies(inputs)
    for key in inputs:
        if key.startswith(_AREA) and key != f"{_AREA}{LINK}":
            share = share + np.where(_is_held_by(inputs, kind, key.removeprefix(_AREA)), inputs[key], 0.0)
    needed: Floats = share * inputs["chip.die_area"]
    return needed


def _is_held_by(inputs: Inputs, kind: str, part: str) -> Bools:
    """Return in which points a kind of die has a part; the cores' dies have what no other kind holds."""
    if kind:
        return holds(inputs, kind, part)
    others: Bools = ~np.any([holds(inputs, other, part) for other in die_kinds(inputs)], axis=0)
    return others


def areas(inputs: Inputs) -> Iterator[tuple[str, Floats, Floats]]:
    """Yield the kinds of dies: name, "" for that of the cores, number, and area of a die [m^2], (points,).

    A kind has the area of its parts and of its dies' share of the links, unless `die_area` is set; the
    cores' dies have the rest.
    """
    remaining = np.asarray(inputs["chip.die_area"])
    for kind in die_kinds(inputs):
        number = inputs[f"{CHIPLETS}{kind}.dies"]
        set_area = inputs.get(f"{CHIPLETS}{kind}.die_area")
        area = needed_area(inputs, kind) / number if set_area is None else set_area
        remaining = remaining - number * area
        yield kind, number, area
    yield "", inputs["chip.dies"], remaining / inputs["chip.dies"]


def crossing_shares(inputs: Inputs, levels: int) -> list[Floats]:
    """Return the share of the traffic of each level, and of main memory, that crosses to another die.

    1 where the previous level is on another kind of die; of a level that all cores share on several equal
    dies, all but the share of a core's own die. Shape (points,) each.
    """
    if not has_links(inputs):
        return [np.zeros(inputs["chip.tdp"].size)] * (levels + 1)
    parts = [f"l{number}" for number in range(levels)]
    kind_of_cores = np.zeros(inputs["chip.tdp"].size, dtype=np.int64)
    shares: list[Floats] = []
    before: Ints = kind_of_cores
    for part in (*parts, "dram"):
        kind, number = _die_of(inputs, part)
        share = (kind != before).astype(np.float64)
        if part != "dram":
            shared = inputs[f"chip.memory.{part}.scope"] == "global"
            share = np.where((share == 0.0) & shared, 1.0 - 1.0 / number, share)
        shares.append(share)
        before = kind
    return shares


def _die_of(inputs: Inputs, part: str) -> tuple[Ints, Floats]:
    """Return the index of the kind of die that holds a part, 0 for the cores', and its number of dies."""
    kind: Ints = np.zeros(inputs["chip.tdp"].size, dtype=np.int64)
    number: Floats = np.asarray(inputs["chip.dies"], dtype=np.float64)
    for index, name in enumerate(die_kinds(inputs), start=1):
        rows = holds(inputs, name, part)
        kind = np.where(rows, index, kind)
        number = np.where(rows, inputs[f"{CHIPLETS}{name}.dies"], number)
    return kind, number


def crossings(shares: list[Floats], bandwidth: Floats, latency: Floats, energy: Floats) -> list[Crossing]:
    """Return the crossing of each level's traffic, and of main memory's: they share the links evenly.

    shares: of `crossing_shares`; bandwidth [B/s], latency [s] and energy [J/bit] of all links together.
    """
    number = np.sum([share > 0.0 for share in shares], axis=0)
    with np.errstate(divide="ignore", invalid="ignore"):
        return [
            Crossing(
                np.where(share > 0.0, bandwidth / (share * np.maximum(number, 1)), np.inf),
                share * latency,
                share * energy,
            )
            for share in shares
        ]
