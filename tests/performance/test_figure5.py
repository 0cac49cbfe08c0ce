"""The paper's worked example (Figure 5): a 3-layer feed-forward network, p2, d3 and RC-4-2, on a 2-D torus.

48 devices on a 4 x 12 torus, 24 a pipeline stage. Every figure here is counted by hand.
"""

from itertools import pairwise

import numpy as np
import pytest

from fastflow.performance import results
from fastflow.physics.workload.graph import COLLECTIVES
from fastflow.reporting.trace import trace_point
from tests.naive import collectives
from tests.support.checks import near
from tests.support.networks import three_products

KP1, KP2, DP, LP, FP16 = 4, 2, 3, 2, 2
ROWS, SIZES = 12 * 1024, (512, 1024, 2048, 4096)
LOCAL = 1024  # rows of a device: 12 shards of them
STATISTICS = 4  # of a row, its maximum and sum in fp32, as columns of fp16


@pytest.fixture(scope="module")
def prediction(tmp_path_factory, compose, predict):
    file = tmp_path_factory.mktemp("figure5") / "network.yaml"
    file.write_text(three_products(ROWS, SIZES), encoding="utf-8")
    point = compose(
        "model=graph", f"model.file={file}", "parallel.strategy=RC-4-2-d3-p2", "parallel.microbatches=1",
        "system=torus", "system.devices=48", "system.shape=4x12", "placement=kp1-kp2-pp-dp",
        "system.collective=ring",
    )  # fmt: skip
    return predict([point])


@pytest.fixture(scope="module")
def got(prediction):
    return {name: column[0] for name, column in results.summary(prediction).items()}


@pytest.fixture(scope="module")
def kernels(prediction):
    """The row of every kernel by its name."""
    graph = prediction.graph
    return {str(name): row for row, name in enumerate(graph.names[graph.label])}


def test_neighbours(prediction, got):
    """KP1 fills a row of 4; KP2 the row above it; then come stages, 2 rows apart, then replicas, 4 apart.

    A device has 4 ports, so that a link has a quarter of its bandwidth. Of a ring's edges, half of a message
    goes either way: one such edge on a link along KP1; both of a pair's along KP2; 4 replicas' rings
    interleave along DP. Of LP's whole messages 2 share a link.
    """
    assert got["placement"] == "kp1-kp2-pp-dp"
    assert got["devices"] == 48
    link = got["inter_Bps"] * prediction.inputs["net.inter.utilization"][0] / 4
    for name, hops, edges in (("kp1", 1, 0.5), ("kp2", 1, 2 * 0.5), ("pp", 2, 2), ("dp", 4, 4 * 0.5)):
        assert got[f"{name}_hops"] == hops
        assert near(got[f"{name}_Bps"], link / edges), name


def test_cross_edges(prediction, kernels):
    """Which collective, among how many, over which tensor of a device [columns of its rows, or weights]."""
    low, middle, high = SIZES[1:]
    waited = {
        "low": ("all-gather", KP2, LOCAL * low),
        "middle": ("all-gather", KP2, LOCAL * middle),
        "loss": ("all-reduce", KP2, LOCAL * STATISTICS),
        "high input gradient": ("reduce-scatter", KP2, LOCAL * middle),
        "middle input gradient": ("reduce-scatter", KP2, LOCAL * low),
        "low gradient norm": ("all-reduce", KP2, STATISTICS),
        "middle gradient norm": ("all-reduce", KP2, STATISTICS),
        "high gradient norm": ("all-reduce", KP2, STATISTICS),
    }
    summed = {
        "low weight gradient": ("all-reduce", DP * KP1, SIZES[0] * low // KP2),
        "middle weight gradient": ("all-reduce", DP * KP1, low * middle // KP2),
        "high weight gradient": ("all-reduce", DP * KP1, middle * high // KP2),
    }
    sent = {  # the only border between the stages is that above the middle layer
        "middle": ("point-to-point", LP, LOCAL * middle // KP2),
        "high input gradient": ("point-to-point", LP, LOCAL * middle // KP2),
    }
    shards = prediction.shards
    for edges, expected in ((shards.sync, waited), (shards.gradient, summed), (shards.send, sent)):
        for name, row in kernels.items():
            collective = COLLECTIVES[edges.collective[row]]
            if edges is shards.send and not prediction.pipeline.crosses[row]:
                collective = ""
            assert (name in expected) == (collective != ""), name
            if collective:
                whole = edges.bytes[row] / FP16
                assert (collective, edges.ranks[row], whole) == expected[name], name
    assert not shards.relayout.collective.any()


def test_times_of_cross_edges(prediction, got, kernels):
    """Bytes over the effective bandwidth, hops, and what is read and written in memory; ring algorithms."""
    given = prediction.inputs
    hop = given["net.inter.latency"][0]
    memory = got["dram_Bps"] * given["chip.dram_utilization"][0]
    took = prediction.communication.exchanges
    size = LOCAL * SIZES[2] * FP16
    gathered = hop + size / 2 / got["kp2_Bps"] + size / 2 / memory  # half comes from the other, half is read
    assert near(took.sync_s[kernels["middle"]], gathered, 1e-12)
    sent = 2 * hop + size / 2 / got["pp_Bps"] + size / 2 / memory
    for name in ("middle", "high input gradient"):
        assert near(took.send_s[kernels[name]], sent, 1e-12)


def test_time_of_a_gradient_sum(prediction, got, kernels):
    """A ring of 12 over KP1 and DP: 3 rows of 4, and from the end of one to the beginning of the next.

    That is 1 hop on the row's own ring and 4 rows up, where the rings of all 4 groups (stages and column
    shards) and their 3 replicas' rows lie over each other: 12 paths of 4 links on a column of 12.
    """
    given = prediction.inputs
    ranks, hops, edges = KP1 * DP, 1 + 4, 12 * 4 / 12 * 0.5
    link = got["inter_Bps"] * given["net.inter.utilization"][0] / 4
    memory = got["dram_Bps"] * given["chip.dram_utilization"][0]
    size = SIZES[1] * SIZES[2] // KP2 * FP16
    steps = 2 * (ranks - 1)
    expected = steps * (hops * given["net.inter.latency"][0] + size / ranks / (link / edges))
    expected += size * float(collectives.ring_memory(ranks)) / memory
    assert near(
        prediction.communication.exchanges.gradient_s[kernels["middle weight gradient"]], expected, 1e-12
    )


def test_stages(prediction, got, kernels):
    """The high layer has eight times the low one's operations, so it has a stage of its own."""
    stage = {name: int(prediction.pipeline.stage[row]) for name, row in kernels.items()}
    assert all(number == (1 if name.startswith(("high", "loss")) else 0) for name, number in stage.items())
    kernel_s = prediction.timing.time
    mine = [sum(kernel_s[kernels[name]] for name in stage if stage[name] == number) for number in (0, 1)]
    assert mine[1] > mine[0]
    assert near(got["compute_s"], mine[1], 1e-12)
    rows, inner, cols = (
        prediction.shards.kernels.m,
        prediction.shards.kernels.k,
        prediction.shards.kernels.n,
    )
    for name, (k, n) in {"low": SIZES[:2], "middle": SIZES[1:3], "high": SIZES[2:]}.items():
        row = kernels[name]
        assert (rows[row], inner[row], cols[row]) == (LOCAL, k, n // KP2)


def test_timeline_of_the_backward_pass(prediction, got):
    events = [event for event in trace_point(prediction, 0) if event["ph"] == "X"]

    def when(name, stage, category="compute"):
        (event,) = [
            event
            for event in events
            if (event["name"], event["pid"], event["cat"]) == (name, stage + 1, category)
        ]
        return np.array([event["ts"], event["ts"] + event["dur"]])

    def sent(name, stage):
        return when(name, stage, "communication")

    grain = 0.01  # times are written in microseconds, with whole nanoseconds
    # the second stage goes first; what it sends starts the first stage, its own weight gradient does not
    order = [
        when("loss gradient", 1),
        when("high input gradient", 1),
        sent("reduce-scatter: high input gradient", 1),
        sent("point-to-point: high input gradient", 1),
        when("middle input gradient", 0),
        sent("reduce-scatter: middle input gradient", 0),
    ]
    for before, after in pairwise(order):
        assert abs(before[1] - after[0]) < grain
    assert near(order[0][0] / 1e6, got["forward_s"], 1e-4)
    high = when("high weight gradient", 1)
    assert abs(high[0] - order[1][1]) < grain  # beside the reduce-scatter, which it does not need
    middle, low = when("middle weight gradient", 0), when("low weight gradient", 0)
    assert abs(low[0] - max(middle[1], order[5][1])) < grain
    sums = {name: sent(f"all-reduce: {name} weight gradient", stage) for name, stage in
            (("low", 0), ("middle", 0), ("high", 1))}  # fmt: skip
    # sums of gradients overlap with what is left of the backward pass, and wait for the port behind sends
    assert abs(sums["high"][0] - order[3][1]) < grain
    assert sums["high"][0] < middle[0] < sums["high"][1]
    assert abs(sums["middle"][0] - max(middle[1], order[5][1])) < grain
    assert sums["middle"][0] <= low[0] + grain < sums["middle"][1]
    assert abs(sums["low"][0] - max(low[1], sums["middle"][1])) < grain
    # the update waits for all of them
    last = max(end for _, end in sums.values())
    first_norm = when("low gradient norm", 0)[0]
    assert abs(first_norm - last) < grain
    assert near((got["forward_s"] + got["backward_s"]) * 1e6, last, 1e-4)
    assert near(got["time_s"] * 1e6, max(event["ts"] + event["dur"] for event in events), 1e-4)
