"""Layers whose products compute in fewer bits than activations have: who quantises, and what is kept then.

As NVIDIA's Transformer Engine does it for Megatron-core (pytorch/module/linear.py, layernorm_linear.py): a
norm before a product writes what that reads; all else is quantised by a pass, gradients of outputs too.
Products keep their quantised input for the backward pass. Attention, logits and routers compute in the type
of activations.
"""

from __future__ import annotations

from collections.abc import Sequence

from fastflow.physics.workload.graph import PRODUCT
from fastflow.physics.workload.models.transformer.building_blocks import mask
from fastflow.physics.workload.models.transformer.dimensions import Sizes
from fastflow.physics.workload.network import Node, Size
from fastflow.physics.workload.ops import pointwise

NORMS = (pointwise.TYPES["rmsnorm"], pointwise.TYPES["layernorm"])


def quantised(nodes: Sequence[Node], size: Sizes) -> tuple[Node, ...]:
    """Return the nodes of a layer with what it takes to quantise the operands of its products."""
    made = {node.name: node for node in nodes}
    read = {node.reads[0]: mask(size, node.inner) for node in nodes if _quantises(node)}
    with_passes = (_with_passes(node, made) for node in nodes)
    return tuple(
        _keep_quantized(node, read[node.name]) if node.name in read else node for node in with_passes
    )


def _quantises(node: Node) -> bool:
    return node.type.kind == PRODUCT and not node.wide


def _with_passes(node: Node, made: dict[str, Node]) -> Node:
    """Let a product's operands be quantised by passes; experts do so as they gather rows."""
    if not _quantises(node):
        return node
    maker = made.get(node.reads[0])
    has_pass = node.type.time is None and (maker is None or maker.type not in NORMS)
    return node._replace(quantises_input=has_pass, quantises_gradient=True)


def _keep_quantized(node: Node, quantised: Size) -> Node:
    """Keep what products read as they read it; its own gradient reads what attention made as that was."""
    if node.type in NORMS:
        return node._replace(keeps=quantised)
    return node if node.type.time is not None else node._replace(keeps_whole=quantised)
