"""Kernels within a power limit: the oracle, and what holds for all kernels and chips."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastflow.physics.hardware.power import Power
from fastflow.physics.timing.power_limit import Cores, Kernels, slow_down
from fastflow.physics.timing.roofline import Timing
from tests.naive import power_limit as naive

VOLTAGE, MINIMUM, BUDGET = 1.0, 0.6, 500.0
LEVELS = 2
SHARES = st.floats(0.0, 1.0)


def timing(times, flop, moved):
    """One kernel; times: of compute, two levels, main memory and launches."""
    soft = float(np.sum(np.array(times[:-1]) ** 4) ** 0.25)
    zeros = np.zeros(1, dtype=np.int64)
    return Timing(
        time=np.array([soft + times[-1]]), flop=np.array([flop]),
        limiter=np.array([np.argmax(times)]), times=np.array([times]), bytes=np.array([moved]), tiling=zeros,
        tile=np.zeros((1, LEVELS, 3), dtype=np.int64), stationary=np.zeros((1, LEVELS), dtype=np.int64),
        parts=zeros, waves=zeros, busy=np.ones(1), energy_ratio=np.ones(1), padding=np.ones(1),
        candidates=zeros,
    )  # fmt: skip


@st.composite
def cases(draw):
    """A kernel, its device, and the share of the range from rest to budget that the limit is."""
    times = [1e-4 * draw(st.floats(1e-3, 1.0)) for _ in range(5)]
    time = float(np.sum(np.array(times[:-1]) ** 4) ** 0.25) + times[-1]
    rest, running = 0.3 * BUDGET * draw(SHARES), 0.3 * BUDGET * draw(SHARES)
    watts = [BUDGET * draw(SHARES) for _ in range(LEVELS + 2)]  # of operations, levels, main memory
    threshold = draw(st.sampled_from((0.0, 0.2, 0.4)))
    return times, time, rest, running, watts, threshold, draw(st.floats(0.02, 1.2)), draw(SHARES)


def run(case, share=None):
    times, time, rest, running, watts, threshold, drawn_share, leaks = case
    limit = rest + (BUDGET - rest) * (drawn_share if share is None else share)
    moved = [1e6] * (LEVELS + 1)
    one = np.ones(1)
    kernels = Kernels(
        device=np.zeros(1, dtype=np.int64), operations=np.array([watts[0] * time]),
        per_byte=np.array([[joules * time / 1e6] for joules in watts[1:]]),
        bandwidth=np.full((1, LEVELS + 1), 1e15),
    )  # fmt: skip
    cores = Cores(
        voltage=VOLTAGE * one, threshold=threshold * one, minimum=MINIMUM * one, budget=BUDGET * one,
        drive=0.0 * one, peak=one,
    )  # fmt: skip
    power = Power(
        rest * one, leaks * rest * one, 0.0 * one, running * one, 0.0 * one, limit * one,
        np.ones(1, dtype=np.bool_),
    )  # fmt: skip
    slowed, slower = slow_down(timing(times, 1e9, moved), kernels, cores, power)
    return slowed, bool(slower[0]), limit


@given(cases())
def test_times_are_the_oracles(case):
    times, time, rest, running, watts, threshold, _, leaks = case
    slowed, slower, limit = run(case)
    above = BUDGET - rest
    running = min(running, above)
    moving = min(watts[-1], above - running)
    kernel = {
        "switching": min(sum(watts[:-1]), above - running - moving) * time, "moving": moving * time,
        "seconds": time, "inside": times[:-2], "memory": times[-2], "launches": times[-1], "start": VOLTAGE,
    }  # fmt: skip
    chip = {
        "rest": rest, "leaking": leaks * rest, "running": running, "threshold": threshold, "minimum": MINIMUM,
    }  # fmt: skip
    seconds, watts_drawn = naive.limited(kernel, chip, limit)
    assert slowed.time[0] == pytest.approx(seconds, rel=1e-6)
    if slower and limit < BUDGET:
        assert watts_drawn == pytest.approx(limit, rel=1e-6)


@given(cases(), SHARES, SHARES)
def test_a_lower_limit_never_makes_a_kernel_faster(case, one, other):
    low, high = sorted((0.02 + 0.98 * one, 0.02 + 0.98 * other))
    assert run(case, low)[0].time[0] >= run(case, high)[0].time[0] * (1 - 1e-9)


@given(cases())
def test_the_budget_as_limit_changes_nothing(case):
    slowed, slower, _ = run(case, 1.0)
    assert not slower
    assert slowed.time[0] == timing(case[0], 1e9, [1e6] * 3).time[0]


@given(cases())
def test_bytes_of_main_memory_and_launches_keep_their_times(case):
    slowed, slower, _ = run(case)
    before = timing(case[0], 1e9, [1e6] * 3)
    assert np.array_equal(slowed.times[:, -2:], before.times[:, -2:])
    assert (slowed.times >= before.times).all()
    if slower:
        inside = slowed.times[0, :-2] / before.times[0, :-2]
        assert inside == pytest.approx(inside[0])
        assert slowed.limiter[0] == slowed.times[0].argmax()


def test_a_kernel_of_main_memory_alone_keeps_its_time_while_its_clock_falls():
    case = ([1e-6, 1e-6, 1e-6, 1e-4, 0.0], 1e-4, 100.0, 100.0, [0.0, 0.0, 0.0, 150.0], 0.0, 1.0, 0.0)
    before = run(case, 1.0)[0].time[0]
    slowed, slower, _ = run(case, 0.55)  # 320 W, of 350 W
    assert slower
    assert slowed.time[0] == pytest.approx(before, rel=1e-4)
    assert run(case, 0.3)[0].time[0] > 1.01 * before  # 220 W, below rest and bytes
