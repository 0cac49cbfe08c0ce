"""Topologies, routing and placement against a walk hop by hop, hand counts and closed forms (5.2, 6.4)."""

from collections import defaultdict
from functools import partial
from itertools import combinations, pairwise
from math import prod

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fastflow.core.errors import InputError
from fastflow.physics.network import placement
from fastflow.physics.network.collectives.algorithms import DIRECT, NUM_ALGORITHMS
from fastflow.physics.network.collectives.decompose import canonical_group, recipe
from fastflow.physics.network.link_loads import link_loads
from fastflow.physics.network.placement import (
    axis_costs,
    neighbour_cost,
    order_name,
    orders,
    read_order,
    strides,
)
from fastflow.physics.network.routing import patterns
from fastflow.physics.network.routing.contention import reach, split
from fastflow.physics.network.routing.patterns import Edges, Group, group_of, logical_edges, pairs
from fastflow.physics.network.routing.topology import FULL, LINE, RING, SWITCH, TREE, Topology, topology
from fastflow.physics.parallelism.mesh import AXES
from fastflow.physics.parallelism.strategy import Strategy
from fastflow.physics.workload.graph import POINT_TO_POINT
from tests.naive import network as naive
from tests.support.checks import cases, near

KINDS = {"line": LINE, "ring": RING, "full": FULL, "switch": SWITCH, "tree": TREE}
PATTERNS = ("neighbours", "forward", "backward", "exchange", "fold", "trees", "all_pairs")
CODES = {name: getattr(patterns, name.upper()) for name in PATTERNS}


def make(system):
    """Return the Topology of a naive system."""
    whole, real = np.int64, np.float64
    total = [sum(naive.ports(d) for d in system if d["level"] == level) for level in (0, 1)]
    return Topology(
        np.array([KINDS[d["kind"]] for d in system], whole),
        np.array([d["size"] for d in system], whole),
        np.array([d["level"] for d in system], whole),
        np.array([total[d["level"]] for d in system], real),
        np.array([d["leaf"] for d in system], whole),
        np.array([d["taper"] for d in system], real),
    )


def system_of(*dimensions):
    """Return a naive system of (kind, size, level) or, for a tree, (kind, size, level, leaf, taper)."""
    names = ("kind", "size", "level", "leaf", "taper")
    return [dict(zip(names, (*d, 0, 1.0)[:5], strict=True)) for d in dimensions]


def as_dictionaries(network):
    kinds = {code: name for name, code in KINDS.items()}
    return [
        {"kind": kinds[kind], "size": size, "level": level, "leaf": leaf, "taper": taper}
        for kind, size, level, _, leaf, taper in zip(*network[:6], strict=True)
    ]


def torus(*sides):
    return system_of(*(("ring", side, 1) for side in sides))


def mesh(*sides):
    return system_of(*(("line", side, 1) for side in sides))


def reached(system, devices, group, pattern, step=0):
    return reach(make(system), devices, *group_of(group).arrays(), CODES[pattern], step)


@st.composite
def systems(draw, most=40):
    """Systems of both levels and all kinds, of at most `most` devices."""
    system, devices = [], 1
    inside = draw(st.integers(0, 2))
    for j in range(draw(st.integers(1, 4))):
        size = draw(st.integers(2, 7))
        if devices * size > most:
            break
        kind = draw(st.sampled_from(sorted(KINDS)))
        leaf = draw(st.sampled_from([n for n in range(1, size + 1) if size % n == 0]))
        taper = draw(st.sampled_from((1.0, 2.0, 3.0)))
        tree = (leaf, taper) if kind == "tree" else (0, 1.0)
        system += system_of((kind, size, int(j >= inside), *tree))
        devices *= size
    return system or system_of(("ring", 5, 1))


def divisors(number):
    return [n for n in range(1, number + 1) if number % n == 0]


@st.composite
def groups(draw, system):
    """Mixed-radix groups on a system: (devices in use, (degree, stride) of every row)."""
    whole = prod(d["size"] for d in system)
    devices = draw(st.sampled_from([whole, whole, draw(st.integers(1, whole))]))
    degrees, left = [], devices
    for _ in range(6):
        degrees.append(draw(st.sampled_from(divisors(left))))
        left //= degrees[-1]
    apart = np.cumprod([1, *degrees[:-1]]).tolist()
    among = draw(st.lists(st.sampled_from(range(6)), min_size=1, max_size=4, unique=True).map(sorted))
    return devices, [(degrees[axis], apart[axis]) for axis in among]


@st.composite
def scenes(draw):
    system = draw(systems())
    devices, group = draw(groups(system))
    pattern = draw(st.sampled_from(PATTERNS))
    rounds = len(naive.members(group)).bit_length() - 1
    step = draw(st.integers(0, rounds - 1)) if pattern == "exchange" and rounds > 0 else 0
    return system, devices, group, pattern, step


def check_reach(system, devices, group, pattern, step=0):
    expected = naive.loads(system, naive.edges(devices, group, pattern, step))
    got = reached(system, devices, group, pattern, step)
    assert all(near(*pair) for pair in zip(got, expected, strict=True)), (got, expected)


@given(scenes())
@example((torus(4, 3), 12, [(4, 3)], "neighbours", 0))  # wraps round from dimension to dimension
@example((torus(5, 5), 25, [(25, 1)], "trees", 0))
@example((system_of(("switch", 4, 0), ("ring", 6, 1)), 24, [(12, 2)], "all_pairs", 0))
@example((system_of(("tree", 12, 1, 4, 2.0)), 12, [(3, 2)], "all_pairs", 0))
@example((system_of(("ring", 3, 1), ("switch", 8, 1)), 24, [(4, 6)], "trees", 0))
@example((system_of(("switch", 2, 1), ("ring", 7, 1), ("switch", 4, 1)), 18, [(2, 3)], "backward", 0))
@example((torus(4, 8), 32, [(2, 1), (2, 4), (2, 16)], "trees", 0))  # three rows, none next to another
@example((torus(4, 8), 32, [(2, 1), (2, 4), (2, 16)], "all_pairs", 0))
@example((torus(3, 8), 24, [(3, 1), (2, 3), (2, 12)], "exchange", 1))
@example((torus(7), 6, [(3, 2)], "all_pairs", 0))  # 0, 2, 4 and 6 empty: 4 is nearer to 0 upwards
@cases(180)
def test_reach(scene):
    check_reach(*scene)


@given(st.data())
@cases(60)
def test_all_pairs_are_counted_right(data):
    """Aligned groups are counted by factors, others pair by pair."""
    system = data.draw(systems())
    devices, group = data.draw(groups(system))
    check_reach(system, devices, group, "all_pairs")


@given(st.data())
@cases(180)
def test_groups_that_are_alike_cost_the_same(data):
    """Renumbered on its switches and full meshes, a group costs what the oracle counts for the original."""
    system = data.draw(systems())
    if data.draw(st.booleans()):
        system = [d | {"kind": "switch", "leaf": 0, "taper": 1.0} for d in system]
    devices, group = data.draw(groups(system))
    same = canonical_group(make(system), devices, group_of(group))
    assert same.ranks == group_of(group).ranks
    for pattern in PATTERNS:
        steps = range(same.ranks.bit_length() - 1) if pattern == "exchange" else [0]
        for step in steps:
            expected = naive.loads(system, naive.edges(devices, group, pattern, step))
            got = reached(system, devices, list(zip(*same, strict=True)), pattern, step)
            assert all(near(*pair) for pair in zip(got, expected, strict=True)), (got, expected)


def test_what_matters_on_switches_is_how_many_ranks_a_machine_has():
    network = make(system_of(("switch", 8, 0), ("switch", 16, 1)))

    def of(*rows):
        return canonical_group(network, 128, group_of(rows))

    assert of((2, 4), (8, 16)) == of((2, 1), (8, 8)) == of((2, 2), (4, 8), (2, 64)) == Group((2, 8), (1, 8))
    assert of((16, 4)) == Group((2, 8), (1, 8))  # wraps round into the next dimension
    assert of((4, 16), (2, 1)) == Group((2, 4), (1, 8))
    ring = make(system_of(("switch", 8, 0), ("ring", 16, 1)))
    assert canonical_group(ring, 128, group_of([(4, 2), (4, 16)])) == Group((4, 4), (2, 16))
    assert canonical_group(ring, 128, group_of([(4, 2)])) == Group((4,), (1,))


@given(st.data())
@cases(60)
def test_split(data):
    """A group with factors is their product; and as a group, a factor stays in its dimension."""
    system = data.draw(systems())
    devices, group = data.draw(groups(system))
    factors, aligned = split(make(system).size, devices, *group_of(group).arrays())
    members = set(naive.members(group))
    if not aligned:
        assert len(factors) == 0
        assert prod(len(set(axis)) for axis in along(system, members)) != len(members) or any(
            not equidistant(system, devices, members, base) for base in bases(members, devices)
        )
        return
    assert factors[:, 1].prod() == len(members)
    assert (np.diff(factors[:, 0]) > 0).all()
    product = {0}
    for dimension, degree, stride in factors.tolist():
        product = {device + r * stride for device in product for r in range(degree)}
        inner = prod(d["size"] for d in system[:dimension])
        for base in bases({r * stride for r in range(degree)}, devices):
            for r in range(degree):
                here, there = (naive.coordinates(system, d) for d in (base, base + r * stride))
                assert there[dimension] - here[dimension] == r * stride // inner
                assert [a for j, a in enumerate(here) if j != dimension] == [
                    a for j, a in enumerate(there) if j != dimension
                ]
    assert product == members


def along(system, members):
    return zip(*(naive.coordinates(system, device) for device in members), strict=True)


def bases(members, devices):
    """First devices of all groups that look like `members`, found by filling up."""
    taken, found = set(), []
    for device in range(devices):
        if device not in taken:
            found.append(device)
            taken |= {device + member for member in members}
    return found


def equidistant(system, devices, members, base):
    """Whether a group is a product of equidistant coordinates."""
    axes = [sorted(set(axis)) for axis in along(system, {base + member for member in members})]
    return prod(map(len, axes)) == len(members) and all(len(set(np.diff(axis))) <= 1 for axis in axes)


@given(scenes())
@cases(60)
def test_links(scene):
    """Every link by itself, and the busiest of them is what `reach` says."""
    system, devices, group, pattern, step = scene
    edges = naive.edges(devices, group, pattern, step)
    source, target = (np.array([edge[end] for edge in edges], np.int64) for end in (0, 1))
    table = link_loads(make(system), Edges(source, target, np.array([edge[2] for edge in edges], np.float64)))
    carried, _ = naive.walk(system, edges)
    expected = defaultdict(float)
    for (j, *ends), weight in carried.items():
        expected[(j, *(name_of(system, j, end) for end in ends))] += weight
    rows = zip(table.dimension.tolist(), table.source.tolist(), table.target.tolist(), strict=True)
    got = dict(zip(rows, table.messages.tolist(), strict=True))
    assert len(got) == table.load.size
    assert {link: weight for link, weight in got.items() if weight} == expected
    most = naive.loads(system, edges)
    for level in (0, 1):
        loads = [
            load for j, load in zip(table.dimension, table.load, strict=True) if system[j]["level"] == level
        ]
        assert near(max(loads, default=0.0), most[level])


@given(st.data())
@cases(36)
def test_what_one_stage_sends_to_the_next_is_the_worse_way(data):
    """Activations forwards, their gradients backwards."""
    system = data.draw(systems())
    devices, group = data.draw(groups(system))
    made = recipe(make(system), devices, group_of(group))
    row = POINT_TO_POINT * NUM_ALGORITHMS + DIRECT
    found = made.phases[made.offset[row] : made.offset[row + 1]].tolist()
    ways = [naive.loads(system, naive.edges(devices, group, way)) for way in ("forward", "backward")]
    assert found == ([[*map(max, *ways), 1.0]] if len(naive.members(group)) > 1 else [])


@given(systems(24))
@cases(30)
def test_every_link_is_there_once_whether_it_carries_anything_or_not(system):
    """Those that messages of everyone to everyone else take: figures draw all of them."""
    devices, nothing = prod(d["size"] for d in system), np.zeros(0, np.int64)
    table = link_loads(make(system), Edges(nothing, nothing, np.zeros(0)))
    carried, _ = naive.walk(system, naive.edges(devices, [(devices, 1)], "all_pairs"))
    expected = [(j, *(name_of(system, j, end) for end in ends)) for j, *ends in carried]
    # a tree of one leaf switch has a spine that nobody needs
    top = {j for j, d in enumerate(system) if d["kind"] == "tree" and d["leaf"] == d["size"]}
    rows = zip(table.dimension.tolist(), table.source.tolist(), table.target.tolist(), strict=True)
    got = [(j, *ends) for j, *ends in rows if j not in top or min(ends) >= -devices]
    assert sorted(got) == sorted(expected)
    assert not table.messages.any()
    assert not table.load.any()


def name_of(system, j, end):
    """Return the number that `LinkLoads` has for an end of a naive link in dimension j."""
    if "spine" in end:
        first = (*end[:j], 0, *end[j + 1 : -1])
        return -1 - prod(d["size"] for d in system) - naive.number(system, first)
    if "switch" in end:
        leaf = system[j]["leaf"] if system[j]["kind"] == "tree" else system[j]["size"]
        return -1 - naive.number(system, (*end[:j], end[-1] * leaf, *end[j + 1 : -1]))
    return naive.number(system, end)


@given(st.integers(2, 70))
@cases(24)
def test_double_binary_tree(ranks):
    """Both trees span all ranks, and nobody is an inner node of both (Sanders, Speck and Traeff 2009)."""
    sender, receiver = pairs(patterns.TREES, 0, ranks)
    got = sorted(zip(sender.tolist(), receiver.tolist(), strict=True))
    first, second = naive.two_trees(ranks)
    assert got == sorted(edge for a, b in first + second for edge in ((a, b), (b, a)))
    for tree in (first, second):
        assert len({child for _, child in tree}) == ranks - 1 == len(tree)
    assert not {parent for parent, _ in first} & {parent for parent, _ in second}
    busiest = np.bincount(sender).max()
    assert busiest <= 4  # two children, a parent, and a parent in the other tree
    assert patterns.tree_parents(ranks).min() == -1


@given(st.integers(2, 40), st.sampled_from([[], [3], [2, 3]]), st.sampled_from(PATTERNS[:-1]))
@cases(60)
def test_logical_edges(ranks, outer, pattern):
    """Of a row of devices two apart, or of two or three rows with a gap of two between them."""
    group, devices = [(ranks, 2)], 6 * ranks
    for degree in outer:
        group, devices = [*group, (degree, 2 * devices)], 2 * devices * degree
    got = logical_edges(devices, *Group(*zip(*group, strict=True)).arrays(), CODES[pattern], 0)
    expected = naive.edges(devices, group, pattern)
    assert sorted(zip(*(column.tolist() for column in got), strict=True)) == sorted(expected)


@given(st.data())
@cases(60)
def test_rows_that_continue_each_other_are_one(data):
    """However they are given; ranks are counted as before."""
    _, rows = data.draw(groups(system_of(("ring", 36, 1))))
    made = group_of(data.draw(st.permutations(rows)))
    found = list(zip(*made, strict=True))
    assert naive.members(found) == naive.members(rows)
    assert made.ranks == len(naive.members(rows))
    assert all(degree > 1 for degree, _ in found)
    assert all(after[1] > degree * stride for (degree, stride), after in pairwise(found))


def test_shifts_make_all_pairs():
    rounds = [zip(*(c.tolist() for c in pairs(patterns.SHIFT, step, 6)), strict=True) for step in range(1, 6)]
    got = sorted(pair for one in rounds for pair in one)
    assert got == sorted((a, b) for a, b, _ in naive.messages("all_pairs", 6, 0))


# --- counted by hand -------------------------------------------------------------------------------


def test_a_mesh_of_two_by_two():
    """0 1 over 2 3; two ports a device. A ring of all four goes 0-1-2-3-0 and back.

    1-2 turns at 0 (X first): links 1-0 and 0-2; 2-1 turns at 3: 2-3, 3-1. 3-0: 3-2, 2-0; 0-3: 0-1,
    1-3. With half a message each: 0-1 and 1-0 carry 1-0, 1-2 (or 0-1, 0-3): 2 halves each; 2-3 and 3-2
    the same; 0-2 carries 1-2: a half, as 2-0 does of 3-0. So 1, times 2 ports.
    """
    assert reached(mesh(2, 2), 4, [(4, 1)], "neighbours") == (0.0, 2.0, 0.0, 2.0)
    # Everyone to everyone: from 0 along X go 0-1 and 0-3: 2. Along Y, 0-2 and 1-2 pass 0-2: 2.
    assert reached(mesh(2, 2), 4, [(4, 1)], "all_pairs") == (0.0, 4.0, 0.0, 2.0)
    # 0-1-2-3 one way: 0-1; 1-0, 0-2; 2-3: nothing shared, at most two hops.
    assert reached(mesh(2, 2), 4, [(4, 1)], "forward") == (0.0, 2.0, 0.0, 2.0)


def test_a_mesh_of_three_by_three():
    """Four ports a device, rows 0 1 2, 3 4 5, 6 7 8."""
    # Rings of rows: 0-1, 1-2 and 2-0 over both: upwards 0-1 and 1-2 carry their own edge and half of 0-2,
    # (the ring's other way round): a half and a half. So 1, times 4; the closing edge has 2 hops.
    assert reached(mesh(3, 3), 9, [(3, 1)], "neighbours") == (0.0, 4.0, 0.0, 2.0)
    assert reached(mesh(3, 3), 9, [(3, 3)], "neighbours") == (0.0, 4.0, 0.0, 2.0)
    # All nine in line: 2-3 goes back two along X from 2 and down at 0, where also nothing else goes.
    assert reached(mesh(3, 3), 9, [(9, 1)], "forward") == (0.0, 4.0, 0.0, 3.0)
    # All pairs: link 0-1 of a row carries 0-1 and 0-2 of each target row: 2 x 3; link 0-3 of a column
    # what comes from the 3 devices of row 0 to 3 and to 6: the same.
    assert reached(mesh(3, 3), 9, [(9, 1)], "all_pairs") == (0.0, 24.0, 0.0, 4.0)


def test_a_ring_of_four():
    """Two ports. Neighbours: half a message on every link. All pairs: 0-1 carries 0-1, 0-2 and 3-1."""
    assert reached(torus(4), 4, [(4, 1)], "neighbours") == (0.0, 1.0, 0.0, 1.0)
    assert reached(torus(4), 4, [(4, 1)], "all_pairs") == (0.0, 6.0, 0.0, 2.0)
    # Two and two, 0-2 and 1-3: both ways upwards, since ties go up: 0-1 carries 0-2 and 3-1.
    assert reached(torus(4), 4, [(2, 2)], "neighbours") == (0.0, 4.0, 0.0, 2.0)
    # On a line of four, 1-2 carries 0-2 and 1-3.
    assert reached(mesh(4), 4, [(2, 2)], "neighbours") == (0.0, 4.0, 0.0, 2.0)


def test_two_ranks_and_one():
    """A pair sends a whole message each way; nobody sends nothing."""
    assert reached(torus(2), 2, [(2, 1)], "neighbours") == (0.0, 1.0, 0.0, 1.0)
    assert reached(torus(5), 5, [(1, 1)], "neighbours") == (0.0, 0.0, 0.0, 0.0)
    assert reached([], 1, [(1, 1)], "all_pairs") == (0.0, 0.0, 0.0, 0.0)


def test_rails():
    """Packages of 4 on a switch, 3 packages on a ring: each device has links of its own to the next."""
    system = system_of(("switch", 4, 0), ("ring", 3, 1))
    assert reached(system, 12, [(3, 4)], "neighbours") == (0.0, 1.0, 0.0, 1.0)
    # A ring of all twelve leaves each package on one rail: 3-4 goes to 0 inside, then out, half a message.
    assert reached(system, 12, [(12, 1)], "neighbours") == (1.0, 1.0, 1.0, 1.0)


# --- closed forms ----------------------------------------------------------------------------------


@given(st.integers(2, 200))
@cases(36)
def test_all_pairs_of_a_ring(n):
    """(n^2 - 1)/8 where n is odd.

    Where n is even, ties go up: distances 1 to n/2 take n/4 (n/2 + 1) of an upward link. Split evenly
    it would be n^2/8.
    """
    messages = (n * n - 1) / 8 if n % 2 else n * (n + 2) / 8
    _, load, _, hops = reached(torus(n), n, [(n, 1)], "all_pairs")
    assert near(load, messages * min(n - 1, 2))
    assert hops == n // 2


@given(st.integers(2, 24), st.integers(1, 2))
@cases(24)
def test_bisection_of_a_torus(k, half):
    """Half of all pairs cross the cut of an even k-ary 2-cube, k^4 / 4 each way, over 2 k links each way."""
    k *= 2
    _, load, _, _ = reached(torus(k, k), k * k, [(k * k, 1)], "all_pairs")
    bisection = k**4 / 4 / (2 * k) * 4  # four ports a device (two and two)
    assert load >= bisection * (1 - 1e-12)
    assert near(load, k**3 / 8 * 4 * (1 + 2 / k))  # ties that go up keep the other direction idle
    assert near(reached(mesh(k), k, [(k, 1)], "all_pairs")[1], k * k / 4 * min(k - 1, 2))


@given(st.integers(2, 40))
@cases(20)
def test_crossbars(n):
    switch, full = system_of(("switch", n, 1)), system_of(("full", n, 1))
    assert reached(switch, n, [(n, 1)], "all_pairs") == (0.0, n - 1, 0.0, 1.0)
    assert reached(full, n, [(n, 1)], "all_pairs") == (0.0, n - 1, 0.0, 1.0)  # a link has 1/(n-1)
    assert reached(switch, n, [(n, 1)], "neighbours") == (0.0, 1.0, 0.0, 1.0)


@given(st.integers(1, 6), st.integers(2, 6), st.sampled_from((1.0, 2.0, 4.0)))
@cases(24)
def test_a_fat_tree(leaf, leaves, taper):
    """A leaf switch sends leaf (n - leaf) messages over leaf / taper links."""
    n = leaf * leaves
    tree = system_of(("tree", n, 1, leaf, taper))
    expected = max(n - 1, (n - leaf) * taper)
    _, load, _, hops = reached(tree, n, [(n, 1)], "all_pairs")
    assert near(load, expected)
    assert hops == 3
    inside = reached(tree, n, [(leaf, 1)], "neighbours")
    assert inside[3] == (1.0 if leaf > 1 else 0.0)


# --- placement -------------------------------------------------------------------------------------

FIGURE_5 = Strategy(kp1=4, kp2=2, dp=3, pp=2).degrees  # RC-4-2-d3-p2
MESH = [AXES.index(name) for name in naive.AXES]


def test_figure_5():
    """The worked example: 48 devices on a 4 x 12 torus, filled by kernel (R, C), pipeline, data.

    A device has 4 ports. Rows of 4 are rings of kp1: every link of X carries half a message each way.
    kp2 joins rows 2i and 2i+1: a whole message each way. The pipeline goes from rows 0, 1 to rows 2, 3:
    2 hops, and both pass the link from row 1 to row 2. Data: from every row 4 rows on and 4 rows back,
    the last closing the ring, so that four halves pass every link of Y in each direction.
    """
    network = topology(48, 1, "switch", "1d", "torus", "4x12", 1, 1.0)
    order = read_order("kp1-kp2-pp-dp")
    assert [strides(order, FIGURE_5)[axis] for axis in MESH] == [1, 4, 16, 8]
    load, hops = placed(network, FIGURE_5, [order])
    assert load[:, MESH].tolist() == [[[0.0, 2.0], [0.0, 4.0], [0.0, 8.0], [0.0, 8.0]]]
    assert hops[:, MESH].tolist() == [[[0.0, 1.0], [0.0, 1.0], [0.0, 4.0], [0.0, 2.0]]]
    system = as_dictionaries(network)
    for a, b, _ in naive.edges(48, [(3, 16)], "neighbours"):
        assert sum(hops for _, hops in naive.route(system, a, b)) == 4


def test_figure_5_on_a_mesh():
    """8 x 6: data shards are two rows apart, so that the edge that closes their ring has four hops."""
    network = topology(48, 1, "switch", "1d", "mesh", "8x6", 1, 1.0)
    _, hops = placed(network, FIGURE_5, [read_order("kp1-kp2-pp-dp")])
    assert hops[0, AXES.index("dp")].tolist() == [0.0, 4.0]


@st.composite
def placements(draw):
    system = draw(systems())
    left = prod(d["size"] for d in system)
    degrees = []
    for _ in range(4):
        degrees.append(draw(st.sampled_from(divisors(left))))
        left //= degrees[-1]
    return system, draw(st.permutations(degrees))


def full(degrees):
    """Degrees of all axes, from those of the paper's four."""
    return Strategy(**dict(zip(naive.AXES, degrees, strict=True))).degrees


def placed(network, degrees, some):
    return axis_costs(degrees, some, partial(neighbour_cost, network, prod(degrees)))


ALL_ORDERS = [read_order(name) for name in naive.orders()]


@given(placements())
@cases(30)
def test_place(placement):
    system, degrees = placement
    load, hops = placed(make(system), full(degrees), ALL_ORDERS)
    by_name = dict(zip(naive.AXES, degrees, strict=True))
    for number, order in enumerate(naive.orders()):
        assert order_name(read_order(order)) == order
        device = naive.fill(order, by_name)
        apart = np.array(strides(read_order(order), full(degrees)))[MESH]
        assert all(np.dot(shard, apart) == where for shard, where in device.items())
        for dimension, name in enumerate(by_name):
            ways = ("forward", "backward") if name == "pp" else ("neighbours",)
            costs = [
                naive.loads(system, messages(device, dimension, degrees[dimension], way)) for way in ways
            ]
            expected = [max(column) for column in zip(*costs, strict=True)]
            assert np.allclose(
                [*load[number, MESH[dimension]], *hops[number, MESH[dimension]]], expected, rtol=1e-12
            )


def messages(device, dimension, ranks, pattern):
    """Edges between shards that are neighbours along a parallel dimension."""
    found = []
    for shard, where in device.items():
        for a, b, weight in naive.messages(pattern, ranks, 0):
            if shard[dimension] == a:
                other = (*shard[:dimension], b, *shard[dimension + 1 :])
                found.append((where, device[other], weight))
    return found


@given(placements())
@cases(30)
def test_orders_of_axes_above_one_cost_what_all_orders_do(placement):
    """And where all devices are as near, every order costs what any other does."""
    system, degrees = placement
    load, hops = placed(make(system), full(degrees), ALL_ORDERS)
    costs = dict(zip(ALL_ORDERS, zip(load.tolist(), hops.tolist(), strict=True), strict=True))
    degrees = full(degrees)
    kept = orders(MESH, [axis for axis, degree in enumerate(degrees) if degree > 1], False)
    assert all(cost in [costs[order] for order in kept] for cost in costs.values())
    apart = {order: tuple(np.where(np.array(degrees) > 1, strides(order, degrees), 0)) for order in costs}
    assert len(kept) == len({apart[order] for order in kept}) == len(set(apart.values()))
    if len(system) == 1 and system[0]["kind"] in ("switch", "full"):
        assert all(cost == costs[kept[0]] for cost in costs.values())


@pytest.mark.parametrize(
    "axes", ["kp1 kp2 dp pp", "kp1 kp2 tp cp dp pp", "kp1 pp tp cp dp", "pp dp", "pp dp kp1 kp2 ep"]
)
def test_an_order_is_the_first_of_all_that_differ_in_axes_of_one_rank(monkeypatch, axes):
    """Whatever axes there are: of all orders, in the order in which they are numbered."""
    names = axes.split()
    monkeypatch.setattr(placement, "AXES", tuple(names))
    monkeypatch.setattr(placement, "MESHES", (tuple(names),))
    monkeypatch.setattr(placement, "PIPELINE", names.index("pp"))
    for count in range(len(names) + 1):
        for above in combinations(names, count):
            for at_an_end in (False, True):
                expected = naive.first_orders(names, above, at_an_end)
                got = orders(range(len(names)), [names.index(name) for name in above], at_an_end)
                assert [order_name(order) for order in got] == expected
                assert [read_order(name) for name in expected] == got


def test_few_of_many_axes_have_few_orders(monkeypatch):
    monkeypatch.setattr(placement, "AXES", tuple(f"axis{number}" for number in range(12)))
    assert len(orders(range(12), [1, 5, 11], False)) == 6


def test_orders_are_named():
    assert order_name(tuple(MESH)) == "kp1-kp2-dp-pp"
    with pytest.raises(InputError, match=r"placement=kp1-dp is invalid: expected .*kp1-kp2-dp-pp"):
        read_order("kp1-dp")


# --- describing a system ---------------------------------------------------------------------------


def describe(
    devices=512, package=1, inside="switch", shape="1d", outside="torus", sides="2d", leaf=1, taper=1.0
):
    return topology(devices, package, inside, shape, outside, sides, leaf, taper)


@pytest.mark.parametrize(
    ("given_", "kinds", "sizes", "levels", "shares"),
    [
        ({}, [RING] * 2, [16, 32], [1] * 2, [4.0] * 2),
        ({"sides": "3d"}, [RING] * 3, [8, 8, 8], [1] * 3, [6.0] * 3),
        ({"devices": 24, "sides": "3d"}, [RING] * 3, [2, 3, 4], [1] * 3, [5.0] * 3),
        ({"sides": "32x16", "outside": "mesh"}, [LINE] * 2, [32, 16], [1] * 2, [4.0] * 2),
        ({"devices": 13}, [RING], [13], [1], [2.0]),
        ({"outside": "ring"}, [RING], [512], [1], [2.0]),
        ({"outside": "switch"}, [SWITCH], [512], [1], [1.0]),
        ({"outside": "fully_connected", "devices": 8}, [FULL], [8], [1], [7.0]),
        (
            {"package": 4, "inside": "fully_connected", "sides": "8x16"},
            [FULL, RING, RING], [4, 8, 16], [0, 1, 1], [3.0, 4.0, 4.0],
        ),
        ({"package": 512, "inside": "mesh", "shape": "2d"}, [LINE] * 2, [16, 32], [0] * 2, [4.0] * 2),
        ({"devices": 1}, [], [], [], []),
    ],
)  # fmt: skip
def test_topologies(given_, kinds, sizes, levels, shares):
    got = describe(**given_)
    assert [column.tolist() for column in got[:4]] == [kinds, sizes, levels, shares]
    assert got.leaf.tolist() == [0] * len(kinds)
    assert got.taper.tolist() == [1.0] * len(kinds)
    for own, dimension in zip(shares, as_dictionaries(got), strict=True):
        total = sum(naive.ports(d) for d in as_dictionaries(got) if d["level"] == dimension["level"])
        assert total == own


def test_a_fat_tree_is_described():
    got = describe(package=8, outside="fat_tree", leaf=16, taper=2.0)
    assert got.kind.tolist() == [SWITCH, TREE]
    assert got.leaf.tolist() == [0, 16]
    assert got.taper.tolist() == [1.0, 2.0]


@pytest.mark.parametrize(
    ("given_", "message"),
    [
        ({"devices": 0}, r"system\.devices=0 is invalid: expected a number of devices from 1 to"),
        ({"devices": 2**21}, r"devices=2097152 is invalid: expected a number of devices from 1 to 1048576"),
        (
            {"devices": 22, "package": 8},
            r"system\.devices=22 is invalid: expected as many devices of each package of 8, at least 4: "
            r"system\.devices=21 \(3 x 7\), or system\.devices=24 \(3 x 8\), or system\.package\.devices=2",
        ),
        ({"package": 0}, r"system\.package\.devices=0"),
        (
            {"inside": "fat_tree"},
            r"system\.package\.topology=fat_tree is invalid: expected one of ring, mesh",
        ),
        ({"outside": "star"}, r"system\.topology=star is invalid: expected one of ring, .*fat_tree"),
        (
            {"outside": "fully_connected", "devices": 2048},
            r"=fully_connected is invalid: expected a topology for 2048; fully_connected takes at most 1024",
        ),
        ({"sides": "16x30"}, r"system\.shape=16x30 is invalid: .* 512 packages; 16 x 30 is 480"),
        ({"sides": "4d"}, r"system\.shape=4d is invalid: expected 1d, 2d, 3d"),
        ({"sides": "0x512"}, r"system\.shape=0x512"),
        (
            {"package": 8, "inside": "mesh", "shape": "3x3"},
            r"system\.package\.shape=3x3 is invalid: .* 8 devices; 3 x 3 is 9",
        ),
        ({"outside": "fat_tree", "leaf": 5}, r"system\.leaf_radix=5 is invalid: .* the 512 packages"),
        ({"outside": "fat_tree", "leaf": 0}, r"system\.leaf_radix=0"),
        (
            {"outside": "fat_tree", "leaf": 4, "taper": 0.0},
            r"system\.oversubscription=0\.0 is invalid: expected a number above 0",
        ),
    ],
)
def test_no_such_system(given_, message):
    with pytest.raises(InputError, match=message):
        describe(**given_)
