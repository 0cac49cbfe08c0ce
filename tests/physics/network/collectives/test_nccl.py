"""NCCL's collectives: every way against one written out by hand, and where each is offered and taken."""

from itertools import permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fastflow
from fastflow.performance.crossflow import predict
from fastflow.performance.partial_predictions import time_collectives
from fastflow.performance.results import explain
from fastflow.physics.network.collectives import nccl
from fastflow.physics.network.collectives.cost import KINDS, DeviceLinks, cheapest
from fastflow.physics.network.collectives.decompose import recipe
from fastflow.physics.network.routing.link_table import LINK_TABLES
from fastflow.physics.network.routing.patterns import group_of
from fastflow.physics.network.routing.topology import topology
from fastflow.physics.workload.graph import ALL_REDUCE, COLLECTIVES, POINT_TO_POINT
from tests.conftest import columns_of
from tests.naive import nccl as naive
from tests.support.checks import cases, near

LINK, NETWORK, MEMORY = 240e9, 48e9, 1.6e12
LINKS = DeviceLinks(LINK, NETWORK, intra_latency=0.0, inter_latency=0.0, memory=MEMORY, overhead=0.0)
PROTOCOLS = ("ll", "ll128", "simple")
STEPS = ({"ll": 0.9e-6, "ll128": 2.8e-6, "simple": 5e-6}, {"ll": 2.7e-6, "ll128": 4e-6, "simple": 14e-6})
LIBRARY = {
    "launch": 8e-6, "launches": {"ll": 1.0, "ll128": 3.5, "simple": 11.0}, "send": {"ll": 1.2, "simple": 3.1},
    "fill": 4.5e-6, "peer": 0.3, "block": 0.15, "tree": 1.9, "reduce": 0.8,
}  # fmt: skip
SCALARS = np.array([
    LIBRARY["launch"], *(LIBRARY["launches"][name] for name in PROTOCOLS[1:]),
    *LIBRARY["send"].values(), LIBRARY["fill"], LIBRARY["peer"], LIBRARY["block"], LIBRARY["tree"],
    LIBRARY["reduce"], *(step[name] for step in STEPS for name in PROTOCOLS),
])  # fmt: skip


def prices(machines, inside, group=None, package="switch", shape="1d", outside="switch", **given_):
    """Return latency [s] and time per byte [s/B] of all of NCCL's ways among all devices, or a group's.

    given_: leaf and taper of a tree, and the devices in use where not all are.
    """
    devices = machines * inside
    network = topology(
        devices, inside, package, shape, outside, "1d", given_.get("leaf", 1), given_.get("taper", 1.0)
    )
    made = recipe(network, given_.get("devices", devices), group_of(group or [(devices, 1)]))
    latency, per_byte = np.empty((2, KINDS, nccl.TOTAL_ALGORITHMS))
    nccl.price_library(made.nccl_topology, SCALARS, LINKS, latency, per_byte)
    return latency, per_byte


def times(priced, collective, size):
    """Return name to seconds of every way that is offered, of the forms of one the faster."""
    latency, per_byte = (column[collective] for column in priced)
    found = {}
    for way, name in enumerate(nccl.NAMES, start=nccl.RING):
        if np.isfinite(latency[way]):
            key = name.lower()
            found[key] = min(found.get(key, np.inf), latency[way] + size * per_byte[way])
    return found


def by_hand(name, size, machines, inside, reduces=True, link=LINK, network=NETWORK):
    ends = (link, STEPS[0]), (network, STEPS[1])
    return naive.ways(name, size, machines, inside, *ends, MEMORY, LIBRARY, reduces)


@given(
    st.sampled_from(COLLECTIVES[1:]),
    st.integers(1, 6),
    st.integers(1, 9),
    st.floats(0.0, 40.0).map(lambda power: 2.0**power),
)
@cases(300)
def test_every_way_is_the_one_written_out_by_hand(name, machines, inside, size):
    if machines * inside == 1:
        return
    priced, collective = prices(machines, inside), COLLECTIVES.index(name)
    expected = by_hand(name, size, machines, inside)
    if name == "point-to-point":  # a send is between two neighbours, the worst of which are in two machines
        expected = by_hand(name, size, machines, inside if machines == 1 else 1)
    got = times(priced, collective, size)
    assert got.keys() == expected.keys()
    for way, time in expected.items():
        assert near(got[way], time, rel=1e-9), way
    time, way = cheapest(*(column[None] for column in priced), 0, collective, size, -1)
    assert near(time, min(expected.values()), rel=1e-9)
    assert near(got[nccl.NAMES[way - nccl.RING].lower()], time, rel=1e-12)


@given(
    st.sampled_from(COLLECTIVES[1:]), st.integers(1, 80), st.floats(0.0, 36.0).map(lambda power: 2.0**power)
)
@cases(200)
def test_channels_of_sends_take_as_long_as_dealt_out_by_hand(name, ranks, size):
    got = nccl.channel_time(COLLECTIVES.index(name), ranks, size)
    assert near(got, naive.channels_take(name, size, ranks), rel=1e-9)


def test_sends_of_a_machine_are_no_faster_than_their_channels():
    sizes = 2.0 ** np.arange(12, 34)
    for name in ("all-to-all", "point-to-point"):
        for ranks in (4, 18, 72):
            got = fastflow.predict_collective(name, sizes, ranks, "system=gb200_nvl72")
            least = [naive.channels_take(name, size, ranks) for size in sizes]
            assert (got > least).all()
    among_cards = fastflow.predict_collective("all-to-all", sizes, 8, "system=pcie")
    assert (np.diff(among_cards) > 0.0).all()


def test_one_rank_costs_nothing():
    latency, per_byte = prices(2, 4, group=[(1, 1)])
    for collective in range(KINDS):
        assert cheapest(latency[None], per_byte[None], 0, collective, 1e9, -1)[0] == 0.0


def test_a_group_of_one_rank_a_machine_has_one_card_each_and_no_link():
    size = 1e8
    got = times(prices(4, 8, group=[(4, 8)]), ALL_REDUCE, size)
    expected = by_hand("all-reduce", size, 4, 1)
    assert got.keys() == expected.keys()
    assert all(near(got[way], expected[way], rel=1e-9) for way in expected)
    assert "nvls" not in got


def test_a_group_of_two_in_every_machine_has_two_cards():
    size = 1e9
    got = times(prices(4, 8, group=[(2, 1), (4, 8)]), ALL_REDUCE, size)["ring simple"]
    assert near(got, by_hand("all-reduce", size, 4, 2)["ring simple"], rel=1e-9)


def test_without_a_switch_a_group_has_the_links_among_its_own_ranks():
    """Of seven links a device, two ranks share one, four use three; of a cube's three one, and two."""
    for package, shape, shares in (("fully_connected", "1d", (1, 3, 7)), ("torus", "2x2x2", (1, 2, 3))):
        for ranks, links in zip((2, 4, 8), shares, strict=True):
            priced = prices(1, 8, group=[(ranks, 1)], package=package, shape=shape)
            got = times(priced, ALL_REDUCE, 1e8)
            link = LINK * links / shares[-1]
            expected = by_hand("all-reduce", 1e8, 1, ranks, reduces=False, link=link)
            assert got.keys() == expected.keys()
            assert all(near(got[way], expected[way], rel=1e-9) for way in expected)


def test_a_cube_mesh_has_the_rings_and_messages_of_its_link_table():
    """Rings of one, four and six of six links; an all-to-all loads the busiest of all links."""
    table = LINK_TABLES["hybrid_cube_mesh"].tolist()
    for ranks, links in ((2, 1), (4, 4), (8, 6)):
        priced = prices(1, 8, group=[(ranks, 1)], package="hybrid_cube_mesh", devices=ranks)
        for collective, link in (
            ("all-reduce", LINK * links / 6),
            ("all-gather", LINK * links / 6),
            ("all-to-all", LINK * (ranks - 1) / 6 / naive.busiest_link(table, permutations(range(ranks), 2))),
        ):
            got = times(priced, COLLECTIVES.index(collective), 1e8)
            expected = by_hand(collective, 1e8, 1, ranks, reduces=False, link=link)
            assert got.keys() == expected.keys()
            assert all(near(got[way], expected[way], rel=1e-9) for way in expected)


def test_groups_of_a_cube_mesh_go_as_fast_as_the_slowest():
    """Of four pairs at once some have a double link, and some a single one."""
    ring = nccl.RING + 3

    def rate(group, devices):
        _, per_byte = prices(1, 8, group=group, package="hybrid_cube_mesh", devices=devices)
        return 1.0 / per_byte[ALL_REDUCE, ring]

    assert near(rate([(2, 1)], 8), rate([(2, 1)], 2))
    assert near(rate([(2, 4)], 8), rate([(2, 1)], 2))  # 0 and 4 have two links, 2 and 6 one
    assert near(rate([(4, 1)], 8), rate([(4, 1)], 4))


def test_two_cube_meshes_are_as_fast_as_their_cards():
    """Rings of eight use all links of both, and their cards are slower."""
    cubes = prices(2, 8, package="hybrid_cube_mesh")
    switched = prices(2, 8)
    assert near(cubes[1][ALL_REDUCE, nccl.RING + 3], switched[1][ALL_REDUCE, nccl.RING + 3], rel=1e-9)


def test_a_tapered_network_is_slower_by_its_taper():
    """Eight machines, two a leaf: half of the links of a leaf carry what all machines' did."""
    plain = prices(8, 1, outside="fat_tree", leaf=2)
    tapered = prices(8, 1, outside="fat_tree", leaf=2, taper=6.0)
    way = nccl.RING + 3
    assert near(plain[1][ALL_REDUCE, way], prices(8, 1)[1][ALL_REDUCE, way])
    own = nccl.COPY_TRAFFIC / 8 / MEMORY
    ratio = (tapered[1][ALL_REDUCE, way] - own) / (plain[1][ALL_REDUCE, way] - own)
    assert near(ratio, 3.0)  # one message of a ring leaves a leaf of two


def test_what_is_sent():
    """A ring sends what the others need, a switch takes all and gives every rank its share of the sums."""
    shares = nccl.sent(8, 8)
    ring, switch, direct = (way - nccl.RING for way in (nccl.RING, nccl.NVLS, nccl.DIRECT))
    assert shares[ALL_REDUCE, switch] == 1.125
    assert shares[ALL_REDUCE, ring] == 1.75
    assert shares[COLLECTIVES.index("all-gather"), ring] == 0.875
    assert shares[COLLECTIVES.index("all-to-all"), direct] == 0.875
    assert shares[POINT_TO_POINT, direct] == 1.0
    assert not nccl.sent(1, 1).any()
    made = recipe(topology(16, 8, "switch", "1d", "switch", "1d", 1, 1.0), 16, group_of([(16, 1)]))
    assert np.array_equal(made.sent[:, nccl.RING : nccl.TOTAL_ALGORITHMS], nccl.sent(16, 8))


# --- in the model

SMALL = ("model=lstm_lm", "model.hidden=4096", "model.batch=512", "model.vocabulary=32768")


def taken(compose, size, *overrides):
    """Return the way of the all-reduces of data parallelism over eight devices, whose gradients are large."""
    point = compose(*overrides, "parallel.strategy=d8", *SMALL, f"model.vocabulary={size}")
    prediction = predict(columns_of([point]))
    kernels = explain(prediction, 0)
    return set(kernels["algorithm"][kernels["comm"] == "all-reduce"].tolist())


def test_results_name_the_way(compose):
    assert taken(compose, 2**20, "system=dgx_h100") >= {"NVLS"}
    ways = taken(compose, 2**20, "system=dgx_a100")
    assert ways
    assert ways <= {"ring LL", "ring LL128", "ring Simple"}


@pytest.mark.parametrize("system", ["dgx_v100", "dgx_a100", "dgx_h100"])
def test_protocols_take_turns_as_messages_grow(compose, system):
    point = compose(f"system={system}")
    size = 2.0 ** np.arange(9, 34)
    shares = {"all-reduce": 7 / 4, "all-gather": 7 / 8, "reduce-scatter": 7 / 8, "broadcast": 1.0}
    for name, share in shares.items():
        time = time_collectives(columns_of([point]), COLLECTIVES.index(name), size, np.full(size.size, 8))
        assert (np.diff(time) > 0.0).all()
        assert time[0] < 30e-6
        # by Simple, or the switch, nearly all of the bandwidth; by LL half of it would be left
        reached = share * size[-1] / time[-1]
        assert reached > 0.75 * point["chip.pinned.intra_Bps"] * point["net.intra.utilization"]


def test_two_machines_are_slower_than_one_and_their_cards_add_up():
    one, two = (
        fastflow.predict_collective("all-reduce", [512, 1e9], devices, "system=dgx_h100", "system.devices=16")
        for devices in (8, 16)
    )
    assert (two > one).all()
    single = fastflow.predict_collective(
        "all-reduce", 1e9, 16, "system=dgx_h100", "system.devices=16", "chip.pinned.inter_Bps='5 GB/s'"
    )
    assert two[1] < single < 12 * two[1]


def test_points_with_and_without_a_library_in_one_call_are_those_of_two_calls():
    given = ("system=dgx_a100", "parallel.strategy=d8,RC-1-8", *SMALL)
    both = fastflow.evaluate("system.library=none,nccl", *given)
    for name in ("none", "nccl"):
        alone = fastflow.evaluate(f"system.library={name}", *given)
        assert both[both["system.library"] == name]["time_s"].tolist() == alone["time_s"].tolist()
    assert both["time_s"].nunique() == 4


# --- what is refused


def test_an_algorithm_for_a_library_is_refused():
    with pytest.raises(fastflow.InputError, match=r"^system.collective=ring .*expected auto; system.library"):
        fastflow.predict_collective("all-reduce", 1e6, 8, "system=dgx_a100", "system.collective=ring")
    reason = fastflow.evaluate(
        "system=dgx_a100", "system.collective=ring,auto", "parallel.strategy=d8", *SMALL
    ).reason
    assert reason[0].startswith("system.collective=ring is invalid")
    assert reason[1] == ""


def test_a_network_without_the_scalars_is_refused():
    with pytest.raises(fastflow.InputError, match=r"^net\.library\.launch=nothing .*it is missing"):
        fastflow.predict_collective("all-reduce", 1e6, 8, "system.library=nccl")
