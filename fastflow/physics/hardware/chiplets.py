"""Chiplets: a package of several dies, which node each is of, and what crosses from die to die.

`chip.dies` equal dies hold the cores, and all that no other kind of die holds. `chip.chiplets.NAME` is a
further kind: of a node of its own, for main memory's controllers, links, or levels that all cores share.
Links between dies (`chip.link`) take area, power and the edges that dies turn to each other. The dies tile a
square.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from fastflow.core.tables import Bools, Floats, Inputs, Ints

CHIPLETS = "chip.chiplets."
_AREA = "chip.area."
LINK = "link"
"""The part of a chip that joins its dies, as the shares of its budgets have it."""
HOLDABLE = ("l2", "l3", "l4", "dram", "intra", "inter")
"""What a kind of die may hold: cores and what is theirs stay together."""
OF_NODE = {
    "generation": "tech.generation",
    "logic_area": "tech.half_node.logic_area",
    "logic_power": "tech.half_node.logic_power",
    "wafer_price": "tech.wafer_price",
    "defect_density": "tech.defect_density",
    "defect_cluster": "tech.defect_cluster",
}
"""What a kind of die has of its node, and where a chip of one kind has it."""


class Crossing(NamedTuple):
    """What traffic of a level meets on its way to the level before; shape (points,)."""

    bandwidth: Floats  # the most that crosses, infinite where nothing does [B/s]
    latency: Floats  # [s]
    energy: Floats  # [J/bit]


def kinds(inputs: Inputs) -> list[str]:
    """Return the names of the kinds of dies beside that of the cores."""
    found = (key.removeprefix(CHIPLETS).partition(".")[0] for key in inputs if key.startswith(CHIPLETS))
    return list(dict.fromkeys(found))


def has_links(inputs: Inputs) -> bool:
    """Say whether dies are joined by links that are described."""
    return f"chip.area.{LINK}" in inputs


def holds(inputs: Inputs, kind: str, part: str) -> Bools:
    """Say of which points a kind of die holds a part, shape (points,)."""
    written = inputs[f"{CHIPLETS}{kind}.holds"]
    names = {text: part in str(text).split() for text in np.unique(written).tolist()}
    found: Bools = np.array([names[text] for text in written.tolist()], dtype=np.bool_)
    return found


def inputs_at_die(inputs: Inputs, part: str) -> Inputs:
    """Return the inputs with the node of the die that holds a part in place of the cores'."""
    changed = dict(inputs)
    for kind in kinds(inputs):
        rows = holds(inputs, kind, part)
        if rows.any():
            for name, key in OF_NODE.items():
                changed[key] = np.where(rows, inputs[f"{CHIPLETS}{kind}.{name}"], changed[key])
    return changed


def dies(inputs: Inputs) -> Floats:
    """Return how many dies a package has, of all kinds, shape (points,)."""
    total = np.asarray(inputs["chip.dies"], dtype=np.float64)
    for kind in kinds(inputs):
        total = total + inputs[f"{CHIPLETS}{kind}.dies"]
    return total


def inner_edge(inputs: Inputs) -> Floats:
    """Return the length of edges between dies [m], shape (points,): equal squares that tile a square."""
    found: Floats = 2.0 * np.sqrt(inputs["chip.die_area"]) * (np.sqrt(dies(inputs)) - 1.0)
    return found


def needed_area(inputs: Inputs, kind: str) -> Floats:
    """Return the area of what all dies of a kind hold, and of their part of the links [m^2], (points,).

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
    """Say of which points a kind of die has a part: what no other kind holds is of the cores' dies."""
    if kind:
        return holds(inputs, kind, part)
    others: Bools = ~np.any([holds(inputs, other, part) for other in kinds(inputs)], axis=0)
    return others


def areas(inputs: Inputs) -> Iterator[tuple[str, Floats, Floats]]:
    """Yield the kinds of dies: name, "" for that of the cores, number, and area of one [m^2], (points,) each.

    A kind has the area of what it holds and its dies' part of the links', unless its own is known; the cores'
    dies have the rest.
    """
    left = np.asarray(inputs["chip.die_area"])
    for kind in kinds(inputs):
        number = inputs[f"{CHIPLETS}{kind}.dies"]
        known = inputs.get(f"{CHIPLETS}{kind}.die_area")
        area = needed_area(inputs, kind) / number if known is None else known
        left = left - number * area
        yield kind, number, area
    yield "", inputs["chip.dies"], left / inputs["chip.dies"]


def crossing_shares(inputs: Inputs, levels: int) -> list[Floats]:
    """Return which share of the traffic of each level, and of main memory, crosses to another die.

    All of it where the level before lies on another kind of die; of a level that all cores share on several
    equal dies, all but what a core's own die holds. Shape (points,) each.
    """
    if not has_links(inputs):
        return [np.zeros(inputs["chip.tdp"].size)] * (levels + 1)
    parts = [f"l{number}" for number in range(levels)]
    apart = np.zeros(inputs["chip.tdp"].size, dtype=np.int64)
    found: list[Floats] = []
    before: Ints = apart
    for part in (*parts, "dram"):
        kind, number = _place(inputs, part)
        share = (kind != before).astype(np.float64)
        if part != "dram":
            shared = inputs[f"chip.memory.{part}.scope"] == "global"
            share = np.where((share == 0.0) & shared, 1.0 - 1.0 / number, share)
        found.append(share)
        before = kind
    return found


def _place(inputs: Inputs, part: str) -> tuple[Ints, Floats]:
    """Return the number of the kind of die that holds a part, 0 for the cores', and how many dies it has."""
    kind: Ints = np.zeros(inputs["chip.tdp"].size, dtype=np.int64)
    number: Floats = np.asarray(inputs["chip.dies"], dtype=np.float64)
    for place, name in enumerate(kinds(inputs), start=1):
        rows = holds(inputs, name, part)
        kind = np.where(rows, place, kind)
        number = np.where(rows, inputs[f"{CHIPLETS}{name}.dies"], number)
    return kind, number


def crossings(shares: list[Floats], bandwidth: Floats, latency: Floats, energy: Floats) -> list[Crossing]:
    """Return what each level's traffic, and main memory's, meets: they share the links evenly.

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
