"""Mamba-2 (Dao and Gu, arXiv:2405.21060), with the products and norms of its authors' module.

One product makes the output's gate, values, keys and queries (B and C, of groups of heads) and a step size a
head; a short convolution runs over all but the first and the last (Mamba2 of state-spaces/mamba).
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
from fastflow.physics.workload.ops.recurrence import SCAN

_OWN = 3  # weights of a head: the decay's scale, the step's bias, the skip connection


def _channels(size: Sizes) -> Size:
    """Return the channels of the short convolution: values, keys and queries."""
    keys: Size = 2 * size.linear_key_heads * size.linear_key_dim
    return keys + size.linear_heads * size.linear_value_dim


def _nodes(points: Inputs, size: Sizes, kind: LayerKind, read: str) -> list[Node]:
    values: Size = size.linear_heads * size.linear_value_dim
    cols: Size = _channels(size) + values
    cols = cols + size.linear_heads
    nodes = [gemm("mixer in", size, size.hidden, cols, read, (HIDDEN, HEADS))]
    own = _OWN * size.linear_heads
    nodes += core_of_training(size, SCAN, "mixer in", _channels(size), vectors=own, biased=True)
    nodes.append(gated_norm(size, nodes[-1].name, "mixer in")._replace(vectors=values))
    return [*nodes, gemm(PROJECTION, size, values, size.hidden, nodes[-1].name, (HEADS, HIDDEN))]


def _core(points: Inputs, size: Sizes, kind: LayerKind, decodes: bool) -> list[Node]:
    return core_of_serving(size, SCAN, _channels(size), decodes)


MAMBA2 = Mixer(
    name="mamba2",
    meaning="Mamba-2",
    nodes=_nodes,
    core=_core,
    core_nodes=CORE_NODES,
    cache=state_cache(_channels),
    needs=tuple((f"model.{name}", "mamba2") for name in ("linear_heads", "linear_key_dim")),
)
