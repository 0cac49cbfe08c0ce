"""A type of kernel is one entry, from which all that depends on the type is served."""

import re
from dataclasses import replace

import numpy as np
import pytest
import yaml

import fastflow
from fastflow.core.errors import InputError
from fastflow.core.yaml_file import wrong
from fastflow.physics.parallelism.mesh import axes
from fastflow.physics.parallelism.plans import PLANS, assignment_of
from fastflow.physics.parallelism.sharding.propagation import READ, SUMMED, shardings_of
from fastflow.physics.workload.autodiff import kernels
from fastflow.physics.workload.graph import (
    BACKWARD,
    COLLECTIVES,
    FORWARD,
    NO_GRADIENT,
    ON_ACTIVATIONS,
    PerElement,
    stack,
)
from fastflow.physics.workload.models.graph_file import read_network
from fastflow.physics.workload.network import KernelType
from fastflow.physics.workload.ops import TYPES
from fastflow.physics.workload.precision import UNSIZED
from fastflow.physics.workload.sharding_rules import INNER, PARTIAL, ROWS
from tests.support.paths import ROOT

long = pytest.mark.long
STRATEGIES = "d8,RC-1-8,RC-2-4,CR-8,CR-2-d2-p2,TP-8,TP-2-d2-p2"
FOLDED = """
rows: tokens
dimensions: {tokens: 4096, feed_forward: 2048, hidden: 512}
layers:
  - name: first
    kernels:
      - {name: up, type: gemm, inner: hidden, cols: feed_forward}
      - FOLD
  - name: second
    kernels: [{name: down, type: gemm, inner: hidden, cols: hidden}]
"""
FOLD = "{name: fold, type: fold, inner: feed_forward, cols: hidden}"
PASS = "{name: fold, type: elementwise, cols: hidden, backward_moves: 5, flop: 3}"


def forward_of_fold(network, i, kernel, numbers):
    node = network.nodes[i].node
    moved = numbers.activation * (1 + node.inner / node.cols)
    return kernel._replace(per_element=PerElement(bytes=moved, flop=3.0))


def backward_of_fold(network, i, kernel, numbers):
    kernel = forward_of_fold(network, i, kernel, numbers)
    comm = kernel.comm._replace(summed_cols=network.nodes[i].node.inner)
    return [kernel._replace(sums=network.sums(network.operands(i)), comm=comm)]


def check_fold(at, node, cols, rows):
    if cols[0] not in (None, node.inner):
        raise wrong(f"{at}.inner", f"{cols[0]}, as it reads", node.inner)
    return node.inner


FOLD_TYPE = KernelType(
    name="fold",
    title="a sum of columns",
    kind=ON_ACTIVATIONS,
    gradient=NO_GRADIENT,
    sides={ROWS: ROWS, INNER: INNER},
    reads=({ROWS: ROWS, INNER: INNER},),
    makes={ROWS: ROWS, INNER: PARTIAL},
    required=("inner", "cols"),
    optional=("reads",),
    forward=forward_of_fold,
    backward=backward_of_fold,
    check=check_fold,
)


@pytest.fixture
def file(file, monkeypatch):
    """There is a type more than the package has."""
    monkeypatch.setitem(TYPES, "fold", FOLD_TYPE)
    return file


def predicted(path, strategies, training="true,false"):
    return fastflow.evaluate(
        "model=graph", f"model.file={path}", "system.devices=8", f"parallel.strategy={strategies}",
        f"model.training={training}",
    ).drop(columns=["model.file"], errors="ignore")  # fmt: skip


def exchanges(path, way, phase):
    """Return what kernels exchange: label to (collective, axes, columns)."""
    result = kernels(read_network(str(path)), True, UNSIZED)
    (structure,) = stack(result, 1).structures
    exchanges_of = {}
    for kernel, split in zip(result, shardings_of(structure, way), strict=True):
        for step in split.exchanges if kernel.phase == phase else ():
            cols = {SUMMED: kernel.comm.summed_cols, READ: kernel.comm.read_cols}[step.of]
            along = "+".join(name for name, _ in way if step.axes & axes(name))
            exchanges_of.setdefault(kernel.label, []).append((COLLECTIVES[step.collective], along, int(cols)))
    return exchanges_of


def test_collectives_of_a_user_defined_type(file):
    """Of a pass that contracts the columns that it reads, and has none to shard."""
    path = file(FOLDED.replace("FOLD", FOLD))
    scatter, gather = "reduce-scatter", "all-gather"
    assert exchanges(path, assignment_of(""), FORWARD) == exchanges(path, assignment_of(""), BACKWARD) == {}
    assert exchanges(path, assignment_of("TP"), FORWARD) == {"fold": [("all-reduce", "tp", 512)]}
    assert exchanges(path, assignment_of("TP"), BACKWARD) == {}
    assert exchanges(path, assignment_of("CR"), FORWARD) == {
        "up": [(scatter, "kp1", 2048)], "fold": [(scatter, "kp1", 512)], "down": [(scatter, "kp1", 512)],
    }  # fmt: skip
    assert exchanges(path, assignment_of("CR"), BACKWARD) == {
        "down input gradient": [(gather, "kp1", 512)] * 2,  # of the product's output, and of fold's
        "fold gradient": [(gather, "kp1", 2048)],
    }
    assert exchanges(path, assignment_of("RC"), FORWARD) == {
        "up": [(gather, "kp2", 2048)], "down": [(gather, "kp2", 512)],
    }  # fmt: skip
    assert exchanges(path, assignment_of("RC"), BACKWARD) == {
        "down input gradient": [("all-reduce", "kp2", 512)]
    }
    by_hidden = (("tp", ("hidden",)),)  # shards the inner side of up, and of down; fold has no inner side
    assert exchanges(path, by_hidden, FORWARD) == {
        "up": [("all-reduce", "tp", 2048)], "down": [(scatter, "tp", 512)],
    }  # fmt: skip


def test_a_user_defined_type_is_predicted(file):
    """Where only rows are sharded, its time equals that of a pass of as many bytes and operations."""
    folded, same = (file(FOLDED.replace("FOLD", kernel)) for kernel in (FOLD, PASS))
    assert predicted(folded, "d8,d4-p2,RC-8-1").equals(predicted(same, "d8,d4-p2,RC-8-1"))
    result = predicted(folded, STRATEGIES)
    assert (result["reason"] == "").all()
    assert np.isfinite(result["time_s"]).all()
    explained = fastflow.explain_sharding(
        "model=graph", f"model.file={folded}", "system.devices=8", "parallel.strategy=TP-8"
    )
    assert "a sum of columns" in str(explained.to_dict())


def test_a_file_is_held_to_what_a_type_says(file):
    for given, message in (("inner: hidden, cols", "inner is 2048, as it reads"), ("cols", "gives"),
                        ("inner: feed_forward, moves: 1, cols", "without")):  # fmt: skip
        text = FOLDED.replace("FOLD", FOLD.replace("inner: feed_forward, cols", given))
        with pytest.raises(InputError, match=message):
            read_network(str(file(text)))


QUICK = ("attention",)


@pytest.mark.parametrize("name", [pytest.param(name, marks=() if name in QUICK else long) for name in TYPES])
def test_nothing_else_knows_a_type(file, monkeypatch, name):
    """One that says the same under another name is predicted alike, in every network of the documentation."""
    monkeypatch.setitem(TYPES, "own", replace(TYPES[name], name="own", title="own"))
    docs = (ROOT / "docs" / "graphs.md").read_text(encoding="utf-8")
    for text in re.findall(r"```yaml\n(.*?)```", docs, re.DOTALL):
        renamed, count = re.subn(rf"type: {name},", "type: own,", text)
        if not count:
            continue
        assert yaml.safe_load(renamed) != yaml.safe_load(text)
        assert predicted(file(renamed), STRATEGIES).equals(predicted(file(text), STRATEGIES))
        ours, theirs = (read_network(str(file(content))) for content in (renamed, text))
        assert splits(ours) == splits(theirs)
        assert [instance.node.is_batched for instance in ours.nodes] == [
            instance.node.is_batched for instance in theirs.nodes
        ]


def splits(network):
    """Return how every kernel is sharded under every known assignment."""
    (structure,) = stack(kernels(network, True, UNSIZED), 1).structures
    return [shardings_of(structure, assignment_of(way)) for way in PLANS]


def test_a_new_type_is_a_file_and_a_name(copied):
    package, run = copied
    types = package / "physics" / "workload" / "ops"
    text = (types / "rowwise.py").read_text(encoding="utf-8")
    (types / "new.py").write_text(text.replace('name="rowwise"', 'name="new"'), encoding="utf-8")
    registry = (types / "__init__.py").read_text(encoding="utf-8")
    for before, after in (("    kv_cache,", "    kv_cache,\n    new,"), ("rowwise, ", "rowwise, new, ")):
        assert before in registry
        registry = registry.replace(before, after)
    (types / "__init__.py").write_text(registry, encoding="utf-8")
    network = "{rows: 8, layers: [{name: a, kernels: [{name: b, type: new, cols: 4}]}]}"
    message = run(
        "from pathlib import Path\n"
        "from fastflow.physics.workload.models.graph_file import read_network\n"
        f"Path('net.yaml').write_text('{network}')\n"
        "print(read_network('net.yaml').nodes[0].node.type.name)\n"
    )
    assert message.split() == ["new"]
