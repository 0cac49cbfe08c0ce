"""A pass that rounds its input to fewer bits, with block scales."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from fastflow.core.yaml_file import choice_of
from fastflow.physics.workload.data_types import BOTH_OPERANDS
from fastflow.physics.workload.graph import Kernel, PerElement
from fastflow.physics.workload.network import KernelType, Network, Node, PassCost, Side
from fastflow.physics.workload.ops.elementwise import TYPE as PASS
from fastflow.physics.workload.precision import MAXIMUM_FLOP, QUANTISE_FLOP, QUANTIZED_BYTES, Precision


def _forward(network: Network, i: int, kernel: Kernel, precision: Precision) -> Kernel:
    """Return a pass that reads activations once, and writes elements of `moves` bytes."""
    node = network.nodes[i].node
    assert node.cost.moves is not None
    return kernel._replace(per_element=PerElement(precision.activation + node.cost.moves, node.cost.flop))


def _from_file(
    where: str, node: Node, sides: Mapping[str, Side], model: Side, fields: Mapping[str, Any]
) -> Node:
    """Return a pass that computes the scales of rows or blocks as it quantises."""
    narrow_types = tuple(name for name in BOTH_OPERANDS if QUANTIZED_BYTES[name] > 0.0)
    dtype = choice_of(f"{where}.to", fields["to"], narrow_types)
    flop = MAXIMUM_FLOP + QUANTISE_FLOP
    return node._replace(cost=PassCost(moves=QUANTIZED_BYTES[dtype], flop=flop, backward_moves=0.0))


TYPE: KernelType = replace(
    PASS, name="quantise", title="quantise", required=("cols", "to"), required_strings=("to",),
    optional=("rows", "groups", "reads"), forward=_forward, from_file=_from_file,
)  # fmt: skip
