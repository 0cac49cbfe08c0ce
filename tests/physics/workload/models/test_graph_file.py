"""`model=graph`: files of networks against the oracle, the built-in workloads, and the user's mistakes."""

import os
import re

import numpy as np
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from fastflow.config.model_inputs import convert
from fastflow.core.errors import InputError
from fastflow.physics.workload import build_graph, count_kernels
from fastflow.physics.workload.graph import PHASES, model_flop
from fastflow.physics.workload.models.graph_file import outline, read_network
from fastflow.physics.workload.precision import precision
from tests.naive import graph as naive
from tests.support.checks import cases, mixed, near
from tests.support.exchanges import columns_of, exchanges
from tests.support.paths import ROOT

DOCS = ROOT / "docs" / "graphs.md"
OF_GRAPHS = ("model.", "precision.")  # what a graph follows from
KINDS = ["product", "input gradient", "weight gradient", "pass", "weights", "batched"]


def graph_of(path, training=True, dtype="fp16", optimizer="sgd"):
    columns = {
        "model.name": np.array(["graph"]), "model.file": np.array([str(path)]),
        "model.training": np.array([training]), "model.dtype": np.array([dtype]),
        "model.optimizer": np.array([optimizer]),
    } | mixed(1)  # fmt: skip
    assert count_kernels(columns).tolist() == [build_graph(columns, precision(columns)).point.size]
    return build_graph(columns, precision(columns))


def rows_of(graph):
    """Return a graph's rows in the oracle's words; passes over weights without their bytes and operations."""
    rows, rc, cr = [], exchanges(graph, "RC"), exchanges(graph, "CR")
    for i in range(graph.point.size):
        update = PHASES[graph.phase[i]] == "update"
        rows.append({
            "label": str(graph.names[graph.label[i]]), "phase": PHASES[graph.phase[i]],
            "kind": KINDS[graph.kind[i]], "repeat": graph.launches.repeat[i],
            "products": graph.launches.products[i],
            "rows": graph.rows[i], "inner": graph.inner[i], "cols": graph.cols[i],
            "moved": 0.0 if update else graph.per_element.bytes[i] / 2,
            "flop": 0.0 if update else graph.per_element.flop[i],
            "rc": rc[i], "cr": cr[i],
            "weights": graph.memory.weights[i], "gradient": graph.gradient[i],
            "kept": graph.memory.saved_cols[i], "whole": graph.memory.saved_whole_cols[i],
            "layer": graph.layer.number[i], "layer_kind": graph.layer.kind[i],
            "peer_kind": graph.comm.peer_kind[i],
            "wait": graph.comm.wait[i], "side": graph.comm.side[i], "sends": graph.comm.sent_cols[i],
        })  # fmt: skip
    return rows


def examples_of_the_docs():
    blocks = re.findall(r"```yaml\n(.*?)```", DOCS.read_text(encoding="utf-8"), re.DOTALL)
    return {yaml.safe_load(block)["name"]: block for block in blocks}


@pytest.fixture
def file(tmp_path):
    """A function that writes a network's file and returns its path."""

    def write(content, name="net.yaml"):
        path = tmp_path / name
        path.write_text(content if isinstance(content, str) else yaml.safe_dump(content), encoding="utf-8")
        return str(path)

    return write


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize(("dtype", "optimizer"), [("fp16", "sgd"), ("fp32", "adam")])
def test_the_language_model_as_a_file(compose, file, training, dtype, optimizer):
    """The docs' example is `model=lstm_lm`, column for column."""
    path = file(examples_of_the_docs()["lstm_lm"])
    point = compose("model=lstm_lm", f"model.dtype={dtype}", f"model.optimizer={optimizer}")
    inputs = {key: np.array([value]) for key, value in point.items() if key.startswith(OF_GRAPHS)}
    inputs["model.training"][:] = training
    known = build_graph(inputs, precision(inputs))
    got = graph_of(path, training, dtype, optimizer)
    columns, expected = columns_of(got), columns_of(known)
    assert columns.keys() == expected.keys()
    for cut in ("RC", "CR"):  # the file gives its dimensions no names
        assert exchanges(got, cut) == exchanges(known, cut)
    assert got.attributes == known.attributes == {}
    for field in expected.keys() - {"structures", "attributes"}:
        assert columns[field].tolist() == expected[field].tolist(), field
        assert columns[field].dtype.kind == expected[field].dtype.kind, field


@pytest.mark.parametrize("name", ["mlp", "transformer", "lstm_lm"])
@pytest.mark.parametrize("training", [True, False])
def test_examples_of_the_docs_agree_with_the_oracle(file, name, training):
    text = examples_of_the_docs()[name]
    document = yaml.safe_load(text)
    if name == "transformer":
        document["layers"][1]["repeat"] = 3  # the oracle is slow
    assert rows_of(graph_of(file(document), training)) == naive.kernels(document, training)


def test_a_transformer_block_by_hand(file):
    """24 blocks: 12 h^2 weights and 2 batch x heads x keys^2 x columns products of activations each."""
    got = graph_of(file(examples_of_the_docs()["transformer"]))
    tokens, hidden, keys, vocabulary = 65536, 1024, 1024, 50257
    products = 24 * (2 * tokens * 12 * hidden**2 + 2 * 2 * tokens * keys * hidden)
    products += 2 * tokens * hidden * vocabulary
    kinds = np.array(KINDS)[got.kind]
    is_gemm = ~np.isin(kinds, ["pass", "weights"])
    flop = 2.0 * got.rows * got.inner * got.cols * got.launches.repeat
    assert near(flop[is_gemm].sum(), 3.0 * products)
    assert model_flop(got)[0] > 3.0 * products
    owned = got.memory.weights * got.inner * got.cols
    assert owned.sum() == 24 * 12 * hidden**2 + 2 * vocabulary * hidden


ROWS = 24


@st.composite
def documents(draw):
    """Draw a network that is right: any types of kernel, branches, recurrences, skips over layers."""
    layers, tensors = [], {}  # columns of every tensor of the layers below
    below = draw(st.sampled_from([None, None, 12]))
    if below:
        kernels = [{"name": "table", "type": "lookup", "vocabulary": draw(st.integers(1, 40)), "cols": 12}]
        layers.append({"name": "embedding", "kind": "embedding", "kernels": kernels})
        tensors["embedding.table"] = 12
    for number in range(draw(st.integers(1, 3))):
        steps = draw(st.sampled_from([1, 1, 2]))
        here, kernels = {}, []
        first = below
        for k in range(draw(st.integers(1, 4))):
            name = f"k{k}"
            entry, cols, first = draw(_kernel(name, kernels, tensors | here, first, steps))
            here[name] = cols
            kernels.append(entry)
        layer = {"name": f"l{number}", "kernels": kernels, "kind": draw(st.sampled_from(list(naive.KINDS)))}
        if first in (None, here[kernels[-1]["name"]]):
            layer["repeat"] = draw(st.integers(1, 2))
        layers.append(layer)
        tensors |= {f"l{number}.{name}": cols for name, cols in here.items()}
        below = here[kernels[-1]["name"]]
    return {"rows": ROWS, "layers": layers}


@st.composite
def _kernel(draw, name, before, tensors, entering, steps):
    """Draw a kernel; returns it, the columns of its output, and those of what enters the layer."""
    kinds = ["gemm", "gemm", "elementwise", "rowwise", "batched_gemm", "lookup"]
    entry = {"name": name, "type": draw(st.sampled_from(kinds))}
    if entry["type"] == "lookup":
        entry |= {"vocabulary": draw(st.integers(1, 40)), "cols": 12}
        return entry, 12, entering
    sources = ["input", *tensors]
    reads = draw(st.lists(st.sampled_from(sources), min_size=1, max_size=2, unique=True))
    if draw(st.booleans()):
        reads = [before[-1]["name"] if before else "input"]
    else:
        entry["reads"] = reads
    if "input" in reads and entering is None:
        entering = 12
    cols = [entering if read == "input" else tensors[read] for read in reads]
    if entry["type"] == "batched_gemm":
        # parts of the tensor it reads first: all rows, some of its columns
        entry |= {"batch": ROWS // 4, "rows": 4, "inner": 2, "cols": 12}
        return entry, 12, entering
    if steps > 1:
        entry["steps"] = steps
    if entry["type"] == "gemm":
        entry |= {"inner": sum(cols), "cols": draw(st.sampled_from([12, 24]))}
        if steps > 1 and draw(st.booleans()):  # what it made itself, a step ago
            entry |= {"reads": [*reads, name], "inner": sum(cols) + entry["cols"]}
        return entry, entry["cols"], entering
    entry |= {"cols": 12} | draw(st.sampled_from([{}, {"flop": 3}, {"moves": 1.5, "backward_flop": 2}]))
    return entry, 12, entering


@given(documents(), st.booleans())
@cases(72)
def test_networks_agree_with_the_oracle(tmp_path_factory, document, training):
    path = tmp_path_factory.mktemp("graph") / "net.yaml"
    path.write_text(yaml.safe_dump(document), encoding="utf-8")
    assert rows_of(graph_of(path, training)) == naive.kernels(document, training)


def test_a_gradient_that_comes_back_from_a_later_kernel(file):
    """The passes have no weights below them, but those of the product a step ago."""
    kernels = [
        {"name": "a", "type": "elementwise", "steps": 2, "cols": 12, "reads": ["input", "b"]},
        {"name": "b", "type": "elementwise", "steps": 2, "cols": 12, "reads": ["a", "c"]},
        {"name": "c", "type": "gemm", "steps": 2, "inner": 12, "cols": 12, "reads": ["input"]},
    ]
    document = {"rows": ROWS, "layers": [{"name": "layer", "kernels": kernels}]}
    got = rows_of(graph_of(file(document)))
    assert got == naive.kernels(document, training=True)
    assert {"a gradient", "b gradient"} <= {row["label"] for row in got}


MLP = """
rows: 64
layers:
- name: table
  kind: embedding
  kernels:
  - {name: lookup, type: lookup, vocabulary: 500, cols: 40}
- name: block
  repeat: 2
  kernels:
  - {name: up, type: gemm, inner: 40, cols: 160}
  - {name: act, type: elementwise, cols: 160, flop: 1}
  - {name: down, type: gemm, inner: 160, cols: 40}
  - {name: add, type: elementwise, cols: 40, reads: [down, input]}
"""


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("rows: 64", "", "gives rows"),
        ("rows: 64", "rows: 64\ncolour: red",
         "the keys there are rows, layers, name, dimensions, sequences, source"),
        ("rows: 64", "rows: 0", "rows is a whole number from 1 to 1e+12, not 0"),
        ("rows: 64", "rows: 6e20", "rows is a whole number from 1 to 1e+12, not 6e20"),
        ("rows: 64", "rows: true", "rows is a whole number from 1 to 1e+12, not True"),
        ("rows: 64", "rows: 64\nrows: 32", "a YAML file (line 3, column 1: rows is given twice)"),
        ("rows: 64", "rows: [64", "a YAML file (line 3,"),
        ("repeat: 2", "repeat: 0", "layers.block.repeat is a whole number from 1 to 1e+12, not 0"),
        ("repeat: 2", "repeat: 999999", "layers.block.repeat is so small that"),
        ("repeat: 2", "repeats: 2", "without layers.block.repeats"),
        ("kind: embedding", "kind: table",
         "layers.table.kind is one of embedding, hidden, softmax, not table"),
        ("name: block", "name: table", "layers[1].name is different from those before it (table), not table"),
        ("name: block", "name: a.b", "layers[1].name is a text without a dot"),
        ("- name: block\n  repeat: 2", "- repeat: 2",
         "layers[1].name is a text without a dot, other than input, not null"),
        ("name: act", "name: up",
         "layers.block.kernels[1].name is different from those before it (up), not up"),
        ("type: elementwise, cols: 160", "type: relo, cols: 160",
         "@act.type is one of gemm, batched_gemm, lookup, elementwise, rowwise, quantise, "),
        ("type: elementwise, cols: 160, flop: 1", "type: quantise, cols: 160",
         "gives layers.block.kernels.act.to"),
        ("type: elementwise, cols: 160, flop: 1", "type: quantise, to: bf16, cols: 160",
         "@act.to is one of fp8, fp8_block, int8, nvfp4, mxfp4, not bf16"),
        ("type: elementwise, cols: 160", "cols: 160", "gives layers.block.kernels.act.type"),
        ("inner: 160, ", "", "gives layers.block.kernels.down.inner"),
        ("inner: 160", "inner: 16", "@down.inner is 160, the columns of what it reads (act), not 16"),
        ("inner: 160", "inner: -3", "@down.inner is a whole number from 1 to 1e+12, not -3"),
        ("inner: 160", "inner: 3.5", "@down.inner is a whole number from 1 to 1e+12, not 3.5"),
        ("inner: 160, ", "inner: 160, flop: 3, ", "without layers.block.kernels.down.flop"),
        ("cols: 160, flop: 1", "cols: 70, flop: 1",
         "@act.cols is a divisor of the 160 columns that it reads (up), not 70"),
        ("flop: 1", "flop: -1", "@act.flop is a number from 0, not -1"),
        ("flop: 1", "flop: .nan", "@act.flop is a number from 0, not nan"),
        ("flop: 1", "flop:", "@act.flop is a number from 0, not null"),
        ("flop: 1", "steps: 5", "@act.steps is a divisor of its 64 rows, not 5"),
        ("flop: 1", "keeps: -1", "@act.keeps is a whole number from 0"),
        ("flop: 1", "reads: down",
         "@act.reads is one of input, up (of this layer), or layer.kernel of a layer below, not down"),
        ("flop: 1", "reads: []", "@act.reads is the name of a kernel, or a list of them, not []"),
        ("reads: [down, input]", "reads: [down, lookup]",
         "@add.reads is one of input, up, act, down (of this layer)"),
        ("cols: 40, reads: [down, input]", "cols: 20",
         "layers.block.repeat is 1, since 40 columns enter the layer and 20 leave it, not 2"),
        ("cols: 40, reads: [down, input]}", "cols: 40}\n- {name: empty, kernels: []}",
         "layers.empty.kernels is a list with at least one entry, not []"),
        ("type: elementwise, cols: 160, flop: 1", "type: batched_gemm, batch: 3, rows: 7, inner: 5, cols: 2",
         "@act.batch is such that batch x rows x cols is a multiple of the 64 rows"),
        ("type: elementwise, cols: 160, flop: 1",
         "type: batched_gemm, batch: 64, rows: 1, inner: 161, cols: 1",
         "@act.inner is so small that batch x rows x inner is at most the 10240 elements"),
    ],
)  # fmt: skip
def test_mistakes_name_their_node(file, old, new, message):
    assert MLP.count(old) >= 1
    path = file(MLP.replace(old, new, 1))
    with pytest.raises(InputError) as error:
        convert("model.file", path)  # as the engine checks it, before a grid starts
    assert error.value.key == "model.file"
    assert error.value.value == path
    assert message.replace("@", "layers.block.kernels.") in str(error.value)
    assert "\n" not in str(error.value)


def test_the_file_of_the_mistakes_is_right(file):
    path = file(MLP)
    assert convert("model.file", path) == path


@pytest.mark.parametrize(
    "text",
    [
        "",
        "3",
        "[]",
        "layers: {}",
        "rows: 3\nlayers: 3",
        "rows: 3\nlayers: [3]",
        "\0",
        "? [a]\n: b",
        "a: 2024-99-99",
    ],
)
def test_what_is_no_network_is_refused(file, text):
    with pytest.raises(InputError, match=r"model\.file=.* is invalid: expected a"):
        read_network(file(text))


@pytest.mark.parametrize("name", ["none.yaml", "", "a\0b", "."])
def test_a_file_that_cannot_be_read_is_refused(tmp_path, name):
    with pytest.raises(InputError, match="a file that can be read"):
        read_network(os.path.join(tmp_path, name))  # noqa: PTH118


def test_a_file_that_changes_is_read_again(file):
    first = read_network(file(MLP))
    assert read_network(file(MLP.replace("64", "640"))) != first
    assert read_network(file(MLP, "same.yaml")).nodes == first.nodes


def test_a_file_is_chosen_as_any_model(file, compose):
    """With the settings that every model has."""
    path = file(MLP)
    point = compose("model=graph", f"model.file={path}", "model.optimizer=adam")
    assert point["model.file"] == path
    columns = {key: np.array([value]) for key, value in point.items() if key.startswith(OF_GRAPHS)}
    got = build_graph(columns, precision(columns))
    assert rows_of(got) == naive.kernels(yaml.safe_load(MLP), training=True)


def test_outline(file):
    """Layers count with their repeats; rows are those of a launch."""
    assert outline(file(MLP)) == (3, 64, 0)
    assert outline(file(examples_of_the_docs()["lstm_lm"])) == (4, 16384, 0)
    assert outline(file(examples_of_the_docs()["transformer"])) == (26, 1024, 64)


def test_points_of_several_files(file):
    """Each point has a separate graph, in the order of the points."""
    texts = (MLP, MLP.replace("repeat: 2", "repeat: 3"))
    paths = [file(text, f"{number}.yaml") for number, text in enumerate(texts)]
    order = [1, 0, 1]
    columns = {
        "model.name": np.full(3, "graph"), "model.file": np.array([paths[index] for index in order]),
        "model.training": np.full(3, True), "model.dtype": np.full(3, "fp16"),
        "model.optimizer": np.full(3, "sgd"),
    } | mixed(3)  # fmt: skip
    together = build_graph(columns, precision(columns))
    alone = [graph_of(path) for path in paths]
    assert count_kernels(columns).tolist() == [alone[index].point.size for index in order]
    assert together.rows.tolist() == np.concatenate([alone[index].rows for index in order]).tolist()


def network(*kernels, rows="64", repeat="1"):
    """A file of one layer, its kernels as they are written."""
    written = "".join(f"  - {{{kernel}}}\n" for kernel in kernels)
    return f"rows: {rows}\nlayers:\n- name: a\n  repeat: {repeat}\n  kernels:\n{written}"


PRODUCT = "name: g, type: gemm, inner: 8, cols: 8"


@pytest.mark.parametrize("odd", ["0100", "1:30", "0x10", "1_000", "0b11", "+0x1", "00", "1:30.5", "1_0.5"])
def test_numbers_are_read_as_they_look(file, odd):
    for text, where in (
        (network(PRODUCT, rows=odd), "rows"),
        (network(PRODUCT, repeat=odd), "layers.a.repeat"),
        (network(f"name: g, type: gemm, inner: {odd}, cols: 8"), "layers.a.kernels.g.inner"),
        (network(f"name: g, type: gemm, inner: 8, cols: 8, keeps: {odd}"), "layers.a.kernels.g.keeps"),
        (network(f"name: g, type: elementwise, cols: 8, flop: {odd}"), "layers.a.kernels.g.flop"),
    ):
        with pytest.raises(InputError) as raised:
            read_network(file(text))
        assert str(raised.value).endswith(f", in decimal digits, not {odd}")
        assert f"a file whose {where} is a" in str(raised.value)


def test_plain_numbers_stay_what_they_are(file):
    text = network("name: g, type: elementwise, cols: 100, flop: 1.50, moves: 07.5", rows="+64", repeat="1.0")
    (placed,) = read_network(file(text)).nodes
    node = placed.node
    assert (node.rows, node.cols, node.cost.flop, node.cost.moves) == (64, 100, 1.5, 7.5)


def bomb(deep, open_, close):
    """A file of a few lines whose value is written out ten to the power of `deep` times."""
    lines = [f"a0: &a0 {open_}1{close}"]
    for i in range(deep):
        parts = ", ".join([f"*a{i}"] * 10)
        lines.append(f"a{i + 1}: &a{i + 1} {open_}{parts}{close}")
    return "\n".join([*lines, f"rows: *a{deep}", "layers: []"])


NAMES = ", ".join(["input"] * 200_000)
LONG = {
    "many reads": (
        network(f"name: g, type: elementwise, cols: 8, reads: [{NAMES}]"),
        "at most 262,144 bytes",
    ),
    "an alias of many reads": (
        f"source: &r [{', '.join(['input'] * 2_000)}]\n"
        + network("name: g, type: elementwise, cols: 8, reads: *r", repeat="1000"),
        "at most 1000000 reads",
    ),
    "an alias many times": (
        f"source: &r [{', '.join(['input'] * 2_000)}]\n"
        + network(*(f"name: g{i}, type: elementwise, cols: 8, reads: *r" for i in range(200))),
        "at most 200,000 values, aliases written out",
    ),
    "lists of lists": (bomb(9, "[", "]"), "at most 200,000 values"),
    "merged mappings": (
        "a0: &a0 {x: 1}\n"
        + "".join(f"a{i + 1}: &a{i + 1} {{<<: [{', '.join([f'*a{i}'] * 10)}]}}\n" for i in range(9)),
        "at most 200,000 values",
    ),
    "a list within itself": ("rows: &r [*r]\nlayers: []", "at most 200,000 values"),
    "deep brackets": ("rows: " + "[" * 20_000, "a YAML file"),
    "a long value": (network(PRODUCT, rows="x" * 9_000), r"not x{60}\.\.\."),
    "a large file": ("#" * 300_000 + "\nrows: 1\nlayers: []", "at most 262,144 bytes, not 300,0"),
    "repeated": (network(PRODUCT, repeat="100001"), "at most 100000 kernels"),
    "elements": (
        network("name: g, type: gemm, inner: 8, cols: 1000000000000", rows="1000000000000"),
        r"at most 4e\+18 elements of outputs",
    ),
    "borders": (
        network(*(f"name: g{i}, type: gemm, inner: 8, cols: 8" for i in range(200)))
        + f"- name: b\n  repeat: 50000\n  kernels: [{{{PRODUCT}}}]\n- name: c\n  kernels:\n"
        + "  - {name: g, type: gemm, cols: 8, inner: 1600, reads: ["
        + ", ".join(f"a.g{i}" for i in range(200))
        + "]}",
        "cross at most 5,000,000 borders",
    ),
}


@pytest.mark.parametrize("name", LONG)
def test_what_would_take_long_is_refused_at_once(file, name):
    text, allowed = LONG[name]
    path = file(text)
    with pytest.raises(InputError, match=allowed) as raised:
        read_network(path)
    assert len(str(raised.value)) < 600 + len(path)
    assert "\n" not in str(raised.value)


def test_a_pipe_is_no_file(tmp_path):
    """Nobody would ever write to it, and reading a device has no end."""
    os.mkfifo(tmp_path / "pipe")
    for path in (str(tmp_path / "pipe"), "/dev/zero"):
        with pytest.raises(InputError, match="a regular file, not a device or a pipe"):
            read_network(path)


@pytest.mark.long
def test_work_grows_with_the_file_alone(file):
    """Products of 20,000 repeated layers that read one tensor, and recurrences that lead back a long way."""
    shared = network("name: l, type: lookup, vocabulary: 9, cols: 8") + (
        "- name: b\n  repeat: 20000\n  kernels: "
        "[{name: g, type: gemm, inner: 16, cols: 8, reads: [input, a.l]}]\n"
    )
    steps = network(
        *(f"name: e{i}, type: elementwise, cols: 8, steps: 2, reads: e{i + 1}" for i in range(1_000)),
        "name: e1000, type: gemm, steps: 2, inner: 8, cols: 8, reads: input",
    )
    for text, count in ((shared, 20_001), (steps, 1_001)):
        result = read_network(file(text))
        assert len(result.nodes) == count
        assert all(result.requires_grad)
        assert graph_of(file(text)).point.size > 2 * count
