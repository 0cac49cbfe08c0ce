"""`model=attention`: fused attention, with the passes that a serving library runs around it.

In prefill a kernel applies rotary embedding and writes the cache, and small kernels compute the offsets of
sequences. Some decode kernels include these passes. Training has attention only.
"""

from __future__ import annotations

import numpy as np

from fastflow.core.field import Column, count, text
from fastflow.core.tables import Bools, Inputs, Ints
from fastflow.physics.workload.family import Family, independent_rows, single_operation
from fastflow.physics.workload.graph import HIDDEN, Dims
from fastflow.physics.workload.network import INPUT, Layer, Network, Node, Size, connect
from fastflow.physics.workload.ops import elementwise
from fastflow.physics.workload.ops.attention import MAX_QUERIES, AttentionSizes, attention
from fastflow.physics.workload.ops.kv_cache import kv_cache, kv_cache_in_decode, kv_cache_in_prefill

PREFILL, DECODE = "prefill", "decode"
PHASE = text(
    "model.phase",
    "prefill: many queries per sequence; decode: few queries over a KV cache, by other kernels",
    (PREFILL, DECODE),
)
SIZES = (
    count("model.batch", "sequences of the global batch"),
    count("model.q_len", "queries of a sequence, the last of its tokens", high=MAX_QUERIES),
    count("model.kv_len", "keys of a sequence, its queries' own among them; q_len where it is less"),
    count("model.heads", "heads of attention"),
)
DIMS = Dims(("sequence",), (), ("heads",), ("batch",))
CACHED = "rotary embedding and cache"


def setup_kernels() -> list[Node]:
    """Return the small kernels that a layer of TensorRT-LLM launches before its attention.

    The first computes the offsets of sequences. A second is in the times of ai-dynamo/aiconfigurator@095f58a,
    and not in the library's code; replaying a captured graph may be it.
    """
    launch = Node(name="offsets of sequences", type=elementwise.TYPE, rows=1, cols=1, keeps=0)
    return [launch, launch._replace(name="replay", reads=("offsets of sequences",))]


def kv_len_of(points: Inputs) -> Ints:
    """Return the keys of each point's sequences, (points,)."""
    return np.maximum(points["model.kv_len"], points["model.q_len"])


def decodes(points: Inputs) -> bool:
    """Say whether points are of decode; training is not."""
    return bool(points["model.phase"][0] == DECODE and not points["model.training"][0])


def attention_reads(points: Inputs) -> tuple[str, ...]:
    """Return the input of attention: the rotary pass, or in training the network's input."""
    return (INPUT if points["model.training"][0] else CACHED,)


def network(points: Inputs) -> Network:
    """Return the network of each point's attention."""
    sequences, q_len, heads, kv_heads, head_dim = (
        points[f"model.{name}"] for name in ("batch", "q_len", "heads", "kv_heads", "head_dim")
    )
    rows, queries, keys_and_values = sequences * q_len, heads * head_dim, 2 * kv_heads * head_dim
    sizes = AttentionSizes(
        sequences, q_len, kv_len_of(points), heads, kv_heads, head_dim, head_dim, points["model.window"]
    )
    core = attention(
        "attention", attention_reads(points), sizes, points["model.causal"], decodes=decodes(points),
        shared=points["model.shared"], output=1.0 * (points["model.dtype"] == "fp8"), dims=DIMS,
        copies=points["model.copies"],
    )  # fmt: skip
    in_prefill = kv_cache_in_prefill(CACHED, rows, queries + keys_and_values, core, kept=keys_and_values)
    in_decode = kv_cache_in_decode(CACHED, rows, core, read=queries, made=queries, kept=keys_and_values)
    return with_setup_kernels(points, core, in_prefill, in_decode)


def prefill_cache(rows: Size, queries: Size, keys_and_values: Size) -> Node:
    """Return the pass before attention in prefill; queries, keys_and_values: columns of a row."""
    cols = queries + keys_and_values
    return kv_cache(CACHED, rows, cols, read=cols, made=queries, kept=keys_and_values)


def with_setup_kernels(points: Inputs, core: Node, in_prefill: Node, in_decode: Node) -> Network:
    """Return the network of attention with the passes before it, which training lacks."""
    nodes: tuple[Node, ...] = (core,)
    if not points["model.training"][0]:
        nodes = (in_decode, core) if decodes(points) else (*setup_kernels(), in_prefill, core)
    return connect([Layer("attention", HIDDEN, nodes)], needs_input_gradient=True)


def _invalid_sizes(inputs: Inputs) -> list[tuple[Bools, str, str, str]]:
    heads, kv_heads = inputs["model.heads"], inputs["model.kv_heads"]
    return [(heads % kv_heads > 0, "model.kv_heads", "model.heads", "a divisor of model.heads, {}")]


FAMILY = Family(
    name="attention",
    work="attention",
    structure=(PHASE,),
    sizes=(
        *SIZES,
        count("model.kv_heads", "heads of keys and values, each shared by the same number of query heads"),
        count("model.head_dim", "columns of a head"),
        count(
            "model.window",
            "keys that a query sees, its own included (of a transformer, in layers with window); 0: all",
            low=0,
        ),
        count(
            "model.copies",
            "1 or more: a benchmark repeats the layer, whose tensors stay in the last cache if it has room;"
            " 0: they come from main memory",
            low=0,
        ),
        Column("model.causal", "bool", "", "true: no query sees a key after its own"),
        Column(
            "model.shared",
            "bool",
            "",
            "true: values are stored where the keys are, and are read once for both, as in some"
            " benchmarks of decoding",
        ),
    ),
    network=network,
    kernels=single_operation,
    rows=independent_rows("model.batch"),
    invalid_sizes=_invalid_sizes,
    multiplied=("model.batch", "model.kv_len"),
)
