"""What later nodes divide areas and powers of the base node by: the paper's rule, or foundries' figures."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fastflow.core.tables import Bools, Floats, Inputs

NODES = ("n7", "n5", "n3", "n2", "n1_4", "n1")
"""The full nodes after the base node; `tech.generation` counts up to one of them."""


class Scaling(NamedTuple):
    """What area and power of each kind of cell are divided by, over the base node; shape (points,)."""

    logic_area: Floats
    logic_power: Floats  # at the same speed
    sram_area: Floats
    sram_power: Floats
    wire_area: Floats  # crossbars across the die: as wide as their pitch, as long as the die
    analog_area: Floats  # links off the die


KINDS = Scaling._fields


def step_key(node: str, kind: str) -> str:
    """Return the input that says what a node divides a kind of cell by, over the node before it."""
    return f"scaling.{node}.{kind}"


def has_steps(inputs: Inputs) -> bool:
    """Say whether the inputs give every node's own steps; otherwise the paper's rule holds (section 9)."""
    return step_key(NODES[0], KINDS[0]) in inputs


def node_scaling(inputs: Inputs) -> Scaling:
    """Return what components of the base node are divided by, `tech.generation` nodes on.

    By the paper's rule, all that the node makes shrinks alike, and analog does not shrink. A half node
    improves on the logic of the full one before it, by either rule. Raises KeyError
    where steps of one node are given and those of another are not.
    """
    generation = inputs["tech.generation"]
    if has_steps(inputs):
        full = Scaling(*(_steps(inputs, kind, generation) for kind in KINDS))
    else:
        area = inputs["tech.scaling.area"] ** generation.astype(np.float64)
        power = inputs["tech.scaling.power"] ** generation.astype(np.float64)
        full = Scaling(area, power, area, power, area, np.ones_like(area))
    return full._replace(
        logic_area=full.logic_area * inputs["tech.half_node.logic_area"],
        logic_power=full.logic_power * inputs["tech.half_node.logic_power"],
    )


def _steps(inputs: Inputs, kind: str, generation: Floats) -> Floats:
    """Return the product of the steps up to each point's generation."""
    factor = np.ones(generation.size)
    for number, node in enumerate(NODES, start=1):
        factor = np.where(generation >= number, factor * inputs[step_key(node, kind)], factor)
    return factor


def is_beyond_steps(inputs: Inputs) -> Bools:
    """Say which points are of a generation for which no step is given, shape (points,)."""
    return (inputs["tech.generation"] > len(NODES)) & has_steps(inputs)
