"""Known ways to split a transformer, counted by hand: what is exchanged, along which axis."""

import re

import numpy as np
import pytest
import yaml

import fastflow
from fastflow.core.errors import InputError
from fastflow.physics.parallelism.mesh import axes
from fastflow.physics.parallelism.plans import SEQUENCE as TOKENS_TOO
from fastflow.physics.parallelism.plans import ULYSSES, assignment_of
from fastflow.physics.parallelism.sharding.propagation import READ, SHARED, SUMMED, shardings_of
from fastflow.physics.workload.autodiff import kernels
from fastflow.physics.workload.graph import BACKWARD, COLLECTIVES, FORWARD, HIDDEN, Dims, stack
from fastflow.physics.workload.models.graph_file import read_network
from fastflow.physics.workload.network import INPUT, Layer, Node, connect
from fastflow.physics.workload.ops import TYPES
from fastflow.physics.workload.precision import UNSIZED
from tests.support.paths import ROOT

SEQUENCE = assignment_of("TP", TOKENS_TOO)
ROWS = ("batch", "sequence")
H, HEADS, SEQ, SEQUENCES, FF = 1024, 16, 1024, 64, 4096
TOKENS = SEQ * SEQUENCES


def node(name, type_, cols, names, inner=1, inner_names=(), **more):
    dims = Dims(more.pop("row_names", ROWS), inner_names, names, more.pop("group_names", ()))
    return Node(
        name=name, type=TYPES[type_], rows=more.pop("rows", TOKENS), cols=cols, inner=inner, dims=dims, **more
    )


def block():
    """The block of docs/graphs.md: normalisation, attention, residual, normalisation, MLP, residual."""
    hidden, heads, ff = ("hidden",), ("heads",), ("feed_forward",)
    of_heads = {
        "row_names": ("sequence",), "group_names": ("batch",), "rows": SEQ, "batch": SEQUENCES * HEADS,
    }  # fmt: skip
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
    return connect([Layer("block", HIDDEN, nodes)], needs_input_gradient=True)


def exchanges(network, way, phase):
    """Return what every kernel of a pass exchanges: label to (collective, axes, columns a token)."""
    found = kernels(network, True, UNSIZED)
    (structure,) = stack(found, 1).structures
    said = {}
    for kernel, split in zip(found, shardings_of(structure, way), strict=True):
        for one in split.exchanges if kernel.phase == phase else ():
            comm = kernel.comm
            more = {SUMMED: comm.summed_cols, READ: comm.read_cols, SHARED: comm.shared_cols}
            cols = (one.cols + more.get(one.of, 0)) * kernel.rows / found[0].rows
            along = "+".join(name for name, _ in way if one.axes & axes(name))
            said.setdefault(kernel.label, []).append((COLLECTIVES[one.collective], along, int(cols)))
    return said


def test_megatron_sums_twice_a_block_and_pass():
    """Shoeybi et al., section 3: g after either second product, f before either first one."""
    network = block()
    assert along(exchanges(network, assignment_of("TP"), FORWARD), "tp") == {
        "projection": [("all-reduce", "tp", H)],
        "down": [("all-reduce", "tp", H)],
    }
    assert along(exchanges(network, assignment_of("TP"), BACKWARD), "tp") == {
        "up input gradient": [("all-reduce", "tp", H)],
        "qkv input gradient": [("all-reduce", "tp", H)],
    }


def test_sequence_parallelism_turns_every_sum_into_a_gather_and_a_scatter():
    """Korthikanti et al., section 4.2.2: g and its conjugate, and no statistics, as every token is whole."""
    network = block()
    assert along(exchanges(network, SEQUENCE, FORWARD), "tp") == {
        "attention norm": [("all-gather", "tp", H)],
        "projection": [("reduce-scatter", "tp", H)],
        "norm": [("all-gather", "tp", H)],
        "down": [("reduce-scatter", "tp", H)],
    }
    assert along(exchanges(network, SEQUENCE, BACKWARD), "tp") == {
        "add gradient": [("all-gather", "tp", H)],
        "up input gradient": [("reduce-scatter", "tp", H)],
        "attention add gradient": [("all-gather", "tp", H)],
        "qkv input gradient": [("reduce-scatter", "tp", H)],
    }


@pytest.mark.parametrize(
    ("way", "cols"),
    [(assignment_of("RC"), 7_184), (assignment_of("CR"), 9_232), (SEQUENCE, 4 * 1_024)],
    ids=["RC", "CR", "Megatron"],
)
def test_columns_a_row_of_a_block(way, cols):
    """Forward; an all-reduce moves what two gathers do."""
    found = exchanges(block(), tuple(one for one in way if one[0] != "cp"), FORWARD)
    assert sum(n * (1 + (what == "all-reduce")) for one in found.values() for what, _, n in one) == cols


def along(found, axis):
    """Return what is exchanged along an axis."""
    said = {name: [one for one in of if one[1] == axis] for name, of in found.items()}
    return {name: of for name, of in said.items() if of}


def test_ring_attention_sends_keys_and_values_round():
    """Liu et al., section 3: every block of both passes all devices; backward, with its gradients."""
    way = assignment_of("TP")
    assert along(exchanges(block(), way, FORWARD), "cp") == {"qkv": [("all-gather", "cp", 2 * H)]}
    assert along(exchanges(block(), way, BACKWARD), "cp") == {
        "projection input gradient": [("all-gather", "cp", H)],  # of values
        "context right gradient": [("reduce-scatter", "cp", H)],
        "attention softmax gradient": [("all-gather", "cp", H)],  # of keys
        "scores right gradient": [("reduce-scatter", "cp", H)],
    }


def test_heads_are_dealt_out_in_attention():
    """Jacobs et al., section 3: queries, keys and values by all-to-all, and the context back."""
    way = assignment_of("TP", ULYSSES)
    assert along(exchanges(block(), way, FORWARD), "cp") == {
        "qkv": [("all-to-all", "cp", 3 * H)], "context": [("all-to-all", "cp", H)],
    }  # fmt: skip
    assert along(exchanges(block(), way, BACKWARD), "cp") == {
        "projection input gradient": [("all-to-all", "cp", H)],
        "context right gradient": [("all-to-all", "cp", H)],
        "scores left gradient": [("all-to-all", "cp", H)],
        "scores right gradient": [("all-to-all", "cp", H)],
    }


EXPERTS, TOP = 8, 2


def experts():
    """A layer of experts, of which two take each token. Every device has the whole router."""
    copies = {"rows": TOP * TOKENS}
    grouped = copies | {"group_names": ("experts",), "groups": EXPERTS}
    hidden, ff = ("hidden",), ("feed_forward",)
    return connect(
        [
            Layer("experts", HIDDEN, (
                node("norm", "rowwise", H, hidden),
                node("router", "gemm", EXPERTS, ("experts",), H, hidden, reads=("norm",)),
                node("dispatch", "elementwise", H, hidden, reads=("norm",), **copies),
                node("up", "gemm", FF, ff, H, hidden, reads=("dispatch",), **grouped),
                node("act", "elementwise", FF, ff, reads=("up",), **grouped),
                node("down", "gemm", H, hidden, FF, ff, reads=("act",), **grouped),
                node("combine", "elementwise", H, hidden, reads=("down",)),
            ))
        ],
        needs_input_gradient=True,
    )  # fmt: skip


def test_a_layer_of_experts_has_two_all_to_alls():
    """Lepikhin et al., section 3.2: a token goes to its two experts, and back; the same backward."""
    network, way = experts(), assignment_of("TP")
    assert along(exchanges(network, way, FORWARD), "ep") == {
        "dispatch": [("all-to-all", "ep", TOP * H)], "down": [("all-to-all", "ep", TOP * H)],
    }  # fmt: skip
    assert along(exchanges(network, way, BACKWARD), "ep") == {
        "combine gradient": [("all-to-all", "ep", TOP * H)],
        "up input gradient": [("all-to-all", "ep", TOP * H)],
    }
    (structure,) = stack(kernels(network, True, UNSIZED), 1).structures
    for facts, split in zip(structure, shardings_of(structure, way), strict=True):
        if facts.gradient and facts.form.dims.groups:  # of weights that devices along ep have for themselves
            assert split.owners == axes("cp", "dp")


def first_of_two_products(way):
    """Return what the first of two products exchanges, and how it is cut."""
    first = Node("first", TYPES["gemm"], rows=8, inner=6, cols=4, dims=Dims(("batch",), (), ()))
    second = first._replace(name="second", inner=4, reads=("first",))
    network = connect([Layer("one", HIDDEN, (first, second))])
    (structure,) = stack(kernels(network, True, UNSIZED), 1).structures
    return exchanges(network, way, FORWARD)["first"], shardings_of(structure, way)[0]


def test_a_product_in_two_dimensions():
    """Each device multiplies a part of the inner dimension by a part of the columns: gather, then sum."""
    found, one = first_of_two_products(assignment_of("2D"))
    assert found == [("reduce-scatter", "kp1", 4), ("all-gather", "kp2", 4)]
    assert (one.inner, one.cols, one.rows) == (axes("kp1"), axes("kp2"), axes("dp"))
    gather = one.exchanges[1]
    assert gather.cols_by == axes("kp1"), "of what the other axis has left of the columns"


def test_a_product_in_three_dimensions():
    """Bian et al., section 3.1: what it reads is gathered along one axis, and summed along another."""
    found, one = first_of_two_products(assignment_of("3D"))
    assert found == [("reduce-scatter", "tp", 4), ("all-gather", "kp2", 4)]
    assert (one.rows, one.cols, one.inner) == (axes("kp1", "dp"), axes("kp2"), axes("tp"))


@pytest.fixture
def files(tmp_path):
    """The transformer of docs/graphs.md in a file, which names its dimensions."""
    text = (ROOT / "docs" / "graphs.md").read_text(encoding="utf-8")
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
    cuts = dict(SEQUENCE if sequence == "true" else assignment_of("TP"))
    (files / "mine.yaml").write_text(yaml.safe_dump({"axes": {axis: list(of) for axis, of in cuts.items()}}))
    known = of_file(files, "parallel.strategy=TP-4-d2", f"parallel.sequence_parallel={sequence}")
    own = of_file(files, "parallel.strategy=TP-4-d2", f"parallel.layout={files}/mine.yaml")
    results = [name for name in known if name != "no_effect"]
    assert known[results].equals(own[results])


def test_sequence_parallelism_keeps_less(files):
    plain, both = (
        of_file(files, "parallel.strategy=TP-8", f"parallel.sequence_parallel={sequence}").iloc[0]
        for sequence in ("false", "true")
    )
    assert both["activation_B"] < plain["activation_B"]
    assert both["weight_B"] == plain["weight_B"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("axes: [rows]", "axes is a mapping"),
        ("axes: {pp: [rows]}", "without axes.pp"),
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
    row = fastflow.evaluate(
        "system.devices=8", "parallel.strategy=TP-8", f"parallel.layout={files}/two.yaml"
    ).iloc[0]
    assert np.isnan(row["time_s"])
    assert "the kernels have batch, sequence" in row["reason"]
