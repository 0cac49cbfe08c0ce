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

from fastflow.core.jit import kernel, lean_kernel
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


class _Times(NamedTuple):
    """When tasks start and end in a simulation [s], (tasks,)."""

    start: Floats  # infinite until the task first runs
    end: Floats  # infinite until the task runs, and while it is paused


class _Workspace(NamedTuple):
    """Arrays of a simulation: each resource's ready tasks, background tasks and slots, and the running tasks.

    Queue 2 r holds the tasks that are ready for resource r, queue 2 r + 1 its background tasks: binary
    heaps of task numbers, each from heap[heap_offset[q]] on.
    """

    heap: Ints  # (tasks,)
    heap_offset: Ints  # (2 resources + 1,)
    num_ready: Ints  # tasks in each queue, (2 resources,)
    busy: Ints  # slots with a foreground task, (resources,)
    background: Ints  # background tasks that run, from background_offset[r] on, (all slots,)
    background_offset: Ints  # (resources + 1,)
    num_background: Ints  # how many background tasks run, (resources,)
    remaining: Floats  # time of a background task [s], (tasks,)
    resumed: Floats  # when it last started or resumed [s], (tasks,)
    waits: Ints  # predecessors that have not ended, -1 once the task has ended, (tasks,)
    running: Ints  # heap of running and paused tasks, soonest end first, (2 tasks,)
    running_end: Floats  # their ends [s], (2 tasks,)
    changed: Ints  # resources whose queue or slots have changed, (resources,)
    is_changed: Bools  # whether a resource is among them, (resources,)


@lean_kernel
def _push_ready(workspace: _Workspace, queue: int, task: int) -> None:
    """Add a task to a queue."""
    heap, base, index = workspace.heap, workspace.heap_offset[queue], workspace.num_ready[queue]
    workspace.num_ready[queue] += 1
    while index > 0 and heap[base + ((index - 1) >> 1)] > task:
        heap[base + index] = heap[base + ((index - 1) >> 1)]
        index = (index - 1) >> 1
    heap[base + index] = task


@lean_kernel
def _pop_ready(workspace: _Workspace, queue: int) -> int:
    """Take the lowest task out of a queue."""
    workspace.num_ready[queue] -= 1
    heap, base, size = workspace.heap, workspace.heap_offset[queue], workspace.num_ready[queue]
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


@lean_kernel
def _push_running(ends: Floats, running: Ints, size: int, end: float, task: int) -> None:
    """Add a task to the heap of running tasks, soonest end first."""
    index = size
    while index > 0 and ends[(index - 1) >> 1] > end:
        parent = (index - 1) >> 1
        ends[index], running[index] = ends[parent], running[parent]
        index = parent
    ends[index], running[index] = end, task


@lean_kernel
def _pop_running(ends: Floats, running: Ints, size: int) -> int:
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


@lean_kernel
def _add_segment(segments: Segments, num_segments: int, task: int, start: float, end: float) -> int:
    """Record a segment, unless segments are not recorded; returns the number of segments."""
    if segments.task.size == 0 or start == end:
        return num_segments
    segments.task[num_segments], segments.start[num_segments], segments.end[num_segments] = task, start, end
    return num_segments + 1


@lean_kernel
def _schedule_background(
    resource: int, now: float, capacity: Ints, workspace: _Workspace, times: _Times, size: int,
    segments: Segments, num_segments: int,
) -> tuple[int, int]:  # fmt: skip
    """Run the lowest background tasks of a resource in its free slots, and pause the others.

    A paused task is not taken out of the running ones; its `end` is infinite then.

    Returns the number of running tasks, and of segments.
    """
    queue, first = 2 * resource + 1, workspace.background_offset[resource]
    background, free = workspace.background, capacity[resource] - workspace.busy[resource]
    while True:
        count, highest = workspace.num_background[resource], first
        for i in range(first + 1, first + count):
            highest = i if background[i] > background[highest] else highest
        is_ready = workspace.num_ready[queue] > 0
        lower = is_ready and count > 0 and workspace.heap[workspace.heap_offset[queue]] < background[highest]
        if count > free or (count == free and lower):
            task = background[highest]
            background[highest] = background[first + count - 1]
            workspace.num_background[resource] -= 1
            elapsed = now - workspace.resumed[task]
            workspace.remaining[task] = max(workspace.remaining[task] - elapsed, 0.0)
            times.end[task] = np.inf
            num_segments = _add_segment(segments, num_segments, task, workspace.resumed[task], now)
            _push_ready(workspace, queue, task)
        elif is_ready and count < free:
            task = _pop_ready(workspace, queue)
            background[first + count] = task
            workspace.num_background[resource] += 1
            workspace.resumed[task] = now
            times.start[task] = min(times.start[task], now)
            times.end[task] = now + workspace.remaining[task]
            _push_running(workspace.running_end, workspace.running, size, times.end[task], task)
            size += 1
        else:
            return size, num_segments


@lean_kernel
def _end_background(resource: int, task: int, workspace: _Workspace) -> None:
    """Free the slot of a background task that has ended."""
    first = workspace.background_offset[resource]
    workspace.num_background[resource] -= 1
    last = first + workspace.num_background[resource]
    for i in range(first, last):
        if workspace.background[i] == task:
            workspace.background[i] = workspace.background[last]


@kernel
def _new_workspace(tasks: Tasks) -> _Workspace:
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
    return _Workspace(
        heap=np.empty(count, dtype=np.int64),
        heap_offset=heap_offset,
        num_ready=np.zeros(2 * resources, dtype=np.int64),
        busy=np.zeros(resources, dtype=np.int64),
        background=np.empty(background_offset[resources], dtype=np.int64),
        background_offset=background_offset,
        num_background=np.zeros(resources, dtype=np.int64),
        remaining=np.empty(count),
        resumed=np.empty(count),
        waits=np.empty(count, dtype=np.int64),
        running=np.empty(2 * count, dtype=np.int64),
        running_end=np.empty(2 * count),
        changed=np.empty(resources, dtype=np.int64),
        is_changed=np.zeros(resources, dtype=np.bool_),
    )


@lean_kernel
def _mark_changed(resource: int, workspace: _Workspace, num_changed: int) -> int:
    """Mark a resource whose queue or slots have changed; returns how many are marked."""
    if workspace.is_changed[resource]:
        return num_changed
    workspace.changed[num_changed], workspace.is_changed[resource] = resource, True
    return num_changed + 1


@lean_kernel
def _release(tasks: Tasks, task: int, workspace: _Workspace, num_changed: int) -> int:
    """Queue a task whose predecessors have ended; returns how many resources are marked."""
    _push_ready(workspace, 2 * tasks.resource[task] + tasks.background[task], task)
    return _mark_changed(tasks.resource[task], workspace, num_changed)


@lean_kernel
def simulate_once(
    tasks: Tasks, duration: Floats, workspace: _Workspace, times: _Times, segments: Segments
) -> int:
    """Simulate a task graph once, and write when every task starts and ends.

    duration [s]: (tasks,). Returns the number of segments.
    """
    waits, num_ready, busy, capacity = workspace.waits, workspace.num_ready, workspace.busy, tasks.capacity
    none = 0 * duration.size  # for the literal 0 Numba would compile all that it is passed to twice
    size, num_segments, num_changed, now = none, none, none, 0.0
    for task in range(duration.size):
        waits[task], workspace.remaining[task] = tasks.needs[task], duration[task]
        times.start[task], times.end[task] = np.inf, np.inf
        if waits[task] == 0:
            num_changed = _release(tasks, task, workspace, num_changed)
    while True:
        for i in range(num_changed):
            resource = workspace.changed[i]
            workspace.is_changed[resource] = False
            while busy[resource] < capacity[resource] and num_ready[2 * resource] > 0:
                task = _pop_ready(workspace, 2 * resource)
                busy[resource] += 1
                times.start[task], times.end[task] = now, now + duration[task]
                _push_running(workspace.running_end, workspace.running, size, times.end[task], task)
                size += 1
            if num_ready[2 * resource + 1] > 0 or workspace.num_background[resource] > 0:
                size, num_segments = _schedule_background(
                    resource, now, capacity, workspace, times, size, segments, num_segments
                )
        if size == 0:
            return num_segments
        num_changed, now = none, workspace.running_end[0]
        while size > 0 and workspace.running_end[0] == now:
            size -= 1
            task = _pop_running(workspace.running_end, workspace.running, size)
            if waits[task] != 0 or times.end[task] != now:  # it was paused: this end is out of date
                continue
            waits[task], resource = -1, tasks.resource[task]
            num_changed = _mark_changed(resource, workspace, num_changed)
            if tasks.background[task]:
                _end_background(resource, task, workspace)
                num_segments = _add_segment(segments, num_segments, task, workspace.resumed[task], now)
            else:
                busy[resource] -= 1
            for edge in range(tasks.offset[task], tasks.offset[task + 1]):
                successor = tasks.successors[edge]
                waits[successor] -= 1
                if waits[successor] == 0:
                    num_changed = _release(tasks, successor, workspace, num_changed)


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
    workspace, no_segments = _new_workspace(tasks), _new_segments(0)
    for row in range(rows):
        simulate_once(tasks, durations[row], workspace, _Times(start[row], end[row]), no_segments)
    return start, end


@kernel
def background_segments(tasks: Tasks, duration: Floats) -> Segments:
    """Return when background tasks ran, from start to pause or end; duration [s]: (tasks,)."""
    count = duration.size
    # a task is paused when another task starts or is released
    segments, times = _new_segments(2 * count), _Times(np.empty(count), np.empty(count))
    num_segments = simulate_once(tasks, duration, _new_workspace(tasks), times, segments)
    return Segments(segments.task[:num_segments], segments.start[:num_segments], segments.end[:num_segments])
