"""Known ways to split a transformer, counted by hand: what is exchanged, along which axis."""

import re
from pathlib import Path

import numpy as np
import pytest
import yaml

import fastflow
from fastflow.errors import InputError
from fastflow.parallelism.mesh import axes
from fastflow.parallelism.splits import READ, SEQUENCE, STATISTICS, SUMMED, WAYS, splits_of
from fastflow.workload.file import read_network
from fastflow.workload.graph import BACKWARD, COLLECTIVES, FORWARD, HIDDEN, Dims, stack
from fastflow.workload.kernels import kernels
from fastflow.workload.layers import INPUT, Layer, Node, connect
from fastflow.workload.precision import UNSIZED
from fastflow.workload.types import TYPES

ROWS = ("batch", "sequence")
H, HEADS, SEQ, SEQUENCES, FF = 1024, 16, 1024, 64, 4096
TOKENS = SEQ * SEQUENCES


def node(name, type_, cols, names, inner=1, inner_names=(), **more):
    dims = Dims(rows=more.pop("row_names", ROWS), inner=inner_names, cols=names)
    return Node(
        name=name, type=TYPES[type_], rows=more.pop("rows", TOKENS), cols=cols, inner=inner, dims=dims, **more
    )


def block():
    """The block of docs/graphs.md: normalisation, attention, residual, normalisation, MLP, residual."""
    hidden, heads, ff = ("hidden",), ("heads",), ("feed_forward",)
    of_heads = {"row_names": ("batch",), "rows": SEQ, "batch": SEQUENCES * HEADS}
    nodes = (
        node("attention norm", "rowwise", H, hidden),
        node("qkv", "gemm", 3 * H, heads, H, hidden),
        node("scores", "batched_gemm", SEQ, heads, H // HEADS, width=SEQ * HEADS, **of_heads),
        node("attention softmax", "elementwise", SEQ * HEADS, heads),
        node("context", "batched_gemm", H // HEADS, heads, SEQ, width=H,
             reads=("attention softmax", "qkv"), **of_heads),
        node("projection", "gemm", H, hidden, H, heads),
        node("attention add", "elementwise", H, hidden, reads=("projection", INPUT)),
        node("norm", "rowwise", H, hidden),
        node("up", "gemm", FF, ff, H, hidden),
        node("gelu", "elementwise", FF, ff),
        node("down", "gemm", H, hidden, FF, ff),
        node("add", "elementwise", H, hidden, reads=("down", "attention add")),
    )  # fmt: skip
    named = [node.name for node in nodes]
    nodes = tuple(
        one._replace(reads=(named[i - 1],)) if i and one.reads == (INPUT,) else one
        for i, one in enumerate(nodes)
    )
    return connect([Layer("block", HIDDEN, nodes)], asks_input_gradient=True)


def exchanges(network, way, phase):
    """Return what every kernel of a pass exchanges: label to (collective, axes, columns)."""
    found = kernels(network, True, UNSIZED)
    (structure,) = stack(found, 1).structures
    said = {}
    for kernel, split in zip(found, splits_of(structure, way.assignment), strict=True):
        for one in split.exchanges if kernel.phase == phase else ():
            cols = one.cols + {STATISTICS: 0, SUMMED: kernel.summed_cols, READ: kernel.read_cols}[one.of]
            if kernel.label in ("scores", "context"):
                cols *= HEADS  # a row of one head's product is that of one head
            along = "+".join(name for name, _ in way.assignment if one.axes & axes(name))
            said.setdefault(kernel.label, []).append((COLLECTIVES[one.collective], along, int(cols)))
    return said


def test_megatron_sums_twice_a_block_and_pass():
    """Shoeybi et al., section 3: g after either second product, f before either first one."""
    network = block()
    assert exchanges(network, WAYS["TP"], FORWARD) == {
        "projection": [("all-reduce", "tp", H)],
        "down": [("all-reduce", "tp", H)],
    }
    assert exchanges(network, WAYS["TP"], BACKWARD) == {
        "up input gradient": [("all-reduce", "tp", H)],
        "qkv input gradient": [("all-reduce", "tp", H)],
    }


def test_sequence_parallelism_turns_every_sum_into_a_gather_and_a_scatter():
    """Korthikanti et al., section 4.2.2: g and its conjugate, and no statistics, as every token is whole."""
    network = block()
    assert exchanges(network, SEQUENCE, FORWARD) == {
        "attention norm": [("all-gather", "tp", H)],
        "projection": [("reduce-scatter", "tp", H)],
        "norm": [("all-gather", "tp", H)],
        "down": [("reduce-scatter", "tp", H)],
    }
    assert exchanges(network, SEQUENCE, BACKWARD) == {
        "add gradient": [("all-gather", "tp", H)],
        "up input gradient": [("reduce-scatter", "tp", H)],
        "attention add gradient": [("all-gather", "tp", H)],
        "qkv input gradient": [("reduce-scatter", "tp", H)],
    }


@pytest.mark.parametrize(
    ("way", "cols"),
    [(WAYS["RC"], 7_184), (WAYS["CR"], 9_232), (SEQUENCE, 4 * 1_024)],
    ids=["RC", "CR", "Megatron"],
)
def test_columns_a_row_of_a_block(way, cols):
    """Forward; an all-reduce moves what two gathers do."""
    found = exchanges(block(), way, FORWARD)
    assert sum(n * (1 + (what == "all-reduce")) for one in found.values() for what, _, n in one) == cols


def test_a_product_in_two_dimensions():
    """Each device multiplies a part of the inner dimension by a part of the columns: gather, then sum."""
    dims = Dims(("batch",), (), ())
    first = Node("first", TYPES["gemm"], rows=8, inner=6, cols=4, dims=dims)
    network = connect(
        [Layer("one", HIDDEN, (first, first._replace(name="second", inner=4, reads=("first",))))]
    )
    found = exchanges(network, WAYS["2D"], FORWARD)
    assert found["first"] == [("reduce-scatter", "kp1", 4), ("all-gather", "kp2", 4)]
    (structure,) = stack(kernels(network, True, UNSIZED), 1).structures
    one = splits_of(structure, WAYS["2D"].assignment)[0]
    assert (one.inner, one.cols, one.rows) == (axes("kp1"), axes("kp2"), axes("dp"))
    gather = one.exchanges[1]
    assert gather.cols_by == axes("kp1"), "of what the other axis has left of the columns"


@pytest.fixture
def files(tmp_path):
    """The transformer of docs/graphs.md in a file, which names its dimensions."""
    text = (Path(__file__).parents[1] / "docs" / "graphs.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```yaml\n(.*?)```", text, re.DOTALL)
    (one,) = (block for block in blocks if yaml.safe_load(block)["name"] == "transformer")
    (tmp_path / "transformer.yaml").write_text(one, encoding="utf-8")
    return tmp_path


def of_file(files, *overrides):
    return fastflow.evaluate(
        "model=graph", f"model.file={files}/transformer.yaml", "system.devices=8", *overrides
    )


def test_the_documented_transformer_is_the_one_counted(files):
    """Its dimensions have names, so that tensor parallelism can cut it."""
    network = read_network(f"{files}/transformer.yaml")
    nodes = {placed.node.name: placed.node for placed in network.nodes}
    for placed in block().nodes:
        mine, given = placed.node, nodes[placed.node.name]
        assert [given.rows, given.inner, given.cols, given.batch] == [
            mine.rows,
            mine.inner,
            mine.cols,
            mine.batch,
        ]
    found = exchanges(network, SEQUENCE, FORWARD)
    assert {found[name][0] for name in ("norm", "attention norm")} == {("all-gather", "tp", H)}


@pytest.mark.parametrize("sequence", ["false", "true"])
def test_a_layout_of_ones_own_is_the_known_way(files, sequence):
    """To the bit: the file says what the table has."""
    cuts = dict((SEQUENCE if sequence == "true" else WAYS["TP"]).assignment)
    (files / "mine.yaml").write_text(yaml.safe_dump({"axes": {axis: list(of) for axis, of in cuts.items()}}))
    known = of_file(files, "parallel.strategy=TP-4-d2", f"parallel.sequence={sequence}")
    own = of_file(files, "parallel.strategy=TP-4-d2", f"parallel.layout={files}/mine.yaml")
    assert known.equals(own)


def test_sequence_parallelism_keeps_less(files):
    plain, both = (
        of_file(files, "parallel.strategy=TP-8", f"parallel.sequence={sequence}").iloc[0]
        for sequence in ("false", "true")
    )
    assert both["activation_B"] < plain["activation_B"]
    assert both["weight_B"] == plain["weight_B"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("axes: [rows]", "axes is a mapping"),
        ("axes: {lp: [rows]}", "without axes.lp"),
        ("axes: {dp: rows}", "axes.dp is a list of dimensions"),
        ("dp: [rows]", "without dp"),
        ("axes: {dp: [rows]}\nsoftmax: {kp9: [cols]}", "without softmax.kp9"),
    ],
)
def test_a_layout_that_is_none_is_one_line(files, text, said):
    (files / "bad.yaml").write_text(text)
    with pytest.raises(InputError, match=re.escape(said)) as error:
        of_file(files, f"parallel.layout={files}/bad.yaml")
    assert str(error.value).startswith("parallel.layout=")
    assert "\n" not in str(error.value)


def test_an_axis_that_cuts_nothing_is_a_reason():
    row = fastflow.evaluate("model=gemm", "system.devices=8", "parallel.strategy=TP-8").iloc[0]
    assert np.isnan(row["time_s"])
    assert "none of the dimensions that tp cuts" in row["reason"]


def test_an_axis_that_cuts_rows_in_two_dimensions_is_a_reason(files):
    """A tensor that is split by batch here is not what is read by sequence there."""
    (files / "two.yaml").write_text("axes: {tp: [sequence, batch], dp: [rows]}")
    row = of_file(files, "parallel.strategy=TP-8", f"parallel.layout={files}/two.yaml").iloc[0]
    assert np.isnan(row["time_s"])
    assert "the kernels have batch, sequence" in row["reason"]
