"""The closed form of the schedule against a walk in ticks (6.5)."""

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st

from fastflow.physics.schedule.pipeline import PipelinePlan, TimedKernels
from fastflow.physics.schedule.timeline import Timeline, schedule
from fastflow.physics.workload.graph import PHASES
from tests.naive import schedule as naive
from tests.support.checks import cases

ticks = st.integers(0, 30)
kernels = st.tuples(st.sampled_from(PHASES), ticks, st.just(0) | ticks, st.just(0) | st.integers(0, 80))
every_point = st.lists(st.lists(kernels, max_size=12), min_size=1, max_size=4)


def in_order(points):
    """Sort every point's kernels by phase, and lay all of them out: offset, phase and three times."""
    points = [sorted(point, key=lambda kernel: PHASES.index(kernel[0])) for point in points]
    rows = [kernel for point in points for kernel in point]
    offset = np.cumsum([0, *(len(point) for point in points)])
    phase = np.array([PHASES.index(row[0]) for row in rows], dtype=np.int64)
    return points, offset, phase, *(np.array([float(row[place]) for row in rows]) for place in (1, 2, 3))


@given(every_point)
@example([[]])
@example([[("backward", 5, 0, 20), ("backward", 30, 0, 0), ("update", 3, 0, 0)]])  # hidden whole
@example([[("backward", 5, 0, 20), ("backward", 3, 9, 0), ("update", 3, 1, 0)]])  # left before the update
@example([[("backward", 5, 0, 20)]])  # left at the end
@cases(400)
def test_one_device_and_one_level(points):
    """One device, one network level, collectives that the next row waits for: a walk in ticks."""
    # an update has no gradients
    points = [[(*kernel[:3], 0) if kernel[0] == "update" else kernel for kernel in point] for point in points]
    points, offset, phase, kernel, sync, gradient = in_order(points)
    zero, one = np.zeros(phase.size, dtype=np.int64), np.ones(len(points), dtype=np.int64)
    nothing = np.zeros(phase.size)
    got = schedule(
        TimedKernels(
            offset, phase, zero, zero != 0, kernel, sync, zero, zero + 1, gradient, zero, nothing, zero
        ),
        PipelinePlan(one, one, one, one),
    )
    for i, point in enumerate(points):
        forward, backward, update, exposed = naive.walk(point)
        if "backward" not in [row[0] for row in point]:  # what is left counts as forward
            forward, backward = forward + backward, 0
        assert got.forward[i] == forward
        assert got.backward[i] == backward
        assert got.update[i] == update
        assert got.exposed[i] == exposed
        assert got.bubble[i] == 0.0
        assert sum(row[1] + row[2] for row in point) <= got.total[i] <= sum(sum(row[1:]) for row in point)


def test_what_rounding_leaves_is_nothing():
    """4e-15 s of an iteration of seconds is a sum's rounding, a picosecond of it a bubble."""
    ends = [np.array([1.0, 1.0]) for _ in range(3)]
    timeline = Timeline(*ends, np.array([4e-15, 0.5]), np.array([3.55e-15, 1e-11])).without_rounding()
    assert timeline.exposed.tolist() == [0.0, 0.5]
    assert timeline.bubble.tolist() == [0.0, 1e-11]
    assert timeline.total.tolist() == [3.0, 3.0]
