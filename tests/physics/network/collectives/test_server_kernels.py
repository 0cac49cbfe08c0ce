"""All-reduces as serving libraries run them: every kernel and choice against one written out by hand."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fastflow
from fastflow.performance.partial_predictions import time_collectives
from fastflow.physics.network.collectives.decompose import recipe
from fastflow.physics.network.collectives.server_kernels import NAMES, NCCL, SERVERS, kernel_time
from fastflow.physics.network.routing.patterns import group_of
from fastflow.physics.network.routing.topology import topology
from fastflow.physics.workload.graph import ALL_REDUCE
from tests.conftest import columns_of
from tests.naive import peer as naive
from tests.physics.network.collectives.test_custom_all_reduce import LATE, LOAD, OFFERED, START
from tests.physics.network.collectives.test_nccl import LIBRARY, LINK, MEMORY, STEPS
from tests.support.checks import cases, near

SIZES = st.floats(8.0, 30.0).map(lambda power: 2.0**power)
RANKS = st.integers(2, 8)


@given(st.sampled_from(range(1, len(NAMES))), SIZES, RANKS, st.booleans(), st.booleans())
@cases(300)
def test_a_kernel_takes_as_long_as_written_out_by_hand(number, size, ranks, is_late, reduces):
    network = topology(ranks, ranks, "switch", "1d", "switch", "1d", 1, 1.0)
    group = recipe(network, ranks, group_of([(ranks, 1)])).nccl_topology
    library = OFFERED.copy()
    library[library == LIBRARY["reduce"]] *= reduces
    library[-1] = is_late
    got = kernel_time(number, size, group, library, LINK, MEMORY)
    share = LIBRARY["reduce"] * reduces
    given_to_both = (LINK, STEPS[0], START, LATE, LOAD, MEMORY, share, is_late)
    assert near(got, naive.kernel(NAMES[number], size, ranks, *given_to_both), rel=1e-9)


@given(
    st.sampled_from(sorted(SERVERS)),
    st.one_of(SIZES, st.integers(8, 30).map(lambda power: 2.0**power)),
    RANKS,
    st.sampled_from(["ampere", "hopper", "blackwell", "ada", ""]),
)
@cases(400)
def test_a_library_chooses_by_its_thresholds(server, size, ranks, architecture):
    (number,) = SERVERS[server](np.array([size]), ranks, architecture).tolist()
    assert NAMES[number] == naive.choice(server, size, ranks, architecture)


@pytest.mark.parametrize("server", sorted(SERVERS))
def test_large_ones_and_groups_without_kernels_are_nccls(compose, server):
    size, ranks = np.array([2.0**30, 2.0**12]), np.array([8, 16])
    columns = columns_of([compose("system=dgx_b200", "system.devices=16")])
    both = (time_collectives(columns, ALL_REDUCE, size, ranks, name) for name in (server, ""))
    assert np.array_equal(*both)
    cards = columns_of([compose("system=pcie")])
    both = (time_collectives(cards, ALL_REDUCE, size[1:], ranks[:1], name) for name in (server, ""))
    assert np.array_equal(*both)
    small = time_collectives(columns, ALL_REDUCE, size[1:], ranks[:1], server)
    assert small < time_collectives(columns, ALL_REDUCE, size[1:], ranks[:1])


def test_a_system_without_nccl_is_refused(compose):
    columns = columns_of([compose("system=dgx_b200", "system.library=none")])
    with pytest.raises(fastflow.InputError, match=r"^net.all_reduce_backend=custom .*expected nccl"):
        time_collectives(columns, ALL_REDUCE, np.array([1e4]), np.array([8]), "vllm")


def test_a_larger_message_never_takes_much_less():
    """Between kernels there are steps, as in the libraries; NCCL's number is none of theirs."""
    assert NAMES[NCCL] == "nccl"
    network = topology(8, 8, "switch", "1d", "switch", "1d", 1, 1.0)
    group = recipe(network, 8, group_of([(8, 1)])).nccl_topology
    assert kernel_time(NCCL, 1.0, group, OFFERED, LINK, MEMORY) == np.inf
    sizes = 2.0 ** np.arange(8, 24)
    for number in range(1, len(NAMES)):
        times = [kernel_time(number, size, group, OFFERED, LINK, MEMORY) for size in sizes]
        assert (np.diff(times) >= 0.0).all()
