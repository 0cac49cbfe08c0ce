"""Layers of a graph that stand for several: dealt to pipeline stages, walked through, kept in memory."""

from collections import Counter
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import fastflow
from fastflow.api.functions import _single_point
from fastflow.engine.run.chunks import predict_range
from fastflow.physics.parallelism.virtual_stages import (
    EVEN,
    crossings,
    invalid_pipeline_partition,
    layer_kinds,
    layer_partition_of,
    partition_layers,
    recompute_launches_of,
)
from fastflow.physics.schedule.layer_times import (
    CONTEXT,
    EXPERT,
    GRADIENTS,
    TENSOR,
    WAITS,
    WEIGHTS,
    Overlap,
    Waits,
    walk_layers,
)
from fastflow.physics.schedule.pipeline_order import GPIPE
from fastflow.physics.workload import FAMILIES
from fastflow.physics.workload import _build_single_model as build_one
from fastflow.physics.workload.family import Order
from fastflow.physics.workload.graph import (
    ALL_GATHER,
    BACKWARD,
    EMBEDDING,
    FORWARD,
    HIDDEN,
    NO_COMM,
    ON_ACTIVATIONS,
    OTHER,
    PARTS,
    PRODUCT,
    REDUCE_SCATTER,
    SOFTMAX,
    UPDATE,
    Form,
    Kernel,
    Launches,
    LayerOfKernel,
    stack,
)
from fastflow.physics.workload.network import connect
from fastflow.physics.workload.ops import TYPES
from fastflow.reporting.trace import trace_point
from tests.naive import stacks as naive
from tests.support.checks import cases, near

FORM = Form(TYPES["gemm"])


def kernel(layer, kind=HIDDEN, phase=FORWARD, times=1, sent=1, wait=1):
    """Return a kernel of a layer, which sends what it makes."""
    return Kernel(
        label="k",
        form=FORM,
        phase=phase,
        kind=PRODUCT,
        rows=4,
        launches=Launches(repeat=1, times=times, batch=1, products=1),
        layer=LayerOfKernel(layer, kind, OTHER),
        comm=NO_COMM._replace(sent_cols=sent, wait=wait),
    )


def model(pattern):
    """Return the graph and the order of one model: embedding, layers by the pattern's letters, head."""
    kinds = sorted(set(pattern))
    count = {letter: pattern.count(letter) for letter in kinds}
    every = [kernel(0, EMBEDDING)]
    every += [kernel(1 + i, times=count[letter]) for i, letter in enumerate(kinds)]
    every += [kernel(1 + len(kinds), SOFTMAX, sent=0)]
    every += [
        forward._replace(phase=BACKWARD, comm=NO_COMM._replace(sent_cols=int(forward.layer.number > 0)))
        for forward in reversed(every)
    ]
    order = np.array([0, *(1 + kinds.index(letter) for letter in pattern), 1 + len(kinds)])
    return stack(every, 1), Order(np.array([0, order.size]), order)


class Wanted:
    """Strategies of one point."""

    def __init__(self, stages, chunks):
        self.pp, self.chunks = np.array([stages]), np.array([chunks])


@given(
    st.text("ab", min_size=1, max_size=24), st.integers(1, 6), st.integers(1, 4),
    st.sampled_from(["none", "selective", "full", "1", "3"]), st.integers(1, 5),
)  # fmt: skip
@cases(180)
def test_layers_are_dealt_evenly(pattern, stages, chunks, recompute, microbatches):
    chunks = chunks if stages > 1 else 1
    graph, order = model(pattern)
    expected = naive.deal(1, len(pattern), 1, stages, chunks)
    wanted = Wanted(stages, chunks)
    partition = layer_partition_of(graph, order, wanted)
    reason = invalid_pipeline_partition(
        partition,
        wanted,
        {
            "parallel.pipeline_partition": np.array([EVEN]),
            "parallel.strategy": np.array(["d1"]),
            "parallel.pipeline_layout": np.array(["auto"]),
        },
    ).at(0)
    assert (expected is None) == (reason is not None and stages > 1)
    assume(expected is not None)
    got = partition_layers(
        graph, partition, np.array([True]), np.array([recompute]), np.ones(graph.point.size),
        np.array(["auto"]), np.array([stages]), np.array([GPIPE]),
    )  # fmt: skip
    layers = got.layers[0]
    most = {"none": 0, "selective": 0, "full": 99}.get(recompute, recompute)
    again = np.zeros(layers, dtype=int)
    ends, begins = [], []
    for j, places in enumerate(expected):
        mine = [order.layer[place] for place in places]
        first = [layer for layer in mine if 0 < layer < layers - 1][: int(most)]
        at = slice(got.first_count[0] + j * layers, got.first_count[0] + (j + 1) * layers)
        assert got.layer_counts[at].tolist() == [mine.count(layer) for layer in range(layers)]
        assert got.recompute_counts[at].tolist() == [first.count(layer) for layer in range(layers)]
        again += got.recompute_counts[at]
        assert (got.first_layer[j], got.last_layer[j]) == (mine[0], mine[-1])
        begins.append(mine[0])
        ends.append(mine[-1])
    crossing = crossings(graph.numbers, got)
    for row in range(graph.point.size):
        if graph.phase[row] == FORWARD:
            assert crossing[row] == (
                ends[:-1].count(graph.layer.number[row]) if graph.comm.sent_cols[row] else 0
            )
        else:
            assert crossing[row] == (
                begins[1:].count(graph.layer.number[row]) if graph.comm.sent_cols[row] else 0
            )
    launched = recompute_launches_of(graph.numbers, got, np.array([microbatches]))
    forward = graph.phase == FORWARD
    assert launched[forward].tolist() == (microbatches * again[graph.layer.number[forward]]).tolist()
    assert not launched[~forward].any()


times = st.floats(0.0, 1.0)
rows = st.lists(
    st.tuples(times, st.lists(times, min_size=5, max_size=5), st.integers(0, 1), st.integers(1, 3)),
    min_size=1, max_size=8,
)  # fmt: skip


def walked(
    phase, table, overlap=(False,) * 4, collective=ALL_GATHER, ranks=4, kind=ON_ACTIVATIONS, taken=0.0
):
    """Return what a layer of one phase takes, of rows as (time, waits, level, reader)."""
    graph = stack([kernel(0, phase=phase, wait=reader)._replace(kind=kind) for _, _, _, reader in table], 1)
    waits = Waits(
        time=np.array([[row[1][kind] for row in table] for kind in range(len(WAITS))]),
        level=np.array([row[2] for row in table]),
        ranks=np.full(len(table), ranks),
        collective=np.full(len(table), collective),
    )
    _, first = layer_kinds(graph)
    kernel_s = np.array([row[0] for row in table])
    overlaps = Overlap(*(np.array([one]) for one in (*overlap, taken)))
    return walk_layers(graph.numbers, first, kernel_s, waits, overlaps, np.array([0]))


@given(rows)
@cases(180)
def test_a_layer_is_a_walk_through_its_rows(table):
    got = walked(FORWARD, table)
    plain = [(time, sum(waits[:GRADIENTS]), level, reader) for time, waits, level, reader in table]
    whole = naive.walk(plain)
    summed = sum(row[1][GRADIENTS] for row in table)  # no row waits for it, but the layer's end
    assert near(got.forward[0], whole + summed)
    assert got.waits[FORWARD, GRADIENTS, 0] == pytest.approx(summed)
    left = whole
    for kind in range(GRADIENTS):  # one after the other is left out
        rest = [
            (time, sum(waits[kind + 1 : GRADIENTS]), level, reader) for time, waits, level, reader in table
        ]
        without = naive.walk(rest)
        assert got.waits[FORWARD, kind, 0] == pytest.approx(left - without, abs=1e-12)
        left = without
    assert got.forward[0] == pytest.approx(sum(row[0] for row in table) + got.waits[FORWARD, :, 0].sum())
    update = walked(UPDATE, table)
    without = [
        (time, sum(waits[:WEIGHTS]) + waits[GRADIENTS], level, reader) for time, waits, level, reader in table
    ]
    assert near(update.update[0], naive.walk(without))
    assert near(update.gather[0], sum(row[1][WEIGHTS] for row in table))


shares = st.floats(0.0, 0.5)


@given(times, times, st.integers(2, 16), st.sampled_from([TENSOR, CONTEXT]), st.booleans(), shares)
@cases(60)
def test_exchanges_hide_behind_products(product, wait, ranks, kind, summed, taken):
    waits = [0.0] * 5
    waits[kind] = wait
    none = [0.0] * 5
    asked = tuple(one == kind for one in (TENSOR, CONTEXT, EXPERT, WEIGHTS))
    table = (
        [(0.5, none, 0, 1), (product, waits, 0, 1)] if summed else [(0.5, waits, 0, 1), (product, none, 0, 1)]
    )
    collective = REDUCE_SCATTER if summed else ALL_GATHER
    got = walked(FORWARD, table, asked, collective, ranks, PRODUCT, taken)
    expected = (naive.laid_out if kind == TENSOR else naive.in_parts)(wait, product, ranks, taken)
    assert near(got.forward[0], 0.5 + expected)
    alone = walked(FORWARD, table, asked, collective, ranks, taken=taken)  # there is no product beside it
    assert near(alone.forward[0], 0.5 + product + wait)


@given(
    st.lists(st.tuples(times, times), min_size=1, max_size=6),
    st.sampled_from([EXPERT, WEIGHTS, GRADIENTS]),
    shares,
)
@cases(60)
def test_experts_and_weights_hide_behind_a_layer(pairs, kind, taken):
    table = [(time, [wait * (one == kind) for one in range(5)], 0, 1) for time, wait in pairs]
    asked = tuple(one in (kind, kind - 1) for one in (TENSOR, CONTEXT, EXPERT, WEIGHTS))
    got = walked(FORWARD, table, asked, taken=taken)
    busy, waits = (sum(pair[i] for pair in pairs) for i in (0, 1))
    assert got.forward[0] == pytest.approx(naive.both(busy, waits, taken))


@given(
    rows,
    st.lists(st.booleans(), min_size=4, max_size=4),
    st.integers(0, 3),
    st.integers(2, 8),
    shares,
    shares,
)
@cases(90)
def test_a_layer_that_hides_something_takes_no_longer(table, overlap, which, ranks, taken, more):
    """Nor one that hides it from fewer bundles."""

    def run(hides, share, phase, collective):
        asked = [*overlap[:which], hides, *overlap[which + 1 :]]
        got = walked(phase, table, asked, collective, ranks, PRODUCT, share)
        return got.forward[0] + got.backward[0] + got.weight[0]

    few, many = sorted((taken, more))
    for phase in (FORWARD, BACKWARD):
        for collective in (ALL_GATHER, REDUCE_SCATTER):
            hidden, shown = (run(hides, few, phase, collective) for hides in (True, False))
            assert hidden <= shown * (1 + 1e-12)
            assert hidden <= run(True, many, phase, collective) * (1 + 1e-12)


def test_sums_of_an_iteration_take_bundles_too():
    """Of one device's 108 SMs a collective has 16, for as long as it moves beside the last backward pass."""

    def run(bundles):
        found = fastflow.evaluate(
            "model=transformer", "model.layers=4", "model.batch=64", "chip=a100", "system=dgx_a100",
            "system.devices=8", "parallel.strategy=TP-1-d8", f"parallel.overlap.bundles={bundles}",
        )  # fmt: skip
        return found.iloc[0]

    none, some, every = run(0), run(16), run(200)
    lost = some["time_s"] - none["time_s"]
    assert 0.0 < lost < 16 / 108 * none["comm_s"]
    assert every["time_s"] - none["time_s"] == pytest.approx(
        lost * 0.5 / (16 / 108), rel=1e-6
    )  # at most half


@pytest.mark.parametrize("bundles", [16, 1000])
def test_a_trace_has_every_block_of_every_stage(bundles):
    """Four stages of two chunks: blocks that do not overlap, sums of gradients, an update."""
    _, run = _single_point(
        ("model=transformer", "model.layers=16", "model.batch=16", "chip=h100_sxm", "system=dgx_h100",
         "system.devices=8", "parallel.strategy=TP-1-d2-p4x2", "parallel.zero_stage=1",
         f"parallel.overlap.bundles={bundles}")
    )  # fmt: skip
    (found,) = predict_range(run.grid, 0, 1)
    events = [event for event in trace_point(found.prediction, 0) if event["ph"] == "X"]
    total = 1e6 * found.prediction.timeline.total[0]
    assert max(event["ts"] + event["dur"] for event in events) == pytest.approx(total, rel=1e-6)
    for stage in range(4):
        own = [event for event in events if event["pid"] == stage + 1]
        compute = sorted(
            (event["ts"], event["ts"] + event["dur"]) for event in own if event["cat"] == "compute"
        )
        assert all(end <= start + 1e-3 for (_, end), (start, _) in pairwise(compute))
        names = Counter((event["name"], event["args"].get("chunk")) for event in own)
        assert names == {
            **{(name, chunk): 8 for name in ("forward", "backward") for chunk in (0, 1)},
            **{("sum of weight gradients", chunk): 1 for chunk in (0, 1)}, ("update", None): 1,
        }  # fmt: skip


TOWER = """
dimensions: {batch: 32, sequence: 256, hidden: 1024, heads: 8, head_size: 128, feed_forward: 4096}
rows: [batch, sequence]
sequences: 32
layers:
- name: table
  kind: embedding
  kernels:
  - {name: lookup, type: lookup, vocabulary: 32000, cols: hidden}
  - {name: copy, type: elementwise, cols: hidden}
- name: block
  repeat: 12
  kernels:
  - {name: norm, type: rmsnorm, cols: hidden}
  - {name: qkv, type: gemm, inner: hidden, cols: [heads, 384]}
  - {name: attention, type: attention, batch: batch, rows: sequence, heads: heads, head_dim: head_size}
  - {name: projection, type: gemm, inner: [heads, head_size], cols: hidden, keeps: 0}
  - {name: attention add, type: add, cols: hidden, reads: [projection, input]}
  - {name: up, type: gemm, inner: hidden, cols: feed_forward}
  - {name: gelu, type: gelu, cols: feed_forward}
  - {name: down, type: gemm, inner: feed_forward, cols: hidden, keeps: 0}
  - {name: add, type: add, cols: hidden, reads: [down, attention add]}
- name: head
  kind: softmax
  kernels:
  - {name: logits, type: gemm, inner: hidden, cols: 32000}
  - {name: loss, type: rowwise, cols: 32000, flop: 4, moves: 1, backward_moves: 2}
"""


def of_parts(prediction):
    """Return what the stage that sets the pace takes for each part, and to update its weights; of a point."""
    graph, rows = prediction.graph, slice(*prediction.graph.offset[:2])
    own = prediction.bottleneck.launches[rows] * prediction.timing.time[rows]
    part = np.where(graph.phase == UPDATE, len(PARTS), graph.layer.part)[rows]
    return np.bincount(part, own, len(PARTS) + 1)


@pytest.mark.parametrize("schedule", ["1f1b", "gpipe"])
@pytest.mark.parametrize(
    "strategy", ["TP-1", "TP-2-d2", "TP-1-d4", "TP-1-d2-p2", "TP-2-p4", "RC-2-2-p2", "CR-2-d2"]
)
def test_layers_that_stand_for_several_are_those_written_out(tmp_path, monkeypatch, strategy, schedule):
    """In blocks, and kernel by kernel in the simulation, where sums of gradients share the network."""
    path = tmp_path / "tower.yaml"
    path.write_text(TOWER)
    whole = FAMILIES["graph"]

    def written_once(points):
        layers = whole.network(points).layers
        return connect([layer._replace(repeat=1, times=layer.repeat) for layer in layers])

    def predicted():
        _, run = _single_point(
            ("model=graph", f"model.file={path}", "chip=a100", "system=dgx_a100", "system.devices=8",
             f"parallel.strategy={strategy}", f"parallel.schedule={schedule}", "parallel.microbatches=8",
             "parallel.zero_stage=0", "parallel.sequence_parallel=false",
             "parallel.pipeline_partition=balanced",
             "parallel.overlap.bundles=0")
        )  # fmt: skip
        (found,) = predict_range(run.grid, 0, 1)
        return found.prediction

    expected = predicted()

    def order(inputs):
        points = inputs["model.name"].size
        return Order(14 * np.arange(points + 1), np.tile([0, *[1] * 12, 2], points))

    monkeypatch.setitem(FAMILIES._things, "graph", whole._replace(network=written_once, order=order))
    build_one.cache_clear()
    got = predicted()
    build_one.cache_clear()
    assert (expected.pipeline_blocks, got.reason.at(0)) == (None, None)
    assert got.graph.point.size < expected.graph.point.size / 6
    assert got.timeline.total[0] == pytest.approx(expected.timeline.total[0], rel=0.03)
    assert got.pipeline.busiest[0] == pytest.approx(expected.pipeline.busiest[0])
    spent = [of_parts(one) for one in (got, expected)]
    if got.bottleneck.stage[0] == expected.bottleneck.stage[0]:  # of stages that are as busy, any is named
        assert spent[0] == pytest.approx(spent[1])
    assert spent[0].sum() == pytest.approx(spent[1].sum(), rel=0.02)
    assert got.communication.total[0] == pytest.approx(expected.communication.total[0], rel=0.1)
    assert got.energy[0] == pytest.approx(expected.energy[0], rel=0.03)  # with that at rest, of the time
    for part in ("weights", "gradients", "optimizer"):
        assert getattr(got.footprint, part)[0] == pytest.approx(getattr(expected.footprint, part)[0])
    assert got.footprint.activations[0] == pytest.approx(expected.footprint.activations[0], rel=0.1)
