"""Collectives and the schedule against their simulations (6.4, 6.5)."""

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st

from fastflow.network.collectives import ring_bytes, ring_steps, ring_time
from fastflow.timing.schedule import Tasks, schedule
from fastflow.workload.graph import COLLECTIVES, PHASES
from tests.checks import cases, near
from tests.naive import collectives
from tests.naive import schedule as naive


@given(
    st.sampled_from(COLLECTIVES), st.integers(1, 24), st.just(0.0) | st.floats(1.0, 1e12),
    st.floats(1e6, 1e13), st.just(0.0) | st.floats(1e-9, 1e-3),
)  # fmt: skip
@example("all-reduce", 2, 1e9, 1e11, 5e-6)
@cases(300)
def test_ring(collective, ranks, size, bandwidth, latency):
    code = np.array([COLLECTIVES.index(collective)])
    size_, ranks_ = np.array([size]), np.array([ranks])
    steps, expected = collectives.simulate(collective, ranks, size)
    assert ring_steps(code[0], ranks) == steps
    sent = ring_bytes(code, size_, ranks_)
    assert near(sent[0], expected)
    got = ring_time(code, ranks_, sent, np.array([bandwidth]), np.array([latency]))[0]
    assert near(got, collectives.time(collective, ranks, size, bandwidth, latency))
    faster = ring_time(code, ranks_, sent, np.array([2 * bandwidth]), np.array([latency]))[0]
    assert faster <= got


def test_nothing_to_send_needs_no_network():
    """A single device may have no links at all."""
    none = np.array([0.0])
    got = ring_time(np.array([0]), np.array([1]), none, none, np.array([5e-6]))
    assert got[0] == 0.0


ticks = st.integers(0, 30)
kernels = st.tuples(st.sampled_from(PHASES), ticks, st.just(0) | ticks, st.just(0) | st.integers(0, 80))


@given(st.lists(st.lists(kernels, max_size=12), min_size=1, max_size=4))
@example([[]])
@example([[("backward", 5, 0, 20), ("backward", 30, 0, 0), ("update", 3, 0, 0)]])  # hidden whole
@example([[("backward", 5, 0, 20), ("backward", 3, 9, 0), ("update", 3, 1, 0)]])  # left before the update
@example([[("backward", 5, 0, 20)]])  # left at the end
@cases(400)
def test_schedule(points):
    points = [sorted(point, key=lambda kernel: PHASES.index(kernel[0])) for point in points]
    rows = [kernel for point in points for kernel in point]
    got = schedule(
        Tasks(
            np.cumsum([0, *(len(point) for point in points)]),
            np.array([PHASES.index(row[0]) for row in rows], dtype=np.int64),
            *(np.array([float(row[place]) for row in rows]) for place in (1, 2, 3)),
        )
    )
    for i, point in enumerate(points):
        forward, backward, update, exposed = naive.simulate(point)
        assert got.forward[i] == forward
        assert got.backward[i] == backward
        assert got.update[i] == update
        assert got.exposed[i] == exposed
        assert got.total[i] == forward + backward + update
        # whatever the overlap: between all of it hidden and none of it
        assert sum(row[1] + row[2] for row in point) <= got.total[i] <= sum(sum(row[1:]) for row in point)
