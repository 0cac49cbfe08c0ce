"""Attention as a type of kernel: operations, saved activations and collectives, against unfused products."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fastflow
from fastflow.core.errors import InputError
from fastflow.physics.workload.autodiff import kernels
from fastflow.physics.workload.graph import BACKWARD, FORWARD
from fastflow.physics.workload.models.graph_file import read_network
from fastflow.physics.workload.ops.attention import visible_keys
from fastflow.physics.workload.precision import UNSIZED
from tests.support.checks import cases

FILE = """
rows: [batch, sequence]
sequences: 16
dimensions: {batch: 16, sequence: 1024, hidden: 1024, heads: 16, head_size: 64, kv_heads: 4}
layers:
- name: block
  repeat: 2
  kernels:
  - {name: norm, type: rowwise, cols: hidden}
  - {name: qkv, type: gemm, inner: hidden, cols: [3, heads, head_size]}
ATTENTION
  - {name: projection, type: gemm, inner: [heads, head_size], cols: hidden}
"""
FUSED = (
    "  - {name: context, type: attention, batch: batch, rows: sequence, heads: heads, head_dim: head_size, "
    "causal: false}"
)
APART = """\
  - {name: scores, type: batched_gemm, batch: [batch, heads], rows: sequence, inner: head_size,
     cols: sequence}
  - {name: softmax, type: elementwise, cols: [heads, sequence], flop: 5}
  - {name: context, type: batched_gemm, batch: [batch, heads], rows: sequence, inner: sequence,
     cols: head_size, reads: [softmax, qkv]}"""
GROUPED = FILE.replace(
    "  - {name: qkv, type: gemm, inner: hidden, cols: [3, heads, head_size]}\nATTENTION\n",
    "  - {name: q, type: gemm, inner: hidden, cols: [heads, head_size], reads: norm}\n"
    "  - {name: k, type: gemm, inner: hidden, cols: [kv_heads, head_size], reads: norm}\n"
    "  - {name: v, type: gemm, inner: hidden, cols: [kv_heads, head_size], reads: norm}\n"
    "  - {name: context, type: attention, batch: batch, rows: sequence, heads: heads, kv_heads: kv_heads, "
    "head_dim: head_size, reads: [q, k, v]}\n",
)


@given(st.integers(1, 9), st.integers(0, 9), st.integers(0, 12), st.booleans())
@cases(100)
def test_keys_that_a_query_sees(q_len, before, window, causal):
    """Counted one by one: the last query sees the last key, and a window as far ahead as behind."""
    kv_len, seen = q_len + before, 0
    for query in range(before, kv_len):
        for key in range(kv_len):
            ahead = key > query and (causal or (window and key - query >= window))
            behind = window and query - key >= window
            seen += not (ahead or behind)
    assert np.isclose(visible_keys(q_len, kv_len, window, causal), seen / q_len)


OVERRIDES = ("chip=h100_sxm", "model.dtype=bf16", "system.devices=16", "model=graph", "model.training=true")


@pytest.mark.long
@pytest.mark.parametrize(
    "strategy", ["d16", "TP-4-d4", "TP-2-d4-p2", "TP-4-c2-d2", "TP-2-c4-d2", "RC-1-4-d4", "CR-4-d4"]
)
@pytest.mark.parametrize("context", ["p2p", "a2a"])
def test_it_exchanges_what_the_products_that_it_fuses_do(file, strategy, context):
    result = []
    for inside in (FUSED, APART):
        given = (f"model.file={file(FILE.replace('ATTENTION', inside))}", f"parallel.strategy={strategy}",
                 f"parallel.cp_comm_type={context}")  # fmt: skip
        (row,) = fastflow.evaluate(*OVERRIDES, *given).to_dict("records")
        layout = fastflow.explain_sharding(*OVERRIDES, *given)
        sent = layout[[name for name in layout.columns if name.endswith("_B")]].to_numpy().sum()
        result.append((row, sent))
    (fused, sent), (apart, sent_apart) = result
    assert sent == pytest.approx(sent_apart, rel=1e-12)
    assert fused["reason"] == apart["reason"] == ""
    assert fused["time_s"] < apart["time_s"]
    assert fused["footprint_B"] < apart["footprint_B"]  # scores are not kept
    assert fused["flop"] == pytest.approx(apart["flop"], rel=0.01)  # but for the softmax


def test_grouped_heads_are_sharded_with_the_heads_that_share_them(file):
    path = file(GROUPED)
    explained = fastflow.explain_sharding(*OVERRIDES, f"model.file={path}", "parallel.strategy=TP-4-d4")
    lies = {str(row["kernel"]): str(row["makes"]) for row in explained.to_dict("records")}
    assert lies["q"] == lies["k"] == lies["context"] == "tp: S(heads), dp: S(batch)"
    single, four = (
        fastflow.evaluate(*OVERRIDES, f"model.file={path}", f"parallel.strategy={strategy}")[
            "compute_s"
        ].iloc[0]
        for strategy in ("d16", "TP-4-d4")
    )
    assert four < 1.5 * single


def test_the_backward_pass_does_five_products_and_counts_four(file):
    """The scores that are computed again are none of the model's operations (arXiv:2205.05198, section 5)."""
    result = kernels(read_network(file(FILE.replace("ATTENTION", FUSED))), True, UNSIZED)
    work = {
        phase: sum(
            float(kernel.per_element.flop) * int(kernel.rows) * int(kernel.cols)
            for kernel in result
            if kernel.phase == phase and kernel.attributes
        )
        for phase in (FORWARD, BACKWARD)
    }
    assert work[BACKWARD] == 2 * work[FORWARD] == 2 * 2 * 2 * 16 * 16 * 1024**2 * 2 * 64
    labels = [kernel.label for kernel in result if kernel.label.startswith("context")][-3:]
    assert labels == ["context row sums", "context gradient", "context query gradient"]


def test_a_chunk_over_a_cache(file):
    """A few queries over many keys of a cache are decoded; more of them are a chunk of a prompt."""
    base = FILE.replace("sequence: 1024", "sequence: QUERIES, keys: 8192").replace(
        "ATTENTION", FUSED.replace("causal: false", "kv_len: keys")
    )
    few, many = (read_network(file(base.replace("QUERIES", str(count)))) for count in (4, 64))
    titles = [
        next(instance.node.type.title for instance in net.nodes if instance.node.name == "context")
        for net in (few, many)
    ]
    assert titles == ["attention, decoding", "attention"]
    path = file(base.replace("QUERIES", "4"))
    narrow, wide = (
        fastflow.evaluate(
            "model=graph", f"model.file={path}", "model.training=false", "chip=h100_sxm", "model.dtype=bf16",
            "system.devices=1", "parallel.strategy=d1", f"precision.cache={kept}",
        )["time_s"].iloc[0]
        for kept in ("fp8", "bf16")
    )  # fmt: skip
    assert narrow < 0.8 * wide


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        (
            "batch: batch, ",
            "batch: 3, ",
            "batch is such that batch x rows is the 16384 rows of the model, not 3",
        ),
        ("heads: heads, ", "heads: heads, kv_heads: 5, ", "kv_heads is a divisor of its 16 heads, not 5"),
        ("heads: heads, ", "heads: heads, kv_len: 5, ", "kv_len is at least its 1024 rows"),
        ("causal: false", "causal: 3", "causal is true or false, not 3"),
        ("heads: heads, ", "heads: 8, ", "reads is kernels of 1536 columns, not qkv, which has 3072"),
        ("causal: false", "reads: [qkv, qkv]", "reads is one kernel, or three: queries, keys, values"),
        ("heads: heads, ", "", "gives layers.block.kernels.context.heads"),
    ],
)
def test_mistakes_name_their_node(before, after, message, file):
    with pytest.raises(InputError, match=message):
        read_network(file(FILE.replace("ATTENTION", FUSED.replace(before, after))))
