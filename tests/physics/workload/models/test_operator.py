"""Pointwise and normalisation operators against their definitions (`model=operator`)."""

import math

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import fastflow
from fastflow.physics.workload import build_graph, count_kernels, row_shard_limit
from fastflow.physics.workload.graph import FORWARD, ON_ACTIVATIONS
from fastflow.physics.workload.models import operator as subject
from fastflow.physics.workload.precision import OUTPUT_BYTES, precision
from tests.naive import operator as naive
from tests.support.checks import cases, mixed, near
from tests.support.exchanges import exchanges

OPERATORS = tuple(subject.OPERATORS)
ROWWISE = ("softmax", "log_softmax", "layernorm", "rmsnorm", "rmsnorm_residual", "sampling")


def columns(points):
    """Return the columns of `model` of some points, dicts of what differs from one small operator."""
    base = {
        "name": "operator", "op": "elementwise", "rows": 8, "cols": 8, "tensors": 0, "dtype": "fp32",
        "training": False, "optimizer": "sgd",
    }  # fmt: skip
    return {f"model.{key}": np.array([(base | point)[key] for point in points]) for key in base}


def graph_of(points):
    inputs = columns(points)
    return build_graph(inputs, precision(inputs | mixed(len(points))))


def test_every_operator_is_known():
    assert tuple(naive.ROWS) == OPERATORS


@pytest.mark.parametrize("op", OPERATORS)
def test_operations_and_tensors_by_definition(op):
    width = 200
    rng = np.random.default_rng(7)
    written = naive.WRITES.get(op, 1)
    inputs = rng.uniform(0.1, 2.0, (naive.tensors(op) - written, width)).tolist()
    out, done = naive.run(op, inputs)
    assert len(out) == (written * width or 1)
    assert all(map(math.isfinite, out))
    known = subject.OPERATORS[op]
    # a row's statistics (its mean, the first of a sum) are not counted
    assert abs(known.flop * width - done) <= 3 if op in ROWWISE else known.flop * width == done
    assert known.reads + known.writes == naive.tensors(op)
    assert known.backward == naive.ROWS[op][1]


points = st.fixed_dictionaries(
    {
        "op": st.sampled_from(OPERATORS),
        "rows": st.integers(1, 2**20),
        "cols": st.integers(1, 2**20),
        "tensors": st.sampled_from([0, 0, 1, 2, 3, 7]),
        "dtype": st.sampled_from(sorted(OUTPUT_BYTES)),
        "training": st.booleans(),
    }
)


@given(st.lists(points, min_size=1, max_size=6))
@example([{"op": "add", "tensors": 2, "training": True}, {"op": "softmax", "tensors": 0, "training": True}])
@cases(60)
def test_kernels_of_every_point(points):
    """Points of several operators together: each has separate kernels, in the order of the points."""
    inputs, graph = columns(points), graph_of(points)
    rc = exchanges(graph, "RC")
    assert (np.diff(graph.offset) == count_kernels(inputs)).all()
    for p in range(len(points)):
        point = {key.removeprefix("model."): column[p] for key, column in inputs.items()}
        known, given, size = subject.OPERATORS[point["op"]], point["tensors"], OUTPUT_BYTES[point["dtype"]]
        moved = given or naive.tensors(point["op"])
        backward = 2 * given - 1 if given else naive.ROWS[point["op"]][1]
        trained = int(point["training"] and naive.ROWS[point["op"]][1] > 0)
        expected = [(point["op"], moved)] + [(f"{point['op']} gradient", backward)] * trained
        rows = range(graph.offset[p], graph.offset[p + 1])
        assert [str(graph.names[graph.label[row]]) for row in rows] == [name for name, _ in expected]
        for row, (_, tensors) in zip(rows, expected, strict=True):
            assert (graph.rows[row], graph.cols[row]) == (point["rows"], point["cols"])
            assert near(graph.per_element.bytes[row], tensors * size)
            assert graph.per_element.flop[row] == known.flop
            assert graph.kind[row] == ON_ACTIVATIONS
            assert graph.launches.repeat[row] == 1
            assert graph.memory.weights[row] == 0
            # columns that other devices hold only matter for a row's statistics
            assert (rc[row] != ("", 0)) == (point["op"] in ROWWISE and graph.phase[row] == FORWARD)
        assert graph.memory.saved_cols[rows[0]] == moved * point["cols"]


@pytest.mark.parametrize("op", OPERATORS)
def test_types_of_a_file_do_and_move_as_much(op, tmp_path):
    """Each operator is a type of kernel, too; in front of it are weights, so that its gradient is wanted."""
    known = graph_of([{"op": op, "rows": 64, "cols": 32, "training": True}])
    path = tmp_path / "net.yaml"
    path.write_text(
        "rows: 64\nlayers: [{name: one, kernels: [{name: a, type: gemm, inner: 8, cols: 32}, "
        f"{{name: {op}, type: {op}, cols: 32, reads: [{', '.join('a' * subject.OPERATORS[op].reads)}]}}]}}]",
        encoding="utf-8",
    )
    if op == "elementwise":  # of which a file says all
        return
    inputs = columns([{"name": "graph", "training": True}]) | {"model.file": np.array([str(path)])}
    result = build_graph(inputs, precision(inputs | mixed(1)))
    work = {str(result.names[result.label[row]]): row for row in range(result.point.size)}
    for row in range(known.point.size):
        mine = work[str(known.names[known.label[row]])]
        assert near(result.per_element.bytes[mine], known.per_element.bytes[row])
        assert result.per_element.flop[mine] == known.per_element.flop[row]


def test_devices_share_the_rows():
    rows, whole = row_shard_limit(columns([{"rows": 5}, {"rows": 77}]))
    assert rows.tolist() == [5, 77]
    assert not whole.any()


def test_times():
    """All operators on one chip, in one call; a large one takes what main memory takes."""
    frame = fastflow.evaluate(
        "model=operator", "chip=v100", "model.dtype=fp32", "model.op=" + ",".join(OPERATORS),
        "model.rows=16384", "model.cols=16384",
    )  # fmt: skip
    assert (frame["reason"] == "").all()
    assert (frame["bound_by"] == "dram").all()
    moved = np.array([4.0 * 2**28 * naive.tensors(op) for op in OPERATORS])
    assert frame["intensity"].tolist() == pytest.approx(
        [subject.OPERATORS[op].flop / (4 * naive.tensors(op)) for op in OPERATORS]
    )
    assert (frame["time_s"] > moved / frame["dram_Bps"]).all()
    assert (frame["time_s"] < 1.3 * moved / frame["dram_Bps"]).all()
    assert frame["activation_B"].tolist() == moved.tolist()


def test_what_no_operator_is(cli):
    from fastflow.cli.commands.sweep import main

    code, _, err = cli(main, "model=operator", "model.op=convolution")
    assert code == 2
    assert len(err) == 1
    assert "model.op" in err[0]
    assert "convolution" in err[0]
    assert "softmax" in err[0]
