"""Collectives: algorithms against a message-by-message simulation, closed forms, and measurements (6.4)."""

import csv
from fractions import Fraction
from functools import partial
from math import ceil, inf, prod

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastflow.performance.partial_predictions import time_collectives
from fastflow.physics.network.collectives.algorithms import (
    ALGORITHMS,
    AUTO,
    DIRECT,
    DOUBLE_TREE,
    HALVING_DOUBLING,
    HIERARCHICAL,
    OF_PACKAGE,
    PER_DIMENSION,
    RING,
    Dimension,
    Patterns,
    phases,
    sent,
)
from fastflow.physics.network.collectives.cost import KINDS, NUM_ALGORITHMS, DeviceLinks, cheapest
from fastflow.physics.network.collectives.cost import price as write_prices
from fastflow.physics.network.collectives.decompose import recipe
from fastflow.physics.network.placement import axis_costs, neighbour_cost
from fastflow.physics.network.routes import SYSTEM
from fastflow.physics.network.routing.patterns import group_of
from fastflow.physics.network.routing.topology import topology
from fastflow.physics.workload.graph import (
    ALL_GATHER,
    ALL_REDUCE,
    ALL_TO_ALL,
    BROADCAST,
    COLLECTIVES,
    NO_EXCHANGE,
    POINT_TO_POINT,
    REDUCE_SCATTER,
)
from fastflow.schema import ALGORITHMS as NAMES
from tests.conftest import columns_of
from tests.naive import collectives as naive
from tests.support.checks import cases, near
from tests.support.measured import whole

SYMMETRIC = [(ALL_GATHER, "all-gather"), (REDUCE_SCATTER, "reduce-scatter"), (ALL_REDUCE, "all-reduce")]


def offers(network, n):
    """Return a function from collective and algorithm to phases, over patterns that the oracle costs."""
    cost = [naive.pattern(network, n, name) for name in ("neighbours", "shift", "fold", "trees", "all pairs")]
    exchanges = [naive.pattern(network, n, "exchange", step) for step in range(n.bit_length() - 1)]
    dimensions = []
    for kind, size, level in network:
        direct = kind == "full"
        alone = naive.pattern([(kind, size, level)], size, "all pairs" if direct else "neighbours")
        ports = sum(naive.ports(*other[:2]) for other in network if other[2] == level)
        load = [bytes_ * ports / naive.ports(kind, size) for bytes_ in alone[:2]]
        dimensions.append(Dimension(size, level, direct, (*load, *alone[2:])))
    outermost = max(level for _, _, level in network)
    ports = sum(naive.ports(*other[:2]) for other in network if other[2] == outermost)
    patterns = Patterns(*cost, exchanges, ports)
    return lambda collective, algorithm: phases(collective, algorithm, n, patterns, dimensions)


def total(found):
    """Return the summed columns of phases."""
    return [sum(column) for column in zip(*found, strict=True)]


def same(got, expected):
    return all(near(a, float(b), rel=1e-9) for a, b in zip(got, expected, strict=True))


def simulated(network, schedule):
    """Return the summed (load 0, load 1, hops 0, hops 1) of a schedule."""
    return [sum(column) for column in zip(*(naive.phase_cost(network, p) for p in schedule), strict=True)]


def one_port(network, n, name, cost):
    """Return what a schedule costs if a port sends one message at a time: direct ones go in rounds."""
    rounds = ceil((n - 1) / naive.ports(*network[0][:2])) if name == "direct" else 1
    return [*cost[:2], *(rounds * hops for hops in cost[2:])]


flat = st.sampled_from(["switch", "ring", "full", "line"])


@given(flat, st.integers(2, 9))
@cases(40)
def test_whole_group_algorithms_are_their_simulations(kind, n):
    network = [(kind, n, 1)]
    offer = offers(network, n)
    for algorithm, name in ((RING, "ring"), (DIRECT, "direct"), (HALVING_DOUBLING, "halving-doubling")):
        if name == "halving-doubling" and n & (n - 1):
            assert not any(offer(c, algorithm) for c in (ALL_GATHER, REDUCE_SCATTER, BROADCAST, ALL_TO_ALL))
            schedule, pieces = naive.folded(n)
            naive.check(n, "all-reduce", schedule, pieces)
            got, expected = total(offer(ALL_REDUCE, algorithm))[:4], simulated(network, schedule)
            assert same(got, expected)
            average = float(naive.sent_on_average(schedule, n))
            assert near(sent(ALL_REDUCE, algorithm, n), average)
            continue
        for collective, title in [*SYMMETRIC, (BROADCAST, "broadcast")]:
            schedule, pieces = naive.whole_group(n, name, title)
            naive.check(n, title, schedule, pieces)
            got, expected = total(offer(collective, algorithm))[:4], simulated(network, schedule)
            if collective == BROADCAST:  # not every edge of the pattern is in use: an upper bound
                assert all(a >= float(b) - 1e-12 for a, b in zip(got, expected, strict=True))
                assert kind == "line" or near(got[3], float(one_port(network, n, name, expected)[3]))
                if kind == "switch" and name != "ring":
                    assert near(got[1], float(expected[1]))
            else:
                assert same(got, one_port(network, n, name, expected))
            average = float(naive.sent_on_average(schedule, n))
            assert near(sent(collective, algorithm, n), average)


@given(flat, st.integers(2, 9))
@cases(40)
def test_all_to_all_is_its_simulation(kind, n):
    network = [(kind, n, 1)]
    offer = offers(network, n)
    for algorithm, name in ((DIRECT, "direct"), (HALVING_DOUBLING, "hypercube")):
        if name == "hypercube" and n & (n - 1):
            continue
        schedule = naive.exchanged(n, name)
        size = Fraction(1, n)
        held = [{(r, s, size): frozenset([r]) for s in range(n)} for r in range(n)]
        naive.run(schedule, held)
        for r in range(n):
            assert all(held[r][s, r, size] == {s} for s in range(n))
        got, expected = total(offer(ALL_TO_ALL, algorithm))[:4], simulated(network, schedule)
        assert same(got, one_port(network, n, name, expected))
        average = float(naive.sent_on_average(schedule, n))
        assert near(sent(ALL_TO_ALL, algorithm, n), average)


@given(flat, st.integers(2, 12), st.integers(1, 4))
@cases(30)
def test_double_tree_is_its_simulation(kind, n, pieces):
    """Pieces pass through both trees; their bytes are the recipe's, and the first arrives after its hops."""
    network = [(kind, n, 1)]
    offer = offers(network, n)
    schedule, names = naive.tree_schedule(n, pieces)
    held = [dict.fromkeys(names, frozenset([r])) for r in range(n)]
    naive.run(schedule, held)
    assert all(held[r][piece] == frozenset(range(n)) for r in range(n) for piece in names)
    steps = len(schedule[0][0])
    _, load, _, hops, _ = total(offer(ALL_REDUCE, DOUBLE_TREE))
    carried = float(naive.phase_cost(network, schedule[0])[1])
    assert near(load, carried)
    if kind in ("switch", "full"):
        assert steps == hops + pieces - 1
    average = float(naive.sent_on_average(schedule, n))
    assert near(sent(ALL_REDUCE, DOUBLE_TREE, n), average)


dimensions = st.lists(st.tuples(flat, st.integers(2, 4)), min_size=2, max_size=3).filter(
    lambda sides: prod(size for _, size in sides) <= 18
)


@given(dimensions, st.integers(0, 3))
@cases(25)
def test_algorithms_by_dimension_are_their_simulations(sides, inside):
    network = [(kind, size, int(j >= inside)) for j, (kind, size) in enumerate(sides)]
    n = prod(size for _, size in sides)
    offer = offers(network, n)
    everything = list(range(len(network)))
    levels = [everything[:inside], everything[inside:]]
    for algorithm, stages in ((PER_DIMENSION, [everything]), (HIERARCHICAL, levels)):
        if not all(stages):
            assert not any(offer(collective, algorithm) for collective in range(1, len(COLLECTIVES)))
            continue
        for collective, title in SYMMETRIC:
            schedule, pieces = naive.by_dimension(network, title, stages)
            naive.check(n, title, schedule, pieces)
            got, expected = total(offer(collective, algorithm))[:4], simulated(network, schedule)
            assert same(got, expected)
            average = float(naive.sent_on_average(schedule, n))
            assert near(sent(collective, algorithm, n), average)


@pytest.mark.parametrize("n", [2, 3, 8])
def test_memory_that_a_ring_touches(n):
    offer = offers([("switch", n, 1)], n)
    assert near(offer(ALL_REDUCE, RING)[0].touched, float(naive.ring_memory(n)))


def test_memory_that_four_ranks_touch():
    """Counted by hand, in quarters of S."""
    offer = offers([("switch", 2, 0), ("ring", 2, 1)], 4)
    quarters = {
        (REDUCE_SCATTER, RING): 1 + 2 + 2 + 3,  # read and sent; added twice and sent; added, written
        (ALL_GATHER, RING): 3,  # sent three times
        (ALL_REDUCE, RING): 8 + 2,  # the sum is sent as it is written
        (REDUCE_SCATTER, HALVING_DOUBLING): 2 * 4 + 1 * 4,  # sent; two operands, a sum
        (ALL_GATHER, HALVING_DOUBLING): 1 + 2,
        (ALL_REDUCE, HALVING_DOUBLING): 12 + 3,
        (ALL_TO_ALL, HALVING_DOUBLING): 2 + 2,
        (BROADCAST, HALVING_DOUBLING): 2 + 1 + 1 + 2,
        (REDUCE_SCATTER, DIRECT): 3 + 4 + 1,  # sent; all operands of one piece, its sum
        (ALL_GATHER, DIRECT): 1,  # read once, sent three times
        (ALL_REDUCE, DIRECT): 8,
        (ALL_TO_ALL, DIRECT): 3,
        (BROADCAST, DIRECT): 3 + 1,
        (POINT_TO_POINT, DIRECT): 4,
        (BROADCAST, RING): 4,
        (BROADCAST, DOUBLE_TREE): 4,
        (ALL_REDUCE, DOUBLE_TREE): 2 * 3 + 2 + 2,  # inside one tree: up, down; a leaf of the other
        # the first of two ranks: half sent, half added and written; then the same of that half
        (REDUCE_SCATTER, HIERARCHICAL): (2 + 4 + 2) + (1 + 2 + 1),
        (ALL_GATHER, HIERARCHICAL): 1 + 2,
        (ALL_REDUCE, PER_DIMENSION): 12 + 3,
    }
    for (collective, algorithm), expected in quarters.items():
        assert near(4 * total(offer(collective, algorithm))[4], expected), (collective, algorithm)


# --- closed forms, on the system's own networks

B0, B1, ALPHA0, ALPHA1, OVERHEAD = 900e9, 100e9, 20e-9, 5e-6, 3e-6


def price(*arguments):
    """Return latency [s] and time per byte [s/B] of a recipe's collectives."""
    latency, per_byte = np.empty((2, KINDS, NUM_ALGORITHMS))
    write_prices(*arguments, latency, per_byte)
    return latency, per_byte


def priced(devices, package=1, inside="switch", outside="switch", shape="2d", group=None, memory=inf, **tree):
    """Return latency [s] and time per byte [s/B] of all collectives among all devices."""
    network = topology(
        devices, package, inside, "2d", outside, shape, tree.get("leaf", 1), tree.get("taper", 1.0)
    )
    made = recipe(network, devices, group_of(group or [(devices, 1)]))
    return price(
        made.offered, made.offset, made.phases, DeviceLinks(B0, B1, ALPHA0, ALPHA1, memory, OVERHEAD)
    )


@pytest.mark.parametrize("n", [2, 3, 4, 7, 8, 64])
def test_a_switch(n):
    latency, per_byte = priced(n)
    least = (n - 1) / n / B1
    for algorithm in (RING, DIRECT) if n & (n - 1) else (RING, DIRECT, HALVING_DOUBLING):
        assert near(per_byte[ALL_REDUCE, algorithm], 2 * least)
        assert near(per_byte[ALL_GATHER, algorithm], least)
        assert near(per_byte[REDUCE_SCATTER, algorithm], least)
    assert near(latency[ALL_REDUCE, RING], OVERHEAD + 2 * (n - 1) * ALPHA1)
    assert near(latency[ALL_REDUCE, DIRECT], OVERHEAD + 2 * (n - 1) * ALPHA1)
    assert near(latency[ALL_REDUCE, DOUBLE_TREE], OVERHEAD + 2 * (n.bit_length() - 1) * ALPHA1)
    assert near(per_byte[ALL_TO_ALL, DIRECT], least)
    assert near(per_byte[POINT_TO_POINT, DIRECT], 1 / B1)
    # two trees: 2 S / B whatever the ranks, once a rank is inside one tree and a leaf of the other
    assert n < 4 or near(per_byte[ALL_REDUCE, DOUBLE_TREE], 2 / B1)
    if n & (n - 1) == 0:
        assert near(latency[ALL_REDUCE, HALVING_DOUBLING], OVERHEAD + 2 * (n.bit_length() - 1) * ALPHA1)


@pytest.mark.parametrize("n", [3, 4, 8])
def test_one_dimension(n):
    """A ring uses both ports of a ring network; on a line its ends meet over all links, at half the rate."""
    least = 2 * (n - 1) / n / B1
    _, on_ring = priced(n, outside="ring")
    _, on_line = priced(n, outside="mesh", shape="1d")
    latency, on_full = priced(n, outside="fully_connected")
    assert near(on_ring[ALL_REDUCE, RING], least)
    assert near(on_line[ALL_REDUCE, RING], 2 * least)
    assert near(on_full[ALL_REDUCE, DIRECT], least)
    assert near(latency[ALL_REDUCE, DIRECT], OVERHEAD + 2 * ALPHA1)


def test_halving_doubling_on_a_ring():
    """Of eight: one message of S/2 a link, two of S/4, four of S/8 (all go upwards), on half the ports."""
    _, per_byte = priced(8, outside="ring")
    assert near(per_byte[REDUCE_SCATTER, HALVING_DOUBLING], 2 * (1 / 2 + 2 / 4 + 4 / 8) / B1)


@pytest.mark.parametrize("side", [3, 4, 8])
def test_square_networks_per_dimension(side):
    """All dimensions work at once: a torus reaches the injection bound, a mesh half of it."""
    n = side * side
    least = 2 * (n - 1) / n / B1
    _, torus = priced(n, outside="torus")
    _, mesh = priced(n, outside="mesh")
    assert near(torus[ALL_REDUCE, PER_DIMENSION], least)
    assert near(mesh[ALL_REDUCE, PER_DIMENSION], 2 * least)


@pytest.mark.parametrize("n", [5, 9])
def test_all_to_all_meets_the_bisection(n):
    """On an odd ring (n^2 - 1) / 8 pairs cross each directed link, S/n each, at half a device's bandwidth."""
    _, ring = priced(n, outside="ring")
    assert near(ring[ALL_TO_ALL, DIRECT], (n * n - 1) / 8 / n * 2 / B1)
    _, torus = priced(n * n, outside="torus")  # per dimension n times as many pairs, on a quarter
    assert near(torus[ALL_TO_ALL, DIRECT], n * (n * n - 1) / 8 / (n * n) * 4 / B1)
    _, even = priced(8, outside="ring")
    assert even[ALL_TO_ALL, DIRECT] >= 8 / 8 * 2 / B1 * (1 - 1e-12)  # at least n^2 / 8 pairs


def test_hierarchical():
    p, q = 4, 8
    latency, per_byte = priced(p * q, package=p, inside="fully_connected")
    inside, across = 2 * (p - 1) / p / B0, 2 * (q - 1) / q / p / B1
    assert near(per_byte[ALL_REDUCE, HIERARCHICAL], inside + across)
    assert near(latency[ALL_REDUCE, HIERARCHICAL], OVERHEAD + 2 * ALPHA0 + 2 * (q - 1) * ALPHA1)
    _, alone = priced(p * q)
    assert per_byte[ALL_REDUCE, HIERARCHICAL] < alone[ALL_REDUCE].min()
    assert per_byte[ALL_GATHER, HIERARCHICAL] * 2 == pytest.approx(per_byte[ALL_REDUCE, HIERARCHICAL])


def test_a_tapered_tree_is_slower_across_leaves():
    _, full = priced(16, outside="fat_tree", leaf=4, taper=1.0)
    _, tapered = priced(16, outside="fat_tree", leaf=4, taper=4.0)
    # direct: 4 x 12 pairs leave a leaf over the links of 4 / 4 devices, three times what a device sends
    assert near(full[ALL_REDUCE, DIRECT], 2 * 15 / 16 / B1)
    assert near(tapered[ALL_REDUCE, DIRECT], 2 * 48 / 16 / B1)
    # a ring leaves a leaf once: half of S each way at both its ends, on one device's bandwidth
    assert near(tapered[ALL_REDUCE, RING], full[ALL_REDUCE, RING])


def test_on_a_switch_it_does_not_matter_where_ranks_sit():
    """Which is why a group on a large switch is priced as one on a switch of its own."""
    large, small = (topology(devices, 1, "switch", "1d", "switch", "1d", 1, 1.0) for devices in (64, 8))
    own = recipe(small, 8, group_of([(8, 1)]))
    for group in map(group_of, ([(8, 8)], [(8, 1)], [(2, 1), (4, 16)], [(2, 1), (2, 4), (2, 16)])):
        for ours, theirs in zip(recipe(large, 64, group), own, strict=True):
            assert np.array_equal(ours, theirs), group
    load, hops = axis_costs([2, 4, 8, 1], [(0, 1, 2, 3), (3, 2, 1, 0)], partial(neighbour_cost, large, 64))
    assert np.array_equal(load, hops)
    assert (load[:, :3, 1] == 1.0).all()
    assert not load[:, 3].any()
    assert not load[..., 0].any()


def test_strided_groups_share_the_links():
    """Four rings of two on a line of eight, four apart, load its middle as four times one message."""
    _, near_by = priced(8, outside="mesh", shape="1d", group=[(2, 1)])
    _, far = priced(8, outside="mesh", shape="1d", group=[(2, 4)])
    assert near(far[ALL_REDUCE, RING], 4 * near_by[ALL_REDUCE, RING])


def test_memory_comes_on_top():
    _, free = priced(8)
    latency, slow = priced(8, memory=1e12)
    assert near(slow[ALL_REDUCE, RING] - free[ALL_REDUCE, RING], (3 * 8 - 2) / 8 / 1e12, rel=1e-6)
    assert slow[NO_EXCHANGE].max() == latency[NO_EXCHANGE].max() == 0.0


def test_one_rank_costs_nothing():
    latency, per_byte = priced(8, group=[(1, 1)])
    assert not latency.any()
    assert not per_byte.any()


@given(st.integers(2, 40), st.floats(0.0, 1e9), st.integers(AUTO, len(ALGORITHMS) - 1))
@cases(60)
def test_cheapest_is_the_lowest_line(n, size, wanted):
    latency, per_byte = priced(n)
    for collective in range(1, len(COLLECTIVES)):
        time, which = cheapest(latency[None], per_byte[None], 0, collective, size, wanted)
        offered = latency[collective] < inf
        lines = np.where(
            offered, latency[collective] + size * np.where(offered, per_byte[collective], 0.0), inf
        )
        assert time == lines[which] < inf
        if wanted != AUTO and lines[wanted] < inf:
            assert which == wanted
        else:
            assert time == lines.min()


def test_auto_changes_with_the_message():
    latency, per_byte = priced(63)
    small, _ = cheapest(latency[None], per_byte[None], 0, ALL_REDUCE, 8.0, AUTO)
    names = [
        ALGORITHMS[cheapest(latency[None], per_byte[None], 0, ALL_REDUCE, size, AUTO)[1]]
        for size in (8.0, 1e12)
    ]
    assert names[0] != names[1] == "ring"
    assert small == latency[ALL_REDUCE].min() + 8.0 * per_byte[ALL_REDUCE, ALGORITHMS.index(names[0])]


# --- measurements


def all_reduce_errors(point, wanted):
    """Return the relative errors of all-reduces on an NVSwitch machine, one for each measurement."""
    with whole("allreduce_a100").open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    bandwidth = point["chip.pinned.intra_Bps"] * 16 / 18  # flits of a packet that are payload
    memory = point["chip.pinned.dram_Bps"] * point["chip.dram_utilization"]
    machine, errors = topology(8, 1, "switch", "1d", "switch", "1d", 1, 1.0), []
    for ranks in range(2, 9):
        made = recipe(machine, ranks, group_of([(ranks, 1)]))
        links = DeviceLinks(
            intra=inf,
            inter=bandwidth,
            intra_latency=0.0,
            inter_latency=point["net.intra.latency"],
            memory=memory,
            overhead=8.4e-6,  # the base latency of a ring
        )
        latency, per_byte = price(made.offered, made.offset, made.phases, links)
        for row in rows:
            if int(row["ranks"]) == ranks:
                time, _ = cheapest(latency[None], per_byte[None], 0, ALL_REDUCE, float(row["bytes"]), wanted)
                errors.append(abs(time / float(row["time_s"]) - 1.0))
    assert len(errors) == len(rows) > 0
    return errors


def test_all_reduces_of_eight_a100(compose):
    """The paper's algorithms, with NCCL's own table of latencies: rings are near, and the fastest too."""
    point = compose("system=dgx_a100")
    assert point["chip.pinned.intra_Bps"] == pytest.approx(
        point["net.intra.maximum_links"] * point["net.intra.nominal_frequency"] / 8
    )
    assert np.mean(all_reduce_errors(point, RING)) < 0.08
    assert np.mean(all_reduce_errors(point, AUTO)) < 0.10


SYSTEMS = {
    "switch": ("system=cluster", "system.devices=8"),
    "torus": ("system=torus", "system.shape=4x4", "system.devices=16"),
    "packages": ("system=mcm", "system.devices=16"),
    "fat tree": ("system=fat_tree", "system.leaf_radix=4", "system.oversubscription=3", "system.devices=16"),
}


@pytest.mark.parametrize("system", SYSTEMS)
@pytest.mark.parametrize("collective", ["all-gather", "reduce-scatter", "all-reduce", "all-to-all"])
def test_the_algorithm_that_is_named_is_taken_and_auto_is_the_fastest(compose, system, collective):
    """By the names of the key, from messages of a byte to gigabytes; one that is not offered is no choice."""
    point = compose(*SYSTEMS[system])
    devices = point["system.devices"]
    number, size = COLLECTIVES.index(collective), 2.0 ** np.arange(0, 33, 2)
    ranks = np.full(size.size, devices)
    found = {
        name: time_collectives(columns_of([point | {"system.collective": name}]), number, size, ranks)
        for name in NAMES
    }
    network = topology(*(point[key] for key in SYSTEM))
    offered = recipe(network, devices, group_of([(devices, 1)])).offered[number, :OF_PACKAGE]
    assert ["auto", *ALGORITHMS] == list(NAMES)
    best = np.min([found[name] for name, there in zip(ALGORITHMS, offered, strict=True) if there], axis=0)
    assert (found["auto"] == best).all()
    for name, there in zip(ALGORITHMS, offered, strict=True):
        assert there or (found[name] == best).all()
    if collective == "all-reduce":  # which one is fastest depends on the size, and so are others told apart
        told = {tuple(found[name]) for name, there in zip(ALGORITHMS, offered, strict=True) if there}
        assert len(told) == offered.sum() > 2
