"""Strategies and the distributed GEMM against the oracles (3.3, 5.1)."""

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fastflow.core.errors import InputError
from fastflow.physics.parallelism.defaults import ParallelOptions
from fastflow.physics.parallelism.mesh import AXES, axes, devices_along, members
from fastflow.physics.parallelism.plans import NAMES
from fastflow.physics.parallelism.sharding.layout import Layouts
from fastflow.physics.parallelism.sharding.partition import shard_graph
from fastflow.physics.parallelism.strategy import (
    COLUMN_ROW,
    MAX_DEVICES,
    NO_KERNEL,
    ROW_COLUMN,
    Strategy,
    parse,
    parse_column,
)
from fastflow.physics.workload import build_graph
from fastflow.physics.workload.graph import COLLECTIVES
from fastflow.physics.workload.precision import precision
from tests.naive import sharding
from tests.naive import strategy as naive
from tests.support.checks import cases, mixed

KERNELS = {"": NO_KERNEL, "RC": ROW_COLUMN, "CR": COLUMN_ROW}
degrees = st.integers(1, 100_000) | st.sampled_from([1, 2, 512])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("RC-4-2-d3-p2", ("RC", {"kp1": 4, "kp2": 2, "dp": 3, "pp": 2})),
        ("CR-8-d4-p1", ("CR", {"kp1": 8, "dp": 4, "pp": 1})),
        ("d512", ("", {"dp": 512})),
        ("RC-4-2-d64-p1", ("RC", {"kp1": 4, "kp2": 2, "dp": 64, "pp": 1})),
        ("CR-8", ("CR", {"kp1": 8})),
        ("RC-1-1", ("RC", {"kp1": 1, "kp2": 1})),
        ("TP-8-d4-p2", ("TP", {"tp": 8, "dp": 4, "pp": 2})),
        ("TP-8-c2-e2-d4", ("TP", {"tp": 8, "cp": 2, "ep": 2, "dp": 4})),
        ("TP-8", ("TP", {"tp": 8})),
        ("TP-1-c2-d4", ("TP", {"tp": 1, "cp": 2, "dp": 4})),
        ("TP-1-e8", ("TP", {"tp": 1, "ep": 8})),
        ("2D-2-4", ("2D", {"kp1": 2, "kp2": 4})),
        ("3D-2-4-2", ("3D", {"kp1": 2, "kp2": 4, "tp": 2})),
        ("p4", ("", {"pp": 4})),
        ("d2-p4", ("", {"dp": 2, "pp": 4})),
        ("TP-2-d2-p4x3", ("TP", {"tp": 2, "dp": 2, "pp": 4, "chunks": 3})),
        ("p4x1", ("", {"pp": 4, "chunks": 1})),
        ("p1x1", ("", {"pp": 1, "chunks": 1})),
    ],
)
def test_notation(text, expected):
    assert naive.parse(text) == expected
    kernel, found = expected
    assert parse(text) == Strategy(NAMES.index(kernel), **found)
    devices = np.prod([degree for axis, degree in found.items() if axis not in ("ep", "chunks")])
    assert parse(text).devices == devices


words = st.sampled_from(
    ["RC", "CR", "TP", "2D", "3D", "c", "e", "d", "p", "-", "-", "0", "1", "4", "12", "x", " ", "D", "\u0664"]
)


@given(st.lists(words, max_size=9).map("".join) | st.text(max_size=8))
@example("")
@example("RC-4")
@example("RC-4-2-p2-d3")
@example("CR-8d4")
@example("RC-1-2-c2")
@example("TP-8-e3-d4")
@example("TP-8-e4-c2-d4")
@example("c2")
@example("x2")
@example("x1")
@example("d4x2")
@example("p1x2")
@example("p4x0")
@example("p4x2x2")
@example("TP-8x2-p4")
@example("d4d2")
@example("-d4")
@example("-p2")
@example("d4-")
@example("d0")
@example("RC-0-2")
@example("d-4")
@example("d4\n")
@example("CR-d4")
@example("d\u0664")
@cases(600)
def test_what_is_no_strategy_is_refused(text):
    expected = naive.parse(text)
    if expected is None:
        with pytest.raises(InputError):
            parse(text)
    else:
        assert parse(text) == Strategy(NAMES.index(expected[0]), **expected[1])


@st.composite
def strategies(draw):
    kernel = draw(st.sampled_from(NAMES))
    more = ("cp", "ep") if kernel == "TP" else ()
    found = {axis: draw(degrees) for axis in (*naive.CUTS[kernel], *more, "dp", "pp")}
    found["chunks"] = draw(degrees) if found["pp"] > 1 else 1
    return Strategy(NAMES.index(kernel), **found)


@given(strategies().filter(lambda one: max(one.devices * one.chunks, one.ep) <= MAX_DEVICES))
@cases(300)
def test_parser_and_printer_round_trip(strategy):
    text = str(strategy)
    assert parse(text) == strategy
    assert str(parse(text)) == text
    kernel, found = naive.parse(text)
    assert Strategy(NAMES.index(kernel), **found) == strategy


def test_a_strategy_has_a_degree_of_every_axis():
    assert Strategy._fields == ("kernel", *AXES, "chunks")
    assert (
        parse("RC-4-2-d3-p5").degrees == Strategy(kp1=4, kp2=2, dp=3, pp=5).degrees == (4, 2, 1, 1, 1, 3, 5)
    )
    assert parse("TP-2-c3-e4-d8-p5").degrees == (1, 1, 2, 3, 4, 2, 5)


def test_a_set_of_axes_is_bits():
    assert axes() == 0
    assert axes("tp", "kp1", "tp") == 0b101
    assert members(0b101) == (0, 2)
    degrees = np.array([[[2, 3, 5, 7]], [[1, 1, 4, 2]]])
    assert devices_along(degrees, 0b101).tolist() == [[10], [4]]
    assert devices_along(degrees, 0).tolist() == [[1], [1]]


def test_a_column_of_strategies_keeps_its_order():
    texts = ["d512", "RC-4-2-d64-p1", "CR-8-d4", "d512", "d1-p1x1", "d8-p8x4"]
    table, printed = parse_column(np.array(texts))
    rows = zip(table.assignment.tolist(), table.degrees.tolist(), table.chunks.tolist(), strict=True)
    assert [parse(text) for text in texts] == [(kernel, *degrees, chunks) for kernel, degrees, chunks in rows]
    assert [parse(text) for text in printed] == [parse(text) for text in texts]
    assert table.devices.tolist() == [512, 512, 32, 512, 1, 64]


sides = st.integers(1, 5000)
ways = st.sampled_from([1, 1, 2, 3, 4, 7, 16, 100])


@given(
    st.lists(
        st.tuples(sides, sides, sides, st.sampled_from(["", "RC", "CR"]), ways, ways, ways),
        min_size=1,
        max_size=4,
    )
)
@example([(4096, 4096, 4096, "RC", 4, 2, 3)])
@example([(4096, 4096, 4096, "CR", 8, 1, 4)])
@example([(1, 1, 1, "RC", 4, 2, 3)])
@example([(5, 3, 7, "CR", 100, 1, 1)])
@cases(400)
def test_distributed_gemm(points):
    element = 2.0
    points = [
        (m, k, n, kernel, kp1 if kernel else 1, kp2 if kernel == "RC" else 1, dp)
        for m, k, n, kernel, kp1, kp2, dp in points
    ]
    once = np.ones(len(points), dtype=np.int64)
    inputs = {
        "model.name": "gemm", "model.batch": 1, "model.dtype": "fp16", "model.optimizer": "sgd",
        "model.training": True,
    }  # fmt: skip
    columns = {key: np.full(len(points), value) for key, value in inputs.items()}
    columns |= {f"model.{side}": np.array([point[i] for point in points]) for i, side in enumerate("mkn")}
    numbers = precision(columns | mixed(len(points)))
    graph = build_graph(columns, numbers)
    kernels = np.array([KERNELS[point[3]] for point in points])
    degrees = np.array([Strategy(0, kp1=one[4], kp2=one[5], dp=one[6]).degrees for one in points])
    layouts = Layouts(*(np.repeat(column[:, None], 3, axis=1) for column in (kernels, degrees)), once)
    options = ParallelOptions(once, once, zero=0 * once, reshards=once > 0, copies=once < 0)
    shards = shard_graph(graph, layouts, options, numbers)
    for i, (m, k, n, kernel, kp1, kp2, dp) in enumerate(points):
        expected = sharding.cut(m, k, n, element, kernel, kp1, kp2, dp)
        for product, (size, (collective, bytes_, ranks)) in enumerate(expected):
            row = 3 * i + product
            assert (shards.kernels.m[row], shards.kernels.k[row], shards.kernels.n[row]) == size
            waited = product < 2  # the weight gradient's sum may overlap what follows
            exchange, other = (shards.sync, shards.gradient) if waited else (shards.gradient, shards.sync)
            assert COLLECTIVES[exchange.collective[row]] == collective
            assert COLLECTIVES[other.collective[row]] == ""
            assert exchange.bytes[row] == bytes_
            assert other.bytes[row] == 0.0
            if collective:
                assert exchange.ranks[row] == ranks


@given(
    st.integers(1, 300), st.integers(1, 8), st.integers(1, 4000), st.integers(1, 64),
    st.sampled_from(["", "RC", "CR"]), ways, ways, ways, st.sampled_from([1, 1, 3]),
    st.sampled_from(["operand", "fp32"]),
)  # fmt: skip
@example(64, 1, 31, 8, "", 1, 1, 4, 1, "operand")  # on either side of the border, and on it
@example(64, 1, 32, 8, "", 1, 1, 4, 1, "fp32")
@example(64, 1, 33, 8, "", 1, 1, 4, 1, "operand")
@cases(150)
def test_a_tables_gradient_is_exchanged_as_moves_fewer_bytes(
    batch, sequence, vocabulary, hidden, kernel, kp1, kp2, dp, microbatches, gradient
):
    kp1, kp2 = (kp1 if kernel else 1), (kp2 if kernel == "RC" else 1)
    inputs = {
        "model.name": "lstm_lm", "model.hidden": hidden, "model.batch": batch, "model.vocabulary": vocabulary,
        "model.layers": 1, "model.sequence": sequence, "model.dtype": "fp16", "model.optimizer": "sgd",
        "model.training": True,
    }  # fmt: skip
    columns = {key: np.array([value]) for key, value in inputs.items()}
    numbers = precision(columns | mixed(1, gradient=gradient))
    graph = build_graph(columns, numbers)
    layouts = Layouts(
        np.full((1, 3), KERNELS[kernel]),
        np.tile(Strategy(kp1=kp1, kp2=kp2, dp=dp).degrees, (1, 3, 1)),
        np.array([1]),
    )
    options = ParallelOptions(
        stages=np.array([1]),
        microbatches=np.array([microbatches]),
        zero=np.array([0]),
        reshards=np.array([True]),
        copies=np.array([False]),
    )
    shards = shard_graph(graph, layouts, options, numbers)
    (row,) = np.flatnonzero(graph.names[graph.label] == "embedding gradient")
    edges = shards.gradient
    got = COLLECTIVES[edges.collective[row]], edges.bytes[row], edges.ranks[row]
    assert got == sharding.table_gradient(
        batch * sequence, vocabulary, hidden, 4 if gradient == "fp32" else 2, kernel, kp1, kp2, dp
    )


@pytest.mark.parametrize(
    "text", ["d1", "d4", "RC-2-2", "RC-4-1", "RC-1-4-d2", "CR-4", "CR-2-d2", "RC-2-4-d4"]
)
def test_flop_of_the_model_do_not_depend_on_the_strategy(compose, summary, text):
    point = compose("model=gemm", "model.training=true") | {
        "parallel.strategy": text, "system.devices": parse(text).devices,
    }  # fmt: skip
    got = summary([point])
    assert got["flop"][0] == 3 * 2 * point["model.m"] * point["model.k"] * point["model.n"]
    assert got["devices"][0] == parse(text).devices


@pytest.mark.parametrize(
    "text", ["d99999999999999999999", "RC-4294967296-4294967296", "d9223372036854775807-p2"]
)
def test_degrees_beyond_any_machine_are_refused(compose, summary, text):
    """In words, and not by an overflow on the way."""
    try:
        said = summary([compose("model=gemm") | {"parallel.strategy": text}])["reason"][0]
    except InputError as error:
        said = str(error)
    assert text in said


@pytest.mark.parametrize(
    ("strategy", "devices", "word"),
    [("d512", 8, "divide"), ("d3", 8, "divide"), ("d4-p2", 8, "pipeline stages")],
)
def test_a_strategy_that_does_not_suit_the_system_has_a_reason(compose, summary, strategy, devices, word):
    point = compose("model=gemm") | {"parallel.strategy": strategy, "system.devices": devices}
    got = summary([point])
    assert np.isnan(got["time_s"][0])
    assert word in got["reason"][0]
    assert f"parallel.strategy={strategy}" in got["reason"][0]
