"""Local linear attention (Zuo et al., arXiv:2510.01450): heads of attention with another core.

Queries, keys and values are those of attention, and so is the cache of a request. The ridge of its
regressions is a number.
"""

from __future__ import annotations

from fastflow.core.tables import Inputs
from fastflow.physics.workload.models.transformer.building_blocks import HEADS, HIDDEN, gemm, mask
from fastflow.physics.workload.models.transformer.dimensions import Sizes
from fastflow.physics.workload.models.transformer.layer_kind import LayerKind
from fastflow.physics.workload.models.transformer.mixer import PROJECTION
from fastflow.physics.workload.models.transformer.mixers import heads
from fastflow.physics.workload.models.transformer.mixers.attention import ATTENTION
from fastflow.physics.workload.network import Node
from fastflow.physics.workload.ops.attention import AttentionSizes, attention
from fastflow.physics.workload.ops.local_linear import local_linear

_CORE = "attention"


def _nodes(points: Inputs, size: Sizes, kind: LayerKind, read: str) -> list[Node]:
    nodes = heads.projections(points, size, kind, read)
    source, columns = nodes[0].name, size.heads * size.value_dim
    sizes = AttentionSizes(
        size.sequences, size.sequence, size.sequence, size.heads, size.kv_heads, size.head_dim,
        size.value_dim, 0,
    )  # fmt: skip
    core = attention(
        _CORE, (nodes[-1].name,), sizes, True, expanded=True, dims=heads.CORE_DIMS,
        keeps=mask(size, 4),
    )  # fmt: skip
    nodes += [local_linear(core), *heads.gated(points, size, _CORE, source)]
    return [*nodes, gemm(PROJECTION, size, columns, size.hidden, nodes[-1].name, (HEADS, HIDDEN))]


def _core(points: Inputs, size: Sizes, kind: LayerKind, decodes: bool) -> list[Node]:
    return [
        local_linear(node, decodes) if node.name == _CORE else node
        for node in heads.serve(points, size, kind, heads.Reach(), decodes)
    ]


LOCAL_LINEAR = ATTENTION._replace(
    name="local_linear", meaning="local linear attention", nodes=_nodes, core=_core
)
