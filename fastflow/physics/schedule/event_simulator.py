"""Event-driven simulation of task graphs under resource constraints (6.5).

A task occupies a resource for its duration, once all its predecessors have ended. A resource
takes `capacity` tasks at once: a device k kernels, a port of the network one transfer. Ties break by
number: of the tasks that are ready for a resource the lowest goes first, so that a result can be
reproduced to the bit. Tasks that end at the same time free their resources and release their
successors before any task starts at that time.

A *background* task (a sum of weight gradients, sent in small buckets) is preemptible: it runs in a slot that
no other task wants, is paused when another task wants it, and later resumes with its remaining time.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fastflow.core.jit import kernel
from fastflow.core.tables import Bools, Floats, Ints


class Tasks(NamedTuple):
    """A task graph: successors[offset[i]:offset[i + 1]] need task i; it has no cycle."""

    resource: Ints  # that a task occupies, (tasks,)
    background: Bools  # runs in slots that no other task wants, (tasks,)
    needs: Ints  # number of predecessors, (tasks,)
    offset: Ints  # (tasks + 1,)
    successors: Ints  # (edges,)
    capacity: Ints  # tasks at once, (resources,)


class Segments(NamedTuple):
    """When background tasks ran, in the order in which they stopped; shape (segments,)."""

    task: Ints
    start: Floats  # [s]
    end: Floats  # [s]


class _Queues(NamedTuple):
    """Workspace of a simulation: the ready tasks of each resource, and its running background tasks.

    Queue 2 r holds the tasks that are ready for resource r, queue 2 r + 1 its background tasks: binary
    heaps of task numbers, each from heap[heap_offset[q]] on.
    """

    heap: Ints  # (tasks,)
    heap_offset: Ints  # (2 resources + 1,)
    size: Ints  # (2 resources,)
    busy: Ints  # slots with a foreground task, (resources,)
    background: Ints  # background tasks that run, from background_offset[r] on, (all slots,)
    background_offset: Ints  # (resources + 1,)
    num_background: Ints  # how many background tasks run, (resources,)
    remaining: Floats  # time of a background task [s], (tasks,)
    resumed: Floats  # when it last started or resumed [s], (tasks,)


@kernel
def _push(heap: Ints, base: int, size: int, task: int) -> None:
    """Add a task to the binary heap of `size` numbers from heap[base] on."""
    index = size
    while index > 0 and heap[base + ((index - 1) >> 1)] > task:
        heap[base + index] = heap[base + ((index - 1) >> 1)]
        index = (index - 1) >> 1
    heap[base + index] = task


@kernel
def _pop(heap: Ints, base: int, size: int) -> int:
    """Take the lowest number out of the heap from heap[base] on, in which `size` remain."""
    lowest: int = heap[base]
    moved, index, child = heap[base + size], 0, 1
    while child < size:
        if child + 1 < size and heap[base + child + 1] < heap[base + child]:
            child += 1
        if heap[base + child] >= moved:
            break
        heap[base + index] = heap[base + child]
        index, child = child, 2 * child + 1
    heap[base + index] = moved
    return lowest


@kernel
def _push_end(ends: Floats, running: Ints, size: int, end: float, task: int) -> None:
    """Add a task to the heap of running tasks, soonest end first."""
    index = size
    while index > 0 and ends[(index - 1) >> 1] > end:
        parent = (index - 1) >> 1
        ends[index], running[index] = ends[parent], running[parent]
        index = parent
    ends[index], running[index] = end, task


@kernel
def _pop_end(ends: Floats, running: Ints, size: int) -> int:
    """Take the task that ends soonest out of the heap, in which `size` remain."""
    soonest: int = running[0]
    end, task, index, child = ends[size], running[size], 0, 1
    while child < size:
        if child + 1 < size and ends[child + 1] < ends[child]:
            child += 1
        if ends[child] >= end:
            break
        ends[index], running[index] = ends[child], running[child]
        index, child = child, 2 * child + 1
    ends[index], running[index] = end, task
    return soonest


@kernel
def _add_segment(segments: Segments, num_segments: int, task: int, start: float, end: float) -> int:
    """Record a segment, unless segments are not recorded; returns the number of segments."""
    if segments.task.size == 0 or start == end:
        return num_segments
    segments.task[num_segments], segments.start[num_segments], segments.end[num_segments] = task, start, end
    return num_segments + 1


@kernel
def _schedule_background(
    resource: int, now: float, capacity: Ints, queues: _Queues, start: Floats, end: Floats,
    ends: Floats, running: Ints, size: int, segments: Segments, num_segments: int,
) -> tuple[int, int]:  # fmt: skip
    """Run the lowest background tasks of a resource in its free slots, and pause the others.

    A paused task stays in the heap of running tasks; its `end` is infinite then.

    Returns the number of entries of that heap, and of segments.
    """
    queue, first = 2 * resource + 1, queues.background_offset[resource]
    free = capacity[resource] - queues.busy[resource]
    while True:
        count, highest = queues.num_background[resource], first
        for i in range(first + 1, first + count):
            highest = i if queues.background[i] > queues.background[highest] else highest
        waiting = queues.size[queue] > 0
        lower = waiting and count > 0 and queues.heap[queues.heap_offset[queue]] < queues.background[highest]
        if count > free or (count == free and lower):
            task = queues.background[highest]
            queues.background[highest] = queues.background[first + count - 1]
            queues.num_background[resource] -= 1
            queues.remaining[task] = max(queues.remaining[task] - (now - queues.resumed[task]), 0.0)
            end[task] = np.inf
            num_segments = _add_segment(segments, num_segments, task, queues.resumed[task], now)
            _push(queues.heap, queues.heap_offset[queue], queues.size[queue], task)
            queues.size[queue] += 1
        elif waiting and count < free:
            queues.size[queue] -= 1
            task = _pop(queues.heap, queues.heap_offset[queue], queues.size[queue])
            queues.background[first + count] = task
            queues.num_background[resource] += 1
            queues.resumed[task] = now
            start[task] = min(start[task], now)
            end[task] = now + queues.remaining[task]
            _push_end(ends, running, size, end[task], task)
            size += 1
        else:
            return size, num_segments


@kernel
def _end_background(resource: int, task: int, queues: _Queues) -> None:
    """Free the slot of a background task that has ended."""
    first = queues.background_offset[resource]
    queues.num_background[resource] -= 1
    last = first + queues.num_background[resource]
    for i in range(first, last):
        if queues.background[i] == task:
            queues.background[i] = queues.background[last]


@kernel
def _new_queues(tasks: Tasks) -> _Queues:
    """Return the workspace for simulations of a task graph."""
    count, resources = tasks.resource.size, tasks.capacity.size
    heap_offset = np.zeros(2 * resources + 1, dtype=np.int64)
    background_offset = np.zeros(resources + 1, dtype=np.int64)
    for task in range(count):
        heap_offset[2 * tasks.resource[task] + tasks.background[task] + 1] += 1
    for queue in range(2 * resources):
        heap_offset[queue + 1] += heap_offset[queue]
    for resource in range(resources):
        background_offset[resource + 1] = background_offset[resource] + tasks.capacity[resource]
    return _Queues(
        heap=np.empty(count, dtype=np.int64),
        heap_offset=heap_offset,
        size=np.zeros(2 * resources, dtype=np.int64),
        busy=np.zeros(resources, dtype=np.int64),
        background=np.empty(background_offset[resources], dtype=np.int64),
        background_offset=background_offset,
        num_background=np.zeros(resources, dtype=np.int64),
        remaining=np.empty(count),
        resumed=np.empty(count),
    )


@kernel
def _mark_touched(resource: int, touched: Ints, is_touched: Bools, num_touched: int) -> int:
    """Mark a resource whose queue or slots have changed; returns how many are marked."""
    if not is_touched[resource]:
        touched[num_touched], is_touched[resource] = resource, True
        return num_touched + 1
    return num_touched


@kernel
def _release_roots(
    tasks: Tasks, duration: Floats, queues: _Queues, waits: Ints, start: Floats, end: Floats,
    touched: Ints, is_touched: Bools,
) -> int:  # fmt: skip
    """Queue the tasks without predecessors; returns how many resources are marked."""
    num_touched = 0 * duration.size  # for the literal 0 Numba would compile all that it is passed to twice
    for task in range(duration.size):
        waits[task], queues.remaining[task] = tasks.needs[task], duration[task]
        start[task], end[task] = np.inf, np.inf
        if waits[task] == 0:
            queue = 2 * tasks.resource[task] + tasks.background[task]
            _push(queues.heap, queues.heap_offset[queue], queues.size[queue], task)
            queues.size[queue] += 1
            num_touched = _mark_touched(tasks.resource[task], touched, is_touched, num_touched)
    return num_touched


@kernel
def simulate_once(
    tasks: Tasks, duration: Floats, queues: _Queues, ends: Floats, running: Ints, waits: Ints,
    start: Floats, end: Floats, segments: Segments,
) -> int:  # fmt: skip
    """Simulate a task graph once, and write when every task starts and ends.

    duration [s], waits, start and end [s]: (tasks,); ends, running: workspace for the heap
    of running and paused tasks, (2 tasks,). Returns the number of segments.
    """
    resource, background = tasks.resource, tasks.background
    offset, successors = tasks.offset, tasks.successors
    heap, heap_offset, waiting, busy = queues.heap, queues.heap_offset, queues.size, queues.busy
    capacity, num_background = tasks.capacity, queues.num_background
    touched, is_touched = np.empty_like(busy), np.zeros(busy.size, dtype=np.bool_)
    none = 0 * duration.size  # for the literal 0 Numba would compile all that it is passed to twice
    size, num_segments, now = none, none, 0.0
    num_touched = _release_roots(tasks, duration, queues, waits, start, end, touched, is_touched)
    while True:
        for i in range(num_touched):
            r = touched[i]
            is_touched[r] = False
            while busy[r] < capacity[r] and waiting[2 * r] > 0:
                waiting[2 * r] -= 1
                task = _pop(heap, heap_offset[2 * r], waiting[2 * r])
                busy[r] += 1
                start[task], end[task] = now, now + duration[task]
                _push_end(ends, running, size, end[task], task)
                size += 1
            if waiting[2 * r + 1] > 0 or num_background[r] > 0:
                size, num_segments = _schedule_background(
                    r, now, capacity, queues, start, end, ends, running, size, segments, num_segments
                )
        if size == 0:
            return num_segments
        num_touched, now = none, ends[0]
        while size > 0 and ends[0] == now:
            size -= 1
            task = _pop_end(ends, running, size)
            if waits[task] != 0 or end[task] != now:  # it was paused: this end is out of date
                continue
            waits[task] = -1
            num_touched = _mark_touched(resource[task], touched, is_touched, num_touched)
            if background[task]:
                _end_background(resource[task], task, queues)
                num_segments = _add_segment(segments, num_segments, task, queues.resumed[task], now)
            else:
                busy[resource[task]] -= 1
            for edge in range(offset[task], offset[task + 1]):
                released = successors[edge]
                waits[released] -= 1
                if waits[released] == 0:
                    queue = 2 * resource[released] + background[released]
                    _push(heap, heap_offset[queue], waiting[queue], released)
                    waiting[queue] += 1
                    num_touched = _mark_touched(resource[released], touched, is_touched, num_touched)


@kernel
def _new_segments(count: int) -> Segments:
    return Segments(np.empty(count, dtype=np.int64), np.empty(count), np.empty(count))


@kernel
def simulate(tasks: Tasks, durations: Floats) -> tuple[Floats, Floats]:
    """Return when every task starts and ends [s]; a background task starts when it first runs.

    durations [s], and both results: (rows, tasks); every row is a separate simulation.
    """
    rows, count = durations.shape
    start, end = np.empty((rows, count)), np.empty((rows, count))
    queues, no_segments = _new_queues(tasks), _new_segments(0)
    ends, running, waits = np.empty(2 * count), np.empty(2 * count, np.int64), np.empty(count, np.int64)
    for row in range(rows):
        simulate_once(tasks, durations[row], queues, ends, running, waits, start[row], end[row], no_segments)
    return start, end


@kernel
def background_segments(tasks: Tasks, duration: Floats) -> Segments:
    """Return when background tasks ran, from start to pause or end; duration [s]: (tasks,)."""
    count = duration.size
    # a task is paused when another task starts or is released
    segments, floats, ints = _new_segments(2 * count), np.empty((2, count)), np.empty(count, np.int64)
    ends, running = np.empty(2 * count), np.empty(2 * count, np.int64)
    num_segments = simulate_once(
        tasks, duration, _new_queues(tasks), ends, running, ints, floats[0], floats[1], segments
    )
    return Segments(segments.task[:num_segments], segments.start[:num_segments], segments.end[:num_segments])
