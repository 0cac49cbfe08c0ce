"""Rings and messages over uneven links: against all ways tried out, and DGX-1's link table."""

from itertools import permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastflow.core.errors import InputError
from fastflow.physics.network.routing.link_table import LINK_TABLES, busiest, count_rings, hops_of
from fastflow.physics.network.routing.topology import topology
from tests.naive import nccl as naive
from tests.support.checks import cases, near

CUBE = LINK_TABLES["hybrid_cube_mesh"]


@st.composite
def tables(draw, most_devices=5):
    devices = draw(st.integers(2, most_devices))
    links = np.zeros((devices, devices), dtype=np.int64)
    for a in range(devices):
        for b in range(a):
            links[a, b] = links[b, a] = draw(st.integers(0, 2))
    return links


@given(tables(most_devices=4))
@cases(150)
def test_rings_are_as_many_as_all_ways_to_take_some_find(links):
    assert count_rings(links) == naive.rings(links)


@given(tables(), st.data())
@cases(150)
def test_the_busiest_link_is_the_one_counted_by_hand(links, data):
    pairs = list(permutations(range(len(links)), 2))
    messages = data.draw(st.lists(st.sampled_from(pairs), max_size=12))
    assert near(busiest(links, messages), naive.busiest_link(links.tolist(), messages))


def test_a_hybrid_cube_mesh_is_that_of_a_dgx_1():
    """Six links each, to three GPUs of the same half and one of the other (NVIDIA/nccl issue 671)."""
    assert (CUBE == CUBE.T).all()
    assert (CUBE.sum(axis=1) == 6).all()
    assert CUBE[0].tolist() == [0, 1, 1, 2, 2, 0, 0, 0]
    assert CUBE[1].tolist() == [1, 0, 2, 1, 0, 2, 0, 0]
    assert ((CUBE[:4, 4:] > 0).sum(axis=1) == 1).all()


@pytest.mark.parametrize(
    ("ranks", "rings"),
    [
        ((0, 1), 1), ((0, 3), 2), ((0, 4), 2), ((2, 6), 1), ((0, 5), 0),
        ((0, 1, 2, 3), 4), ((4, 5, 6, 7), 4), (range(8), 6),
    ],
)  # fmt: skip
def test_rings_of_a_cube_mesh(ranks, rings):
    assert count_rings(CUBE[np.ix_(ranks, ranks)]) == rings


def test_devices_without_a_link_send_through_the_widest_third():
    assert hops_of(CUBE, 0, 3) == [(0, 3)]
    assert hops_of(CUBE, 0, 7) == [(0, 4), (4, 7)]  # both double; by 3 the second is single
    assert hops_of(CUBE, 0, 5) == [(0, 1), (1, 5)]
    assert hops_of(np.zeros((2, 2), dtype=np.int64), 0, 1) == []


def test_a_cube_mesh_has_eight_devices_and_is_a_package():
    with pytest.raises(InputError, match="8, the devices of hybrid_cube_mesh"):
        topology(4, 4, "hybrid_cube_mesh", "1d", "switch", "1d", 1, 1.0)
    with pytest.raises(InputError, match=r"system\.topology"):
        topology(8, 1, "mesh", "1d", "hybrid_cube_mesh", "1d", 1, 1.0)
    assert topology(16, 8, "hybrid_cube_mesh", "1d", "switch", "1d", 1, 1.0).size.tolist() == [2, 2, 2, 2]
