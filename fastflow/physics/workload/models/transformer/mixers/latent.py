"""Latent attention (DeepSeek-V2, arXiv:2405.04434, section 2.1): a latent vector of keys and values a token.

Training and prefill expand it into keys and values of every head; decode absorbs the expansion into queries
and outputs (section 2.1.2).
"""

from __future__ import annotations

from fastflow.core.tables import Inputs, single
from fastflow.physics.workload.models.attention import CACHED, setup_kernels
from fastflow.physics.workload.models.latent_attention import latent_prefill_cache
from fastflow.physics.workload.models.sparse_layers import absorbed
from fastflow.physics.workload.models.transformer.building_blocks import HEADS, HIDDEN, gemm, norm
from fastflow.physics.workload.models.transformer.dimensions import BEFORE, RMS, Sizes
from fastflow.physics.workload.models.transformer.mixers.heads import (
    ALL_HEADS,
    CORE_DIMS,
    Reach,
    gate_columns,
    rotary,
    window_of,
)
from fastflow.physics.workload.models.transformer.mixers.queries import (
    Source,
    query_product,
    source_of_queries,
)
from fastflow.physics.workload.network import INPUT, Node
from fastflow.physics.workload.ops.attention import AttentionSizes, attention
from fastflow.physics.workload.ops.kv_cache import kv_cache_in_decode
from fastflow.physics.workload.recompute_modules import MLA_UP_PROJ

GATE = "gate of output"
LATENT = ("latent",)


def queries_and_latent_keys(points: Inputs, size: Sizes, source: Source, read: str) -> list[Node]:
    """Return the products of all heads' queries and of the latent keys, with their norms."""
    queries = size.heads * (size.head_dim + size.rotary)
    nodes = [
        *source.nodes,
        query_product(size, source, queries, keeps=0, modules=MLA_UP_PROJ),
        gemm("key down", size, size.hidden, size.latent + size.rotary, read, (HIDDEN, LATENT)),
        _key_norm(size),
    ]
    gate = gate_columns(points, size)
    if not isinstance(gate, int) or gate:
        nodes.insert(0, gemm(GATE, size, size.hidden, gate, read, (HIDDEN, HEADS)))
    return nodes


def projections(points: Inputs, size: Sizes, read: str) -> list[Node]:
    """Return the products of latent queries and keys, and the pass that lays out those of every head."""
    queries = size.heads * (size.head_dim + size.rotary)
    of_values = size.heads * (size.head_dim + size.value_dim)
    nodes = queries_and_latent_keys(points, size, source_of_queries(points, size, read), read)
    nodes.append(
        gemm(
            "key up", size, size.latent, of_values, "key norm", (LATENT, HEADS), keeps=0, modules=MLA_UP_PROJ
        )
    )
    # rotates columns of queries in place, and copies keys and values to separate tensors
    moved = 2 * size.heads * size.rotary + 2 * of_values + size.heads * size.rotary
    cols = 2 * queries + size.heads * size.value_dim
    return [*nodes, rotary(size, cols, ("query up", "key up"), moved)._replace(modules=MLA_UP_PROJ)]


def _key_norm(size: Sizes) -> Node:
    """Return the norm of latent keys, with which their rotated columns go on to all heads."""
    node = norm("key norm", size, RMS, "key down", size.latent + size.rotary, LATENT)
    return node._replace(vectors=size.latent)


def serve(points: Inputs, size: Sizes, reach: Reach, decodes: bool) -> list[Node]:
    """Return latent attention: absorbed in decode, expanded in prefill."""
    before, kept = single(points[BEFORE.name]), size.latent + size.rotary
    window = window_of(reach, size.sequence, before + size.sequence)
    all_heads = 2 * size.heads * (size.head_dim + size.rotary) + size.heads * size.value_dim
    if decodes:
        sizes = AttentionSizes(
            size.sequences, size.sequence, before + size.sequence, size.heads, 1, kept, size.latent, window
        )
        core = attention("attention", (CACHED,), sizes, True, decodes=True, latent=True, dims=CORE_DIMS)
        rotated = size.heads * size.rotary
        in_decode = kv_cache_in_decode(CACHED, size.tokens, core, read=rotated, made=rotated, kept=kept)
        return [
            absorbed("absorbed queries", sizes, INPUT, size.head_dim, size.latent),
            in_decode._replace(dims=ALL_HEADS, reads=("absorbed queries",)),
            core,
            absorbed("absorbed values", sizes, "attention", size.latent, size.value_dim),
        ]
    cols = size.heads * (size.head_dim + size.value_dim)
    rows = size.sequences * (before + size.sequence)
    up = gemm("key up", size, size.latent, cols, INPUT, (LATENT, HEADS))._replace(rows=rows)
    expanded = AttentionSizes(
        size.sequences, size.sequence, before + size.sequence, size.heads, size.heads,
        size.head_dim + size.rotary, size.value_dim, window,
    )  # fmt: skip
    core = attention("attention", (CACHED,), expanded, True, expanded=True, dims=CORE_DIMS)
    in_prefill = latent_prefill_cache(size.tokens, all_heads, size.heads * size.rotary, kept)
    return [*setup_kernels(), up, in_prefill._replace(dims=ALL_HEADS, reads=("key up",)), core]
