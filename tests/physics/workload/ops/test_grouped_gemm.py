"""A mixture of experts by separate types of kernel: its collectives, and its time."""

import numpy as np
import pytest

import fastflow
from fastflow.core.errors import InputError
from fastflow.physics.workload.models.graph_file import read_network

HEAD = """
rows: [batch, sequence]
sequences: 64
dimensions: {batch: 64, sequence: 256, hidden: 1024, feed_forward: 512, experts: 16, active: 2}
layers:
- name: block
  repeat: 2
  kernels:
  - {name: norm, type: rmsnorm, cols: hidden}
  - {name: router, type: gemm, inner: hidden, cols: experts}
"""
FUSED = """\
  - {name: gates, type: route, cols: experts, topk: active, power_law: 0}
  - {name: dispatch, type: dispatch, rows: [batch, sequence, active], cols: hidden, topk: active,
     experts: experts, power_law: 0, reads: norm}
  - {name: up, type: experts, rows: [batch, sequence, active], groups: experts, topk: active, gated: true,
     inner: hidden, cols: [2, feed_forward], power_law: 0}
  - {name: gate, type: expert_gate, rows: [batch, sequence, active], groups: experts, topk: active,
     cols: feed_forward, power_law: 0}
  - {name: down, type: experts, rows: [batch, sequence, active], groups: experts, topk: active,
     inner: feed_forward, cols: hidden, power_law: 0}
  - {name: combine, type: combine, cols: hidden, topk: active, experts: experts, power_law: 0}
"""
APART = """\
  - {name: gates, type: rowwise, cols: experts, flop: 5}
  - {name: dispatch, type: elementwise, rows: [batch, sequence, active], cols: hidden, reads: norm,
     moves: 1.5}
  - {name: up, type: gemm, rows: [batch, sequence, active], groups: experts, inner: hidden,
     cols: [2, feed_forward]}
  - {name: gate, type: swiglu, rows: [batch, sequence, active], groups: experts, cols: feed_forward}
  - {name: down, type: gemm, rows: [batch, sequence, active], groups: experts, inner: feed_forward,
     cols: hidden}
  - {name: combine, type: elementwise, cols: hidden, moves: 3}
"""
TAIL = "  - {name: add, type: add, cols: hidden, reads: [combine, input]}\n"
OVERRIDES = ("chip=h100_sxm", "model.dtype=bf16", "model=graph")


@pytest.mark.long
@pytest.mark.parametrize("training", ["true", "false"])
@pytest.mark.parametrize(
    "strategy", ["d8", "TP-2-d4", "TP-2-e4-d4", "TP-1-e8-d8", "TP-1-c2-e4-d4", "RC-1-8", "CR-8"]
)
def test_it_exchanges_what_products_of_groups_do(file, strategy, training):
    """Experts are sharded by groups, tokens go to them by an all-to-all: docs/graphs.md has both networks."""
    result = []
    for inside in (FUSED, APART):
        given = (*OVERRIDES, f"model.file={file(HEAD + inside + TAIL)}", "system.devices=8",
                 f"parallel.strategy={strategy}", f"model.training={training}")  # fmt: skip
        (row,) = fastflow.evaluate(*given).to_dict("records")
        layout = fastflow.explain_sharding(*given)
        sent = layout[[name for name in layout.columns if name.endswith("_B")]].to_numpy().sum(axis=1)
        result.append((row, list(zip(layout["kernel"], layout["exchange"], sent, strict=True))))
    (fused, exchanges), (apart, exchanges_apart) = result
    assert exchanges == exchanges_apart
    assert any("all-to-all along" in text for _, text, _ in exchanges) == ("-e" in strategy)
    assert fused["reason"] == apart["reason"] == ""
    assert fused["footprint_B"] == apart["footprint_B"]
    assert fused["flop"] == pytest.approx(apart["flop"], rel=0.01)  # but for the passes


@pytest.mark.parametrize("strategy", ["d8", "TP-2-e4-d4"])
@pytest.mark.parametrize("training", ["true", "false"])
def test_uneven_loads_take_longer(file, strategy, training):
    """The busiest device has more, and all wait for it; nothing else is sent."""
    texts = [FUSED.replace("power_law: 0", f"power_law: {law}") for law in (0, 1.2)]
    even, uneven = [
        fastflow.evaluate(
            *OVERRIDES, f"model.file={file(HEAD + text + TAIL)}", "system.devices=8",
            f"parallel.strategy={strategy}", f"model.training={training}",
        ).iloc[0]
        for text in texts
    ]  # fmt: skip
    assert uneven["compute_s"] > 1.02 * even["compute_s"]
    assert uneven["footprint_B"] == even["footprint_B"]


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ("cols: experts, topk: active", "cols: experts, topk: 17", "gates.topk is at most its 16 experts"),
        ("cols: hidden, topk: active", "cols: hidden, topk: 17", "dispatch.topk is at most its 16 experts"),
        ("topk: active, gated", "topk: 17, gated", "up.topk is at most its 16 experts, not 17"),
        ("topk: active, gated", "topk: 3, gated", "up.topk is a divisor of its 32768 rows, not 3"),
        ("power_law: 0", "power_law: -1", "gates.power_law is"),
        ("power_law: 0", "power_law: 9", "gates.power_law is at most 8, not 9"),
        ("gated: true", "gated: 3", "up.gated is true or false, not 3"),
        ("groups: experts, topk: active, gated", "groups: experts, gated", "gives layers.*kernels.up.topk"),
        ("     experts: experts,", "    ", "gives layers.block.kernels.dispatch.experts"),
        ("groups: experts, topk: active,\n     cols", "topk: active,\n     cols", "gives .*gate.groups"),
        ("type: combine, cols: hidden,", "type: combine,", "gives layers.block.kernels.combine.cols"),
    ],
)  # fmt: skip
def test_mistakes_name_their_node(before, after, message, file):
    assert before in FUSED
    with pytest.raises(InputError, match=message):
        read_network(file(HEAD + FUSED.replace(before, after, 1) + TAIL))


LAYER = """
rows: {tokens}
layers:
- name: experts
  kernels:
  - {{name: dispatch, type: dispatch, rows: {rows}, cols: 1024, topk: 4, experts: 16, power_law: {law}}}
  - {{name: route, type: route, cols: 16, topk: 4, power_law: {law}, reads: input}}
  - {{name: gate and up, type: experts, rows: {rows}, groups: 16, topk: 4, inner: 1024, cols: 1536,
     reads: dispatch, gated: true, power_law: {law}}}
  - {{name: gate, type: expert_gate, rows: {rows}, groups: 16, topk: 4, cols: 768, power_law: {law}}}
  - {{name: down, type: experts, rows: {rows}, groups: 16, topk: 4, inner: 768, cols: 1024, power_law: {law}}}
  - {{name: combine, type: combine, cols: 1024, topk: 4, experts: 16, power_law: {law}}}
"""


@pytest.mark.parametrize(
    ("chip", "dtype"),
    [("a100", "bf16"), ("h100_sxm", "bf16"), ("h100_sxm", "fp8"), ("h100_sxm", "fp8_block")],
)
@pytest.mark.parametrize("law", [0, 1.2])
def test_the_model_of_a_layer_has_the_same_kernels(file, chip, dtype, law):
    tokens = (4, 40, 3000)  # a file has no more groups than rows
    common = (
        f"chip={chip}", f"model.dtype={dtype}", "model.training=false", "system.devices=1",
        "chip.sustained_power_fraction=1",  # a file is of what runs for minutes
    )  # fmt: skip
    of_files = [
        fastflow.evaluate(
            *common, "model=graph", f"model.file={file(LAYER.format(tokens=m, rows=4 * m, law=law))}",
            "parallel.strategy=d1",
        )["time_s"].iloc[0]
        for m in tokens
    ]  # fmt: skip
    sizes = {"hidden": 1024, "ffn": 768, "experts": 16, "topk": 4, "tp": 1, "ep": 1, "power_law": law}
    of_model = fastflow.evaluate(
        *common, "model=experts", f"model.tokens={','.join(map(str, tokens))}",
        *(f"model.{name}={value}" for name, value in sizes.items()),
    )["time_s"]  # fmt: skip
    assert np.array(of_files) == pytest.approx(of_model.to_numpy(), rel=1e-9)
    assert fastflow.predict_experts(tokens, 1024, 768, 16, 4, 1, 1, law, chip, dtype) == pytest.approx(
        of_files
    )


def test_a_few_tokens_go_to_a_few_of_many_experts(file):
    """They may be fewer than the experts, whose weights are read only where a token goes."""
    few = HEAD.replace("sequences: 64", "sequences: 1").replace("batch: 64", "batch: 1").replace("256", "4")
    head = few.replace("experts: 16", "experts: 64")
    row = fastflow.evaluate(
        *OVERRIDES, f"model.file={file(head + FUSED + TAIL)}", "model.training=false", "system.devices=1",
        "parallel.strategy=d1",
    ).iloc[0]  # fmt: skip
    assert row["reason"] == ""
    known = fastflow.predict_experts(4, 1024, 512, 64, 2, chip="h100_sxm")
    assert 2 * known < row["time_s"] < 3 * known  # two layers, with norms and routers
    with pytest.raises(InputError, match="groups is at most its 8 rows, not 64"):
        read_network(file(head + APART + TAIL))
