"""The scaling of areas and powers from the base node to later nodes: the paper's rule, or foundries' data."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fastflow.core.tables import Bools, Floats, Inputs

NODES = ("n7", "n5", "n3", "n2", "n1_4", "n1")
"""The full nodes after the base node; `tech.generation` counts up to one of them."""


class Scaling(NamedTuple):
    """The divisors of area and power of each kind of cell, over the base node; shape (points,)."""

    logic_area: Floats
    logic_power: Floats  # at the same speed
    sram_area: Floats
    sram_power: Floats
    wire_area: Floats  # crossbars across the die: as wide as their pitch, as long as the die
    analog_area: Floats  # links off the die


KINDS = Scaling._fields


def step_key(node: str, kind: str) -> str:
    """Return the key of a node's divisor of a kind of cell, over the previous node."""
    return f"scaling.{node}.{kind}"


def has_steps(inputs: Inputs) -> bool:
    """Return whether the inputs have a step for every node; otherwise the paper's rule holds (section 9)."""
    return step_key(NODES[0], KINDS[0]) in inputs


def node_scaling(inputs: Inputs) -> Scaling:
    """Return the divisors of components of the base node after `tech.generation` nodes.

    By the paper's rule, all cells shrink by the same factor, and analog does not shrink. A half node improves
    the logic of the previous full node, by either rule. Raises KeyError where steps of a node are missing.
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
    """Return which points have a generation without a step, shape (points,)."""
    return (inputs["tech.generation"] > len(NODES)) & has_steps(inputs)
