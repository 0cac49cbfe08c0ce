"""A layer of Zamba: a block of attention and feed-forward on the token and its embedding, then a Mamba layer.

The block reads the residual and the embedding side by side (twice the columns of a token), has no residual
sum of its own, and its weights are shared by many layers (`tied`). Each layer has a product of its own for
the block's output, which is added to the residual before the norm of Mamba; and low-rank adapters of the
block's first products. Zamba (Glorioso et al., arXiv:2405.16712) has Mamba and no adapters, Zamba2
(arXiv:2411.15242) has Mamba-2 and adapters of the feed-forward part, in its smallest model of queries, keys
and values, too (huggingface/transformers@00511f5, models/zamba2).
"""

from __future__ import annotations

from functools import partial

import numpy as np

from fastflow.core.tables import Inputs, Ints
from fastflow.physics.workload.graph import Dims
from fastflow.physics.workload.models.transformer.building_blocks import (
    FEED_FORWARD,
    HEADS,
    HIDDEN,
    TOKENS,
    Names,
    gemm,
    norm,
    residual,
)
from fastflow.physics.workload.models.transformer.dimensions import Sizes
from fastflow.physics.workload.models.transformer.feed_forward import dense_nodes
from fastflow.physics.workload.models.transformer.layer_kind import LayerKind
from fastflow.physics.workload.models.transformer.mixer import PROJECTION, LayerCache, Mixer
from fastflow.physics.workload.models.transformer.mixers import heads
from fastflow.physics.workload.models.transformer.mixers.attention import ATTENTION
from fastflow.physics.workload.models.transformer.mixers.linear import CONVOLUTION, MIXER_IN, RECURRENCE
from fastflow.physics.workload.models.transformer.mixers.mamba import MAMBA
from fastflow.physics.workload.models.transformer.mixers.mamba2 import MAMBA2
from fastflow.physics.workload.network import Node, PassCost
from fastflow.physics.workload.ops import pointwise
from fastflow.physics.workload.precision import Precision

_RANK = ("adapter_rank",)
"""The dimension of adapters, which no axis shards."""
_EMBEDDING_NORM, _BLOCK_NORM, _MAMBA_NORM = "embedding norm", "block norm", "mamba norm"
_OUTPUT, _SUM = "block output", "block add"
_DOWN, _UP, _SUM_OF_BOTH = "adapter down", "adapter up", "adapted"


def _nodes(
    behind: Mixer, adapts_queries: bool, points: Inputs, size: Sizes, kind: LayerKind, read: str
) -> list[Node]:
    norm_type = str(points["model.norm"][0])
    embedding_norm = norm(_EMBEDDING_NORM, size, norm_type, read, size.hidden)
    both = (read, embedding_norm.name)
    without_latent = {**points, "model.query_latent": np.zeros(1, dtype=np.int64)}
    qkv, *rotation = heads.projections(without_latent, size._replace(hidden=2 * size.hidden), kind, read)
    adapts = _has_adapters(size)
    joined = _adapted(size, qkv._replace(reads=both), 3, HEADS, adapts and adapts_queries)
    nodes = [embedding_norm, *joined, *_reading(rotation, qkv.name, joined[-1].name)]
    nodes += heads.core_of_training(points, size, heads.Reach(), size.head_dim, nodes[-1].name)
    columns = size.heads * size.value_dim
    out = gemm("attention output", size, columns, size.hidden, nodes[-1].name, (HEADS, HIDDEN))
    nodes += [out, norm(_BLOCK_NORM, size, norm_type, out.name, size.hidden)]
    first, *rest = dense_nodes(points, size, size.ffn, _BLOCK_NORM, "block ")
    joined = _adapted(size, first, 1, FEED_FORWARD, adapts)
    nodes += [*joined, *_reading(rest, first.name, joined[-1].name)]
    output = gemm(_OUTPUT, size, size.hidden, size.hidden, nodes[-1].name, (HIDDEN, HIDDEN))
    return [
        *nodes,
        _unsaved(output),
        residual(_SUM, size, (_OUTPUT, read), False),
        norm(_MAMBA_NORM, size, norm_type, _SUM, size.hidden),
        *behind.nodes(points, size, kind, _MAMBA_NORM),
    ]


def _has_adapters(size: Sizes) -> bool:
    return bool(np.any(np.asarray(size.adapter_rank) > 0))


def _adapted(size: Sizes, product: Node, parts: int, columns: Names, has_adapter: bool) -> list[Node]:
    """Return a product; where it has an adapter, a low-rank product and the sum of both too.

    parts: adapters, each with its rank; the second low-rank product has a block for each part.
    """
    if not has_adapter:
        return [product]
    rank, prefix = size.adapter_rank, f"{product.name} "
    down = gemm(prefix + _DOWN, size, product.inner, parts * rank, "", (HIDDEN, _RANK))
    up = gemm(prefix + _UP, size, rank, product.cols, down.name, (_RANK, columns))
    add = pointwise.OPERATORS["add"]
    adapted = Node(
        name=prefix + _SUM_OF_BOTH, type=pointwise.TYPES["add"], rows=size.tokens, cols=product.cols,
        reads=(product.name, up.name), cost=PassCost(3.0, add.flop, 0.0), keeps=product.keeps,
        keeps_whole=product.keeps_whole, dims=Dims(TOKENS, (), columns),
    )  # fmt: skip
    return [_unsaved(product), down._replace(reads=product.reads), _unsaved(up), adapted]


def _unsaved(node: Node) -> Node:
    """Return a node whose output no backward pass reads."""
    return node._replace(keeps=0, keeps_whole=0)


def _reading(nodes: list[Node], before: str, after: str) -> list[Node]:
    """Return nodes that read another node's output instead of a node's."""
    return [
        node._replace(reads=tuple(after if name == before else name for name in node.reads)) for node in nodes
    ]


def _core(behind: Mixer, points: Inputs, size: Sizes, kind: LayerKind, decodes: bool) -> list[Node]:
    attention = heads.serve(points, size, kind, heads.Reach(), decodes)
    return [*attention, *behind.core(points, size, kind, decodes)]


def _cache(
    behind: Mixer, inputs: Inputs, size: Sizes, kind: LayerKind, numbers: Precision, tensor: Ints
) -> LayerCache:
    """Return what both parts of a layer keep."""
    keys, states = (mixer.cache(inputs, size, kind, numbers, tensor) for mixer in (ATTENTION, behind))
    return LayerCache(*(of_keys + of_states for of_keys, of_states in zip(keys, states, strict=True)))


_UNTIED = (_OUTPUT, _MAMBA_NORM, MIXER_IN, CONVOLUTION, RECURRENCE, PROJECTION)


def _hybrid(
    name: str, meaning: str, behind: Mixer, of_behind: tuple[str, ...], adapts_queries: bool = False
) -> Mixer:
    """Return the mixer of a layer; of_behind: further nodes of the mixer behind the block, with weights."""
    adapters = (
        f"{product} {part}" for product in ("qkv", "block gate and up", "block up") for part in (_DOWN, _UP)
    )
    return Mixer(
        name=name,
        meaning=meaning,
        nodes=partial(_nodes, behind, adapts_queries),
        core=partial(_core, behind),
        core_nodes=(*ATTENTION.core_nodes, *behind.core_nodes),
        cache=partial(_cache, behind),
        attends=True,
        needs=tuple((key, name) for key, _ in behind.needs),
        further=(*behind.further, "model.ffn", *(("model.adapter_rank",) if behind is MAMBA2 else ())),
        untied=(*_UNTIED, *of_behind, *adapters),
    )


ZAMBA = _hybrid(
    "zamba", "a block of attention and feed-forward, then Mamba", MAMBA, ("step, key and query", "step up")
)
ZAMBA2 = _hybrid("zamba2", "a block of attention and feed-forward, then Mamba-2", MAMBA2, ("gated norm",))
ADAPTED_ZAMBA2 = _hybrid(
    "adapted_zamba2", "the same with adapters of queries, keys and values", MAMBA2, ("gated norm",),
    adapts_queries=True,
)  # fmt: skip
