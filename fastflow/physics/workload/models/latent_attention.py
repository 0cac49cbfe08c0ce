"""`model=latent_attention`: DeepSeek's latent attention (DeepSeek-V2, arXiv:2405.04434, section 2.1).

The cache holds a latent vector and a rotated key for each token, which all heads share. Prefill expands them
into keys and values of every head. Decode absorbs the expansion into queries and outputs: all heads
attend to the same keys, whose latent part is the values.
"""

from __future__ import annotations

from fastflow.core.field import count
from fastflow.core.tables import Inputs
from fastflow.physics.workload.family import Family, independent_rows, single_operation
from fastflow.physics.workload.models.attention import (
    CACHED,
    DIMS,
    PHASE,
    SIZES,
    attention_reads,
    decodes,
    kv_len_of,
    with_setup_kernels,
)
from fastflow.physics.workload.network import Network, Node, Size
from fastflow.physics.workload.ops.attention import AttentionSizes, attention
from fastflow.physics.workload.ops.kv_cache import kv_cache, kv_cache_in_decode


def network(points: Inputs) -> Network:
    """Return the network of each point's attention, expanded in prefill and absorbed in decode."""
    sequences, q_len, heads, latent, rotary, head_dim, value_dim = (
        points[f"model.{name}"]
        for name in ("batch", "q_len", "heads", "latent", "rotary", "head_dim", "value_dim")
    )
    kept, rows = latent + rotary, sequences * q_len
    expands = not decodes(points)
    all_heads = 2 * heads * (head_dim + rotary) + heads * value_dim
    sizes = AttentionSizes(
        sequences, q_len, kv_len_of(points), heads,
        kv_heads=heads if expands else 1, head_dim=head_dim + rotary if expands else kept,
        value_dim=value_dim if expands else latent, window=0,
    )  # fmt: skip
    core = attention(
        "attention", attention_reads(points), sizes, True, decodes=not expands, latent=not expands,
        expanded=expands, dims=DIMS,
    )  # fmt: skip
    in_prefill = latent_prefill_cache(rows, all_heads, heads * rotary, kept)
    in_decode = kv_cache_in_decode(CACHED, rows, core, read=heads * rotary, made=heads * rotary, kept=kept)
    return with_setup_kernels(points, core, in_prefill, in_decode)


def latent_prefill_cache(rows: Size, all_heads: Size, rotated: Size, kept: Size) -> Node:
    """Return the pass before latent attention in prefill, whose arguments are columns of a row.

    all_heads: of queries, keys and values; rotated: of all heads' queries; kept: of the cache. It moves the
    rotated part of each head's query in and out, that of its key out, and the latent vector in.
    """
    return kv_cache(CACHED, rows, all_heads, read=3 * rotated + kept, kept=kept, rounded=all_heads)


FAMILY = Family(
    name="latent_attention",
    work="attention",
    structure=(PHASE,),
    sizes=(
        *SIZES,
        count("model.latent", "columns of a token's latent keys and values in the cache (DeepSeek)"),
        count("model.rotary", "latent attention: columns of a head's query and key that positions rotate"),
        count("model.head_dim", "columns of a head; of latent attention those that positions do not rotate"),
        count("model.value_dim", "columns of a head's value"),
    ),
    network=network,
    kernels=single_operation,
    rows=independent_rows("model.batch"),
    multiplied=("model.batch", "model.kv_len"),
)
