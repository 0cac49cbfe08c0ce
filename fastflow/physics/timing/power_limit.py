"""Kernels on devices whose power is limited below their budget (`chip.power_limit`, as NVML sets it).

A kernel that would draw more than the limit runs at a lower clock, at which it draws the limit. The supply V
falls with the clock down to the lowest supply. Below it the clock falls alone. Chips whose full power is
known (`chip.pinned.boost_W`) keep the law of their sustained clock (`library.thread_blocks`): V in proportion
to the clock. Others follow the alpha-power law of `hardware.voltage`: f ~ (V - Vt)^2 / V.

- Operations, bytes of on-chip memories and the clock tree take energy with the square of the supply. Leakage
  falls with it, too (`hardware/leakage.py`). Bytes of main memory and the rest that a device draws do not
  depend on it.
- Operations and on-chip memories slow down with the clock. Main memory and launches do not: a limit does not
  change the clock of memory (NVML). The time of a kernel grows with the soft maximum of both. So a kernel
  that waits for main memory hardly slows down, until on-chip memories take as long.

The times of kernels are those at the budget already. Where the sum of a kernel's parts is above the budget
there, the clock has fallen, and so has the energy of operations: the kernel draws its budget.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fastflow.core.tables import Bools, Floats, Ints, take
from fastflow.physics.hardware.leakage import of_supply
from fastflow.physics.hardware.power import Power, running_share
from fastflow.physics.timing.library.thread_blocks import ORDER
from fastflow.physics.timing.roofline import Timing

PRECISION = 1e-12  # of the power above rest at the clock that is found
MOST_STEPS = 200  # of the search for the clock; some ten are needed


class Cores(NamedTuple):
    """The supply of devices' cores, and their power at the highest clock; shape (devices,)."""

    voltage: Floats  # at the highest clock [V]
    threshold: Floats  # of the alpha-power law [V]; 0: V is in proportion to the clock
    minimum: Floats  # [V]
    budget: Floats  # of the device [W]
    drive: Floats  # `Library.drive`
    peak: Floats  # `Library.peak_flops`


class Kernels(NamedTuple):
    """What kernels take besides their times; shape (kernels,) unless given."""

    device: Ints
    operations: Floats  # energy of all operations [J]
    per_byte: Floats  # energy of each level, main memory last [J/B], (levels + 1, devices)
    bandwidth: Floats  # of each level, main memory last [B/s], (devices, levels + 1)


class _Work(NamedTuple):
    """What kernels draw and take at the clock of the budget; shape (kernels,)."""

    running: Floats  # power of the clock tree [W]
    leaking: Floats  # power of leakage [W]
    switching: Floats  # energy of operations and on-chip bytes [J]
    moving: Floats  # energy of bytes of main memory [J]
    time: Floats  # [s]
    inside: Floats  # time of operations and on-chip memories [s]
    memory: Floats  # time of main memory [s]
    launches: Floats  # [s]


class _Curve(NamedTuple):
    """The supply over the clock; shape (kernels,)."""

    rate: Floats  # (V - Vt)^2 / V at the clock of the budget
    supply: Floats  # V there
    threshold: Floats
    minimum: Floats

    def lift(self, clock: Floats) -> Floats:
        """Return the square of the supply over that at the budget; clock: over that at the budget."""
        half = self.threshold + 0.5 * self.rate * clock
        supply = half + np.sqrt(half * half - self.threshold**2)
        lift: Floats = (np.maximum(supply, self.minimum) / self.supply) ** 2
        return lift


@np.errstate(divide="ignore", invalid="ignore")
def slow_down(timing: Timing, kernels: Kernels, cores: Cores, power: Power) -> tuple[Timing, Bools]:
    """Return the times of kernels within the limits of their devices, and which kernels are slower.

    power: of the devices. Kernels whose limits are the budgets, or that draw less, keep their times.
    """
    device, levels = kernels.device, timing.bytes.shape[1] - 1
    joules = kernels.per_byte.T[device] * timing.bytes
    switching, moving = kernels.operations + joules[:, :levels].sum(axis=1), joules[:, levels]
    running = power.active[device] * running_share(timing.busy)
    wanted = power.idle[device] + running + (switching + moving) / timing.time
    limited = np.minimum(power.limit, cores.budget)[device]
    slower = (power.limit < cores.budget)[device] & (wanted > limited)
    rows = np.flatnonzero(slower)
    if not rows.size:
        return timing, slower
    served = timing.bytes[rows] / kernels.bandwidth[device[rows]]
    times = np.maximum(timing.times[rows, : levels + 2], np.pad(served, ((0, 0), (1, 0))))
    work = _at_budget(
        _Work(
            running[rows], power.leaking[device[rows]], switching[rows], moving[rows], timing.time[rows],
            (times[:, :-1] ** ORDER).sum(axis=1) ** (1.0 / ORDER), times[:, -1], timing.times[rows, -1],
        ),
        (cores.budget - power.idle)[device[rows]],
    )  # fmt: skip
    curve = _curve(
        take(cores, device[rows]), timing.flop[rows] / timing.time[rows], timing.energy_ratio[rows]
    )
    clock = _clock(work, curve, limited[rows] - power.idle[device[rows]])
    return _slowed(timing, rows, clock, _time(work, clock)), slower


def _at_budget(work: _Work, above_rest: Floats) -> _Work:
    """Return the work with less energy where it is above the budget; above_rest: budget above rest [W]."""
    running = np.minimum(work.running, above_rest)
    left = (above_rest - running) * work.time
    moving = np.minimum(work.moving, left)
    return work._replace(running=running, moving=moving, switching=np.minimum(work.switching, left - moving))


def _curve(cores: Cores, flops: Floats, energy_ratio: Floats) -> _Curve:
    """Return the supply of cores over the clock.

    flops: of a kernel at the budget [flop/s]; energy_ratio: see `Timing`, the square of a raised supply.
    Operations at the highest clock would draw `drive` times the budget. Where that is above 1, the clock has
    fallen with the cube root of the power, and the energy of an operation with the square of the clock.
    """
    above = np.maximum(cores.drive * flops / cores.peak, 1.0)
    highest = np.maximum(cores.voltage * np.sqrt(energy_ratio), cores.minimum)
    rate = (highest - cores.threshold) ** 2 / highest / np.sqrt(above)
    curve = _Curve(rate, np.ones(rate.size), cores.threshold, cores.minimum)
    return curve._replace(supply=np.sqrt(curve.lift(np.ones(rate.size))))


def _time(work: _Work, clock: Floats) -> Floats:
    """Return the time of kernels at a clock [s]; clock: over that at the budget."""

    def sum_of_parts(inside: Floats) -> Floats:
        longest = np.maximum(np.maximum(inside, work.memory), np.finfo(np.float64).tiny)
        soft = ((inside / longest) ** ORDER + (work.memory / longest) ** ORDER) ** (1.0 / ORDER)
        total: Floats = longest * soft + work.launches
        return total

    time: Floats = work.time * (sum_of_parts(work.inside / clock) / sum_of_parts(work.inside))
    return time


def _clock(work: _Work, curve: _Curve, most: Floats) -> Floats:
    """Return the clock at which kernels draw their limits, over that at the budget.

    most: limit above rest [W]. By the Illinois method on logs of clock and power. It starts where the power
    is surely below the limit: at most in proportion to the clock, with times of on-chip parts alone.
    """
    inside = np.maximum(work.inside, np.finfo(np.float64).tiny)
    alone = (work.switching + work.moving) / work.time * (inside + work.memory + work.launches) / inside
    low, high = np.log(np.minimum(most / (work.running + alone), 1.0)), np.zeros(most.size)

    def error(log_clock: Floats) -> Floats:
        clock = np.exp(log_clock)
        lift = curve.lift(clock)
        drawn = work.running * clock * lift + (work.switching * lift + work.moving) / _time(work, clock)
        logs: Floats = np.log((drawn + work.leaking * of_supply(lift)) / (most + work.leaking))
        return logs

    below, above = error(low), error(high)
    middle = high
    side = np.zeros(most.size)
    for _ in range(MOST_STEPS):
        middle = np.where(above > below, high - above * (high - low) / (above - below), high)
        current = error(middle)
        if (np.abs(current) < PRECISION).all():
            break
        is_above = current > 0.0
        below = np.where(is_above, np.where(side > 0.0, 0.5 * below, below), current)
        above = np.where(is_above, current, np.where(side < 0.0, 0.5 * above, above))
        low, high = np.where(is_above, low, middle), np.where(is_above, middle, high)
        side = np.where(is_above, 1.0, -1.0)
    clock: Floats = np.exp(middle)
    return clock


def _slowed(timing: Timing, rows: Ints, clock: Floats, time: Floats) -> Timing:
    """Return times with some kernels at a lower clock; time: theirs [s]."""
    new_time, times, limiter = timing.time.copy(), timing.times.copy(), timing.limiter.copy()
    new_time[rows] = np.maximum(time, timing.time[rows])
    times[rows, :-2] = times[rows, :-2] / clock[:, None]
    limiter[rows] = times[rows].argmax(axis=1)
    return timing._replace(time=new_time, times=times, limiter=limiter)
