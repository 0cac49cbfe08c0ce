"""Gated delta nets (Yang et al., arXiv:2412.06464), with the products and norms of Qwen3-Next.

One product makes queries, keys, values, the output's gate and two numbers a head; a short convolution runs
over the first three (Qwen3NextGatedDeltaNet of huggingface/transformers). Keys and queries are normalised in
the recurrence's own kernels.
"""

from __future__ import annotations

from fastflow.core.tables import Inputs
from fastflow.physics.workload.models.transformer.building_blocks import HEADS, HIDDEN, gemm
from fastflow.physics.workload.models.transformer.dimensions import Sizes
from fastflow.physics.workload.models.transformer.layer_kind import LayerKind
from fastflow.physics.workload.models.transformer.mixer import PROJECTION, Mixer
from fastflow.physics.workload.models.transformer.mixers.linear import (
    CORE_NODES,
    core_of_serving,
    core_of_training,
    gated_norm,
    state_cache,
)
from fastflow.physics.workload.network import Node, Size
from fastflow.physics.workload.ops.recurrence import DELTA

_NUMBERS = 2  # of a head and token: decay, and strength of the update
_OWN = 2  # of a head: the decay's scale and bias


def _channels(size: Sizes) -> Size:
    """Return the channels of the short convolution: queries, keys and values."""
    keys: Size = 2 * size.linear_key_heads * size.linear_key_dim
    return keys + size.linear_heads * size.linear_value_dim


def _nodes(points: Inputs, size: Sizes, kind: LayerKind, read: str) -> list[Node]:
    values: Size = size.linear_heads * size.linear_value_dim
    cols: Size = _channels(size) + values
    cols = cols + _NUMBERS * size.linear_heads
    nodes = [gemm("mixer in", size, size.hidden, cols, read, (HIDDEN, HEADS))]
    nodes += core_of_training(size, DELTA, "mixer in", _channels(size), vectors=_OWN * size.linear_heads)
    nodes.append(gated_norm(size, nodes[-1].name, "mixer in"))
    return [*nodes, gemm(PROJECTION, size, values, size.hidden, nodes[-1].name, (HEADS, HIDDEN))]


def _core(points: Inputs, size: Sizes, kind: LayerKind, decodes: bool) -> list[Node]:
    return core_of_serving(size, DELTA, _channels(size), decodes)


GATED_DELTA = Mixer(
    name="gated_delta",
    meaning="gated delta net",
    nodes=_nodes,
    core=_core,
    core_nodes=CORE_NODES,
    cache=state_cache(_channels),
    needs=tuple((f"model.{name}", "gated_delta") for name in ("linear_heads", "linear_key_dim")),
)
