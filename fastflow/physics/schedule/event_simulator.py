"""Event-driven simulation of task graphs under resource constraints (6.5).

A task occupies one resource for its duration, once every task that it needs has ended. A resource
takes `capacity` tasks at once: a device k kernels, a port of the network one transfer. Ties break by
number: of the tasks that are ready for a resource the lowest goes first, so that a result can be
reproduced to the bit. Tasks that end at the same time free their resources and release what waits
for them before any task starts at that time.

A *background* task (a sum of weight gradients, sent in small buckets) moves like a fluid: it runs in a
slot that no other task wants, is paused when one does, and goes on later with what is left of it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fastflow.core.jit import kernel
from fastflow.core.tables import Bools, Floats, Ints


class Tasks(NamedTuple):
    """A task graph: successors[offset[i]:offset[i + 1]] need task i; it has no cycle."""

    resource: Ints  # that a task occupies, (tasks,)
    background: Bools  # runs where nothing else wants to, (tasks,)
    needs: Ints  # how many tasks a task waits for, (tasks,)
    offset: Ints  # (tasks + 1,)
    successors: Ints  # (edges,)
    capacity: Ints  # tasks at once, (resources,)


class Segments(NamedTuple):
    """When background tasks ran, in the order in which they stopped; shape (segments,)."""

    task: Ints
    start: Floats  # [s]
    end: Floats  # [s]


class _Queues(NamedTuple):
    """Room for one simulation: what waits for each resource, and what runs in the background.

    Queue 2 r holds the tasks that are ready for resource r, queue 2 r + 1 the background ones: binary
    heaps of task numbers, at heap[at[q]:] each.
    """

    heap: Ints  # (tasks,)
    at: Ints  # (2 resources + 1,)
    size: Ints  # (2 resources,)
    busy: Ints  # slots with a task that is not in the background, (resources,)
    beside: Ints  # background tasks that run, at beside[beside_at[r]:], (all slots,)
    beside_at: Ints  # (resources + 1,)
    besides: Ints  # how many of them run, (resources,)
    left: Floats  # of a background task [s], (tasks,)
    since: Floats  # when it went on [s], (tasks,)


@kernel
def _push(heap: Ints, at: int, size: int, task: int) -> None:
    """Add a task to the binary heap of `size` numbers at heap[at:]."""
    place = size
    while place > 0 and heap[at + ((place - 1) >> 1)] > task:
        heap[at + place] = heap[at + ((place - 1) >> 1)]
        place = (place - 1) >> 1
    heap[at + place] = task


@kernel
def _pop(heap: Ints, at: int, size: int) -> int:
    """Take the lowest number out of the heap at heap[at:], in which `size` remain."""
    lowest: int = heap[at]
    moved, place, child = heap[at + size], 0, 1
    while child < size:
        if child + 1 < size and heap[at + child + 1] < heap[at + child]:
            child += 1
        if heap[at + child] >= moved:
            break
        heap[at + place] = heap[at + child]
        place, child = child, 2 * child + 1
    heap[at + place] = moved
    return lowest


@kernel
def _push_end(ends: Floats, running: Ints, size: int, end: float, task: int) -> None:
    """Add a task to the heap of running ones, soonest end first."""
    place = size
    while place > 0 and ends[(place - 1) >> 1] > end:
        parent = (place - 1) >> 1
        ends[place], running[place] = ends[parent], running[parent]
        place = parent
    ends[place], running[place] = end, task


@kernel
def _pop_end(ends: Floats, running: Ints, size: int) -> int:
    """Take the task that ends soonest out of the heap, in which `size` remain."""
    soonest: int = running[0]
    end, task, place, child = ends[size], running[size], 0, 1
    while child < size:
        if child + 1 < size and ends[child + 1] < ends[child]:
            child += 1
        if ends[child] >= end:
            break
        ends[place], running[place] = ends[child], running[child]
        place, child = child, 2 * child + 1
    ends[place], running[place] = end, task
    return soonest


@kernel
def _log(segments: Segments, logged: int, task: int, start: float, end: float) -> int:
    """Write a segment down where there is room for one; returns how many there are."""
    if segments.task.size == 0 or start == end:
        return logged
    segments.task[logged], segments.start[logged], segments.end[logged] = task, start, end
    return logged + 1


@kernel
def _choose_background(
    resource: int, now: float, capacity: Ints, queues: _Queues, start: Floats, end: Floats,
    ends: Floats, running: Ints, size: int, segments: Segments, logged: int,
) -> tuple[int, int]:  # fmt: skip
    """Let the lowest background tasks of a resource run in the slots that are free, and pause others.

    A paused task stays in the heap of running ones; `end` tells that it is not due.

    Returns how many entries that heap has, and how many segments are logged.
    """
    queue, at = 2 * resource + 1, queues.beside_at[resource]
    free = capacity[resource] - queues.busy[resource]
    while True:
        count, highest = queues.besides[resource], at
        for i in range(at + 1, at + count):
            highest = i if queues.beside[i] > queues.beside[highest] else highest
        waiting = queues.size[queue] > 0
        lower = waiting and count > 0 and queues.heap[queues.at[queue]] < queues.beside[highest]
        if count > free or (count == free and lower):
            task = queues.beside[highest]
            queues.beside[highest] = queues.beside[at + count - 1]
            queues.besides[resource] -= 1
            queues.left[task] = max(queues.left[task] - (now - queues.since[task]), 0.0)
            end[task] = np.inf
            logged = _log(segments, logged, task, queues.since[task], now)
            _push(queues.heap, queues.at[queue], queues.size[queue], task)
            queues.size[queue] += 1
        elif waiting and count < free:
            queues.size[queue] -= 1
            task = _pop(queues.heap, queues.at[queue], queues.size[queue])
            queues.beside[at + count] = task
            queues.besides[resource] += 1
            queues.since[task] = now
            start[task] = min(start[task], now)
            end[task] = now + queues.left[task]
            _push_end(ends, running, size, end[task], task)
            size += 1
        else:
            return size, logged


@kernel
def _end_background(resource: int, task: int, queues: _Queues) -> None:
    """Take a background task that has ended off its slot."""
    at = queues.beside_at[resource]
    queues.besides[resource] -= 1
    last = at + queues.besides[resource]
    for i in range(at, last):
        if queues.beside[i] == task:
            queues.beside[i] = queues.beside[last]


@kernel
def _new_queues(tasks: Tasks) -> _Queues:
    """Make room for simulations of a task graph."""
    count, resources = tasks.resource.size, tasks.capacity.size
    at, beside_at = np.zeros(2 * resources + 1, dtype=np.int64), np.zeros(resources + 1, dtype=np.int64)
    for task in range(count):
        at[2 * tasks.resource[task] + tasks.background[task] + 1] += 1
    for queue in range(2 * resources):
        at[queue + 1] += at[queue]
    for resource in range(resources):
        beside_at[resource + 1] = beside_at[resource] + tasks.capacity[resource]
    return _Queues(
        heap=np.empty(count, dtype=np.int64),
        at=at,
        size=np.zeros(2 * resources, dtype=np.int64),
        busy=np.zeros(resources, dtype=np.int64),
        beside=np.empty(beside_at[resources], dtype=np.int64),
        beside_at=beside_at,
        besides=np.zeros(resources, dtype=np.int64),
        left=np.empty(count),
        since=np.empty(count),
    )


@kernel
def _touch(resource: int, touched: Ints, is_touched: Bools, touches: int) -> int:
    """Note that a resource has something to decide; returns how many have."""
    if not is_touched[resource]:
        touched[touches], is_touched[resource] = resource, True
        return touches + 1
    return touches


@kernel
def _release_first(
    tasks: Tasks, duration: Floats, queues: _Queues, waits: Ints, start: Floats, end: Floats,
    touched: Ints, is_touched: Bools,
) -> int:  # fmt: skip
    """Queue the tasks that wait for none; returns how many resources have something to decide."""
    touches = 0 * duration.size  # for the literal 0 Numba would compile all that it is passed to twice
    for task in range(duration.size):
        waits[task], queues.left[task] = tasks.needs[task], duration[task]
        start[task], end[task] = np.inf, np.inf
        if waits[task] == 0:
            queue = 2 * tasks.resource[task] + tasks.background[task]
            _push(queues.heap, queues.at[queue], queues.size[queue], task)
            queues.size[queue] += 1
            touches = _touch(tasks.resource[task], touched, is_touched, touches)
    return touches


@kernel
def simulate_once(
    tasks: Tasks, duration: Floats, queues: _Queues, ends: Floats, running: Ints, waits: Ints,
    start: Floats, end: Floats, segments: Segments,
) -> int:  # fmt: skip
    """Simulate a task graph once, and write when every task starts and ends.

    duration [s], waits, start and end [s]: (tasks,); ends, running: room for the tasks that run and for
    the ends of those that were paused, (2 tasks,). Returns how many segments were logged.
    """
    resource, background = tasks.resource, tasks.background
    offset, successors = tasks.offset, tasks.successors
    capacity, heap, at, waiting, busy = tasks.capacity, queues.heap, queues.at, queues.size, queues.busy
    besides, touched, is_touched = queues.besides, np.empty_like(busy), np.zeros(busy.size, dtype=np.bool_)
    none = 0 * duration.size  # for the literal 0 Numba would compile all that it is passed to twice
    size, logged, now = none, none, 0.0
    touches = _release_first(tasks, duration, queues, waits, start, end, touched, is_touched)
    while True:
        for i in range(touches):
            r = touched[i]
            is_touched[r] = False
            while busy[r] < capacity[r] and waiting[2 * r] > 0:
                waiting[2 * r] -= 1
                task = _pop(heap, at[2 * r], waiting[2 * r])
                busy[r] += 1
                start[task], end[task] = now, now + duration[task]
                _push_end(ends, running, size, end[task], task)
                size += 1
            if waiting[2 * r + 1] > 0 or besides[r] > 0:
                size, logged = _choose_background(
                    r, now, capacity, queues, start, end, ends, running, size, segments, logged
                )
        if size == 0:
            return logged
        touches, now = none, ends[0]
        while size > 0 and ends[0] == now:
            size -= 1
            task = _pop_end(ends, running, size)
            if waits[task] != 0 or end[task] != now:  # it was paused, and that end is no longer true
                continue
            waits[task] = -1
            touches = _touch(resource[task], touched, is_touched, touches)
            if background[task]:
                _end_background(resource[task], task, queues)
                logged = _log(segments, logged, task, queues.since[task], now)
            else:
                busy[resource[task]] -= 1
            for edge in range(offset[task], offset[task + 1]):
                released = successors[edge]
                waits[released] -= 1
                if waits[released] == 0:
                    queue = 2 * resource[released] + background[released]
                    _push(heap, at[queue], waiting[queue], released)
                    waiting[queue] += 1
                    touches = _touch(resource[released], touched, is_touched, touches)


@kernel
def _new_segments(count: int) -> Segments:
    return Segments(np.empty(count, dtype=np.int64), np.empty(count), np.empty(count))


@kernel
def simulate(tasks: Tasks, durations: Floats) -> tuple[Floats, Floats]:
    """Return when every task starts and ends [s]; a background task starts when it first runs.

    durations [s], and both results: (rows, tasks); every row is a simulation of its own.
    """
    rows, count = durations.shape
    start, end = np.empty((rows, count)), np.empty((rows, count))
    queues, nothing = _new_queues(tasks), _new_segments(0)
    ends, running, waits = np.empty(2 * count), np.empty(2 * count, np.int64), np.empty(count, np.int64)
    for row in range(rows):
        simulate_once(tasks, durations[row], queues, ends, running, waits, start[row], end[row], nothing)
    return start, end


@kernel
def background_segments(tasks: Tasks, duration: Floats) -> Segments:
    """Return when background tasks ran, from start to pause or end; duration [s]: (tasks,)."""
    count = duration.size
    # a task is paused when one starts or is released
    segments, floats, ints = _new_segments(2 * count), np.empty((2, count)), np.empty(count, np.int64)
    ends, running = np.empty(2 * count), np.empty(2 * count, np.int64)
    logged = simulate_once(
        tasks, duration, _new_queues(tasks), ends, running, ints, floats[0], floats[1], segments
    )
    return Segments(segments.task[:logged], segments.start[:logged], segments.end[:logged])
