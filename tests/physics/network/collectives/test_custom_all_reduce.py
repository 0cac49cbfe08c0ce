"""Exchanges over peers' memory: every way against one written out by hand, where it is offered and taken."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fastflow
from fastflow.performance.crossflow import predict
from fastflow.performance.partial_predictions import time_collectives
from fastflow.performance.results import explain
from fastflow.physics.network.collectives import custom_all_reduce, nccl
from fastflow.physics.network.collectives.cost import KINDS, cheapest
from fastflow.physics.network.collectives.decompose import recipe
from fastflow.physics.network.routing.patterns import group_of
from fastflow.physics.network.routing.topology import topology
from fastflow.physics.workload.graph import ALL_REDUCE, ALL_TO_ALL, COLLECTIVES
from tests.conftest import columns_of
from tests.naive import peer as naive
from tests.physics.network.collectives.test_nccl import (
    LIBRARY,
    LINK,
    LINKS,
    MEMORY,
    SCALARS,
    SMALL,
    STEPS,
    by_hand,
)
from tests.support.checks import cases, near

START, LATE, LOAD = 2.5e-6, 0.7e-6, 0.4  # launch, and more behind another kernel [s]; share of the links
OFFERED, ALONE = np.array([*SCALARS, START, LATE, LOAD, 1.0, 1.0]), np.array([*SCALARS, *[0.0] * 5])
PUSHES = np.array([*SCALARS, START, LATE, LOAD, 2.0, 1.0])
KIB = 1024


def prices(machines, inside, library=OFFERED, group=None, package="switch", shape="1d"):
    """Return latency [s] and time per byte [s/B] of all ways among all devices, or a group's."""
    devices = machines * inside
    network = topology(devices, inside, package, shape, "switch", "1d", 1, 1.0)
    made = recipe(network, devices, group_of(group or [(devices, 1)]))
    latency, per_byte = np.empty((2, KINDS, custom_all_reduce.TOTAL_ALGORITHMS))
    nccl.price_library(made.nccl_topology, library, LINKS, latency, per_byte)
    custom_all_reduce.price_custom(made.nccl_topology, library, LINK, MEMORY, latency, per_byte)
    return latency, per_byte


def ours(priced, collective, size):
    """Return name to seconds of the ways that are offered and not NCCL's."""
    latency, per_byte = (column[collective, nccl.TOTAL_ALGORITHMS :] for column in priced)
    return {
        name: latency[way] + size * per_byte[way]
        for way, name in enumerate(custom_all_reduce.NAMES)
        if np.isfinite(latency[way])
    }


def fastest(priced, collective, size):
    return cheapest(*(column[None] for column in priced), 0, collective, size, -1)


@given(
    st.sampled_from(COLLECTIVES[1:]),
    st.integers(1, 3),
    st.integers(1, 12),
    st.sampled_from(["switch", "fully_connected"]),
    st.floats(0.0, 36.0).map(lambda power: 2.0**power),
    st.sampled_from(["custom", "trtllm"]),
)
@cases(300)
def test_the_fastest_of_all_ways_is_taken_each_as_written_out_by_hand(
    name, machines, inside, package, size, backend
):
    collective, ranks = COLLECTIVES.index(name), machines * inside
    priced = prices(machines, inside, PUSHES if backend == "trtllm" else OFFERED, package=package)
    reduces = LIBRARY["reduce"] if package == "switch" else 0.0
    more = {"memory": MEMORY, "reduces": reduces, "backend": backend}
    expected = (
        naive.ways(name, size, ranks, LINK, STEPS[0], START, LATE, LOAD, **more) if machines == 1 else {}
    )
    got = ours(priced, collective, size)
    assert got.keys() == expected.keys()
    assert all(near(got[way], expected[way], rel=1e-9) for way in expected)
    time, way = fastest(priced, collective, size)
    alone, _ = fastest(prices(machines, inside, ALONE, package=package), collective, size)
    assert time <= alone
    assert near(time, min([alone, *expected.values()]), rel=1e-9)
    if way >= nccl.TOTAL_ALGORITHMS:
        assert near(time, expected[custom_all_reduce.NAMES[way - nccl.TOTAL_ALGORITHMS]], rel=1e-9)
    if ranks == 1:
        assert time == 0.0
    elif package == "switch" and name != "point-to-point":
        library = min(by_hand(name, size, machines, inside).values())
        assert near(time, min([library, *expected.values()]), rel=1e-9)


@given(st.integers(1, 3), st.integers(1, 12), st.sampled_from(["switch", "fully_connected", "torus"]))
@cases(60)
def test_the_library_alone_is_what_it_was(machines, inside, package):
    devices = machines * inside
    made = recipe(
        topology(devices, inside, package, "1d", "switch", "1d", 1, 1.0), devices, group_of([(devices, 1)])
    )
    plain = np.empty((2, KINDS, nccl.TOTAL_ALGORITHMS))
    nccl.price_library(made.nccl_topology, SCALARS, LINKS, *plain)
    for got, expected in zip(prices(machines, inside, ALONE, package=package), plain, strict=True):
        assert np.array_equal(got[:, : nccl.TOTAL_ALGORITHMS], expected)
        assert np.isinf(got[:, nccl.TOTAL_ALGORITHMS :]).all()


def test_a_group_of_fewer_ranks_than_a_machine():
    """On a switch it has all of the links, in a full mesh those to its own ranks: three of seven for four."""
    size = 256.0 * KIB
    for package, link in (("switch", LINK), ("fully_connected", LINK * 3 / 7)):
        got = ours(prices(2, 8, group=[(4, 1)], package=package), ALL_REDUCE, size)
        more = {"memory": MEMORY, "reduces": LIBRARY["reduce"] if package == "switch" else 0.0}
        expected = naive.ways("all-reduce", size, 4, link, STEPS[0], START, LATE, LOAD, **more)
        assert got.keys() == expected.keys()
        assert all(near(got[way], expected[way], rel=1e-9) for way in expected)


@pytest.mark.parametrize(("package", "shape"), [("torus", "2x2x2"), ("ring", "1d"), ("mesh", "2x4")])
def test_a_package_without_links_to_all_has_none(package, shape):
    priced = prices(1, 8, package=package, shape=shape)
    assert not any(ours(priced, collective, 1e5) for collective in range(KINDS))


def test_across_machines_and_among_more_than_eight_there_are_none():
    assert not ours(prices(2, 4), ALL_REDUCE, 1e5)
    assert not ours(prices(2, 4), ALL_TO_ALL, 1e5)
    assert not ours(prices(1, 9), ALL_REDUCE, 1e5)
    assert ours(prices(1, 72), ALL_TO_ALL, 1e5).keys() == {"stores"}


def test_what_is_sent():
    shares = custom_all_reduce.sent(8)
    assert shares[ALL_REDUCE].tolist() == [7.0, 1.75, 0.0, 7.0, 1.75, 1.125]
    assert shares[ALL_TO_ALL].tolist() == [0.0, 0.0, 0.875, 0.0, 0.0, 0.0]
    assert not custom_all_reduce.sent(1).any()
    made = recipe(topology(8, 8, "switch", "1d", "switch", "1d", 1, 1.0), 8, group_of([(8, 1)]))
    assert np.array_equal(made.sent[:, nccl.TOTAL_ALGORITHMS :], shares)


# --- in the model


def times(name, size, ranks, *overrides):
    return fastflow.predict_collective(name, size, ranks, *overrides)


@pytest.mark.parametrize("system", ["dgx_a100", "dgx_h100", "mi300x_node"])
@pytest.mark.parametrize("ranks", [1, 2, 4, 8])
def test_peers_are_faster_where_messages_are_small_and_never_slower(system, ranks):
    sizes = 2.0 ** np.arange(9, 31)
    for name in COLLECTIVES[1:]:
        plain, library, ours = (
            times(name, sizes, ranks, f"system={system}", *more)
            for more in ((), ("net.all_reduce_backend=nccl",), ("net.all_reduce_backend=custom",))
        )
        assert np.array_equal(plain, library)
        assert (ours <= library).all()
        if ranks == 1:
            assert not ours.any()
        elif name == "all-reduce":
            assert (ours[:6] < 0.9 * library[:6]).all()
        elif name != "all-to-all":
            assert np.array_equal(ours, library)


# vLLM 0.20.0 in a graph on H100 (ai-dynamo/aiconfigurator@67f90e7, whose sizes are of 2-byte elements)
MEASURED = {  # KiB to us, by ranks
    2: {8: 4.48, 32: 4.45, 128: 4.76, 512: 6.36, 2048: 12.39, 4096: 20.19},
    4: {8: 4.80, 32: 4.91, 128: 5.82, 512: 11.19, 2048: 18.48, 4096: 30.40},
    8: {16: 5.22, 32: 5.52, 128: 7.80},
}


@pytest.mark.parametrize("ranks", [2, 4, 8])
def test_all_reduces_of_vllm_take_as_long_as_measured(ranks):
    sizes = np.array(list(MEASURED[ranks])) * float(KIB)
    got = times("all-reduce", sizes, ranks, "system=dgx_h100", "net.all_reduce_backend=custom")
    error = np.abs(got / (1e-6 * np.array(list(MEASURED[ranks].values()))) - 1.0)
    assert error.max() < 0.15
    assert error.mean() < 0.08


def test_points_of_both_kinds_in_one_call_are_those_of_two_calls():
    given = ("system=dgx_h100", "parallel.strategy=RC-1-8,d8", *SMALL)
    both = fastflow.evaluate("net.all_reduce_backend=nccl,custom", *given)
    for name in ("nccl", "custom"):
        alone = fastflow.evaluate(f"net.all_reduce_backend={name}", *given)
        assert both[both["net.all_reduce_backend"] == name]["time_s"].tolist() == alone["time_s"].tolist()
    default = fastflow.evaluate(*given)
    assert default["time_s"].tolist() == both[both["net.all_reduce_backend"] == "nccl"]["time_s"].tolist()


def test_results_name_the_way(compose):
    given = ("system=dgx_h100", "parallel.strategy=RC-8-1", *SMALL, "model.hidden=512", "model.batch=8")
    found = {}
    for exchange in ("nccl", "custom", "trtllm"):
        kernels = explain(predict(columns_of([compose(*given, f"net.all_reduce_backend={exchange}")])), 0)
        found[exchange] = set(kernels["algorithm"][kernels["comm"] == "all-reduce"].tolist())
    assert found["custom"] & {"one-shot", "two-shot", "multimem"}
    assert found["trtllm"] & {"pushed", "pushed twice"}
    assert not found["nccl"] & set(custom_all_reduce.NAMES)


def test_a_network_without_the_key_has_the_library_alone(compose):
    point = compose("system=dgx_h100")
    size, ranks = np.array([1e4]), np.array([8])
    with_key = time_collectives(columns_of([point]), ALL_REDUCE, size, ranks)
    without = {key: value for key, value in point.items() if key != "net.all_reduce_backend"}
    assert time_collectives(columns_of([without]), ALL_REDUCE, size, ranks) == with_key


# --- what is refused


def test_peers_without_a_library_are_refused():
    with pytest.raises(
        fastflow.InputError, match=r"^net.all_reduce_backend=custom .*expected nccl; custom takes"
    ):
        times("all-reduce", 1e6, 8, "system=dgx_h100", "system.library=none", "net.all_reduce_backend=custom")
    reason = fastflow.evaluate(
        "system=dgx_h100",
        "net.all_reduce_backend=custom",
        "system.library=none,nccl",
        "parallel.strategy=d8",
        *SMALL,
    ).reason
    assert reason[0].startswith("net.all_reduce_backend=custom is invalid")
    assert reason[1] == ""


def test_what_is_neither_is_refused():
    with pytest.raises(fastflow.InputError, match=r"^net.all_reduce_backend=direct"):
        times("all-reduce", 1e6, 8, "system=dgx_h100", "net.all_reduce_backend=direct")
