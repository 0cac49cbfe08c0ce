"""`model=latent_attention`: DeepSeek's latent attention (DeepSeek-V2, arXiv:2405.04434, section 2.1).

The cache holds a latent vector and a rotated key for each token, which all heads share. Prefill expands them
into keys and values of every head. Decode absorbs the expansion into queries and outputs: all heads ask the
same keys, of which the latent part are the values.
"""

from __future__ import annotations

from fastflow.column import count
from fastflow.tables import Inputs
from fastflow.workload.attention import CACHED, DIMS, PHASE, PREFILL, SIZES, keys_of, preparing
from fastflow.workload.family import Family, alone, independent
from fastflow.workload.graph import HIDDEN
from fastflow.workload.layers import INPUT, Layer, Network, connect
from fastflow.workload.types.attention import attention
from fastflow.workload.types.kv_cache import before_decoding, kv_cache


def network(points: Inputs) -> Network:
    """Return the network of each point's attention, expanded in prefill and absorbed in decode."""
    sequences, q_len, heads, latent, rotary, head_dim, value_dim = (
        points[f"model.{name}"]
        for name in ("batch", "q_len", "heads", "latent", "rotary", "head_dim", "value_dim")
    )
    kept, rows = latent + rotary, sequences * q_len
    serves, expands = not points["model.training"][0], bool(points["model.phase"][0] == PREFILL)
    wide = heads * (head_dim + rotary)
    core = attention(
        "attention", (CACHED if serves else INPUT,), sequences, q_len, keys_of(points), heads,
        kv_heads=heads if expands else 1, head_dim=head_dim + rotary if expands else kept,
        value_dim=value_dim if expands else latent, window=0, causal=True, decodes=not expands,
        latent=not expands, expanded=expands, dims=DIMS,
    )  # fmt: skip
    if not serves:
        nodes = [core]
    elif expands:
        # the rotated part of each head's query in and out, and of its key out; the latent vector in
        every = 2 * wide + heads * value_dim
        turned = kv_cache(CACHED, rows, every, read=3 * heads * rotary + kept, kept=kept, rounded=every)
        nodes = [*preparing(), turned, core]
    else:
        turned = before_decoding(CACHED, rows, core, read=heads * rotary, made=heads * rotary, kept=kept)
        nodes = [turned, core]
    return connect([Layer("attention", HIDDEN, tuple(nodes))], asks_input_gradient=True)


FAMILY = Family(
    name="latent_attention",
    structure=(PHASE,),
    sizes=(
        *SIZES,
        count("model.latent", "columns of a token's latent vector in the cache"),
        count("model.rotary", "columns of a head's query and key that positions rotate"),
        count("model.head_dim", "other columns of a head's key, once expanded"),
        count("model.value_dim", "columns of a head's value, once expanded"),
    ),
    network=network,
    kernels=alone,
    rows=independent("model.batch"),
    multiplied=("model.batch", "model.kv_len"),
)
