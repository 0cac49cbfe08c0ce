"""Local linear attention (Zuo et al., arXiv:2510.01450): heads of attention with another core.

Queries, keys and values are those of attention, and so is the cache of a request. The ridge of its
regressions is a number.
"""

from __future__ import annotations

from fastflow.core.tables import Inputs, single
from fastflow.physics.workload.models.transformer.building_blocks import HEADS, HIDDEN, gemm
from fastflow.physics.workload.models.transformer.dimensions import BEFORE, Sizes
from fastflow.physics.workload.models.transformer.layer_kind import LayerKind
from fastflow.physics.workload.models.transformer.mixer import PROJECTION
from fastflow.physics.workload.models.transformer.mixers import heads
from fastflow.physics.workload.models.transformer.mixers.attention import ATTENTION
from fastflow.physics.workload.network import Node
from fastflow.physics.workload.ops.local_linear import local_linear_attention

_CORE = "attention"


def _nodes(points: Inputs, size: Sizes, kind: LayerKind, read: str) -> list[Node]:
    nodes = heads.projections(points, size, kind, read)
    source, columns = nodes[0].name, size.heads * size.value_dim
    nodes.append(
        local_linear_attention(
            _CORE, (nodes[-1].name,), heads.sizes_of_attention(size, size.sequence), True, expanded=True,
            dims=heads.CORE_DIMS,
        )
    )  # fmt: skip
    nodes += heads.gated(points, size, _CORE, source)
    return [*nodes, gemm(PROJECTION, size, columns, size.hidden, nodes[-1].name, (HEADS, HIDDEN))]


def _core(points: Inputs, size: Sizes, kind: LayerKind, decodes: bool) -> list[Node]:
    """Return the core of serving: the cache is written as attention writes it."""
    sizes = heads.sizes_of_attention(size, single(points[BEFORE.name]) + size.sequence)

    def with_solver(node: Node) -> Node:
        return local_linear_attention(
            _CORE, node.reads, sizes, True, decodes=decodes, dims=node.dims, keeps=0
        )

    nodes = heads.serve(points, size, kind, heads.Reach(), decodes)
    return [with_solver(node) if node.name == _CORE else node for node in nodes]


LOCAL_LINEAR = ATTENTION._replace(
    name="local_linear", meaning="local linear attention", nodes=_nodes, core=_core, further=(), latent=False
)
