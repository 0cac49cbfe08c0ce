"""Layers whose products compute in fewer bits than activations have: the quantise passes, and saved inputs.

As NVIDIA's Transformer Engine for Megatron-core (pytorch/module/linear.py, layernorm_linear.py): a norm
before a product writes the quantised operand; a separate pass quantises other operands, and gradients of
outputs. Products save their quantised input for the backward pass. Attention, logits and routers compute in
the type of activations.
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
    """Return the nodes of a layer, with quantised operands of its products."""
    by_name = {node.name: node for node in nodes}
    read = {node.reads[0]: mask(size, node.inner) for node in nodes if _quantises(node)}
    with_passes = (_with_passes(node, by_name) for node in nodes)
    return tuple(
        _keep_quantized(node, read[node.name]) if node.name in read else node for node in with_passes
    )


def _quantises(node: Node) -> bool:
    return node.type.kind == PRODUCT and not node.wide


def _with_passes(node: Node, by_name: dict[str, Node]) -> Node:
    """Let passes quantise a product's operands; experts quantise as they gather rows."""
    if not _quantises(node):
        return node
    producer = by_name.get(node.reads[0])
    has_pass = node.type.time is None and (producer is None or producer.type not in NORMS)
    passes = node.passes._replace(quantises_input=has_pass, quantises_gradient=True)
    return node._replace(passes=passes)


def _keep_quantized(node: Node, quantised: Size) -> Node:
    """Save the inputs of products quantised; the gradient of attention reads its unquantised output."""
    if node.type in NORMS:
        return node._replace(keeps=quantised)
    return node if node.type.time is not None else node._replace(keeps_whole=quantised)
