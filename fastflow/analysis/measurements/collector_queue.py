"""What the devices of a collector ran before each of its cases.

The collector (ai-dynamo/aiconfigurator@095f58a, collector/collect.py and helper.py) has one queue of cases
for eight devices. A device takes the next case, prepares it, lets its kernel run, and appends a row to a file
that all share: it makes a lock file, tries again 0.1 s later where another device has made it, writes the
row, waits for the disk (fsync), and removes the lock. How long a disk takes varies, so that the same cases go
to other devices each time. What ran before a case is therefore the mean over several times.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import NamedTuple

import numpy as np

from fastflow.analysis.measurements.kernel_cache import DEVICES
from fastflow.analysis.measurements.power_meter import MEAN_S, READING_S, READINGS, length_of_run
from fastflow.analysis.measurements.predict import predict_iterations
from fastflow.core.tables import Columns, Floats, Ints
from fastflow.physics.hardware.power import rest_of

RETRY_S = 0.1  # until a device tries to make the lock file again
TIMES = 8  # over which the mean is
SPREAD = 0.5  # of the times of a disk: standard deviation of their logarithm


class Waits(NamedTuple):
    """What a device waits for beside its runs [s]."""

    pause: float  # while it prepares a case
    disk: float  # of a row, the median


class Schedule(NamedTuple):
    """Where and when cases ran; shape (cases,)."""

    device: Ints
    start: Floats  # of their runs [s]


def left_of_cases(row: Columns, sizes: Columns, waits: Waits) -> Floats:
    """Return what readings of each case have of the cases before [W], (cases, readings).

    row: the model's inputs, of one case; sizes: those that differ between the cases, in their order.
    """
    count = next(iter(sizes.values())).size
    inputs = {key: np.repeat(column, count) for key, column in row.items()} | sizes
    results = predict_iterations(inputs).columns
    time = results["time_s"]
    more = results["energy_J"] / results["devices"] / time - rest_of(inputs)
    left, runs = np.zeros((count, READINGS)), np.isfinite(time)
    left[runs] = left_of_others(length_of_run(time[runs], 1), more[runs], waits)
    return left


def left_of_others(run: Floats, more: Floats, waits: Waits) -> Floats:
    """Return what readings have of the runs before [W], (cases, readings).

    run: how long each case runs, in their order [s]; more: its power beyond rest [W].
    """
    left = np.zeros((run.size, READINGS))
    for writing in np.random.default_rng(0).lognormal(np.log(waits.disk), SPREAD, (TIMES, run.size)):
        left += left_in_readings(schedule_cases(run, waits.pause, writing), run, more)
    return left / TIMES


def schedule_cases(run: Floats, pause: float, writing: Floats) -> Schedule:
    """Return where and when cases run; writing: how long the rows take to write, in their order [s]."""
    schedule = Schedule(np.zeros(run.size, dtype=np.int64), np.zeros(run.size))
    steps = [(0.0, device, False) for device in range(DEVICES)]  # when, and whether it has a row to write
    heapify(steps)
    case, row, unlocked = 0, 0, 0.0
    while case < run.size:
        time, device, has_row = heappop(steps)
        if not has_row:
            schedule.device[case], schedule.start[case] = device, time + pause
            heappush(steps, (time + pause + float(run[case]), device, True))
            case += 1
        elif time < unlocked:
            heappush(steps, (time + RETRY_S, device, True))
        else:
            unlocked = time + float(writing[row])
            heappush(steps, (unlocked, device, False))
            row += 1
    return schedule


def left_in_readings(schedule: Schedule, run: Floats, more: Floats) -> Floats:
    """Return what the readings of each case have of the runs before on its device [W], (cases, readings)."""
    order = np.argsort(schedule.device, kind="stable")
    is_same = np.diff(schedule.device[order]) == 0
    previous = np.full(run.size, -1)
    previous[order[1:][is_same]] = order[:-1][is_same]
    ends, at = schedule.start + run, schedule.start[:, None] + READING_S * np.arange(READINGS)
    left, before = np.zeros(at.shape), previous.copy()
    while (before >= 0).any():
        rows = np.flatnonzero(before >= 0)
        run_of = before[rows]
        since = np.maximum(schedule.start[run_of][:, None], at[rows] - MEAN_S)
        left[rows] += more[run_of][:, None] * np.maximum(ends[run_of][:, None] - since, 0.0) / MEAN_S
        is_past = ends[run_of] <= schedule.start[rows] - MEAN_S
        before[rows] = np.where(is_past, -1, previous[run_of])
    return left
