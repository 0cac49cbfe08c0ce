"""The iteration of a point as a trace: the schedule of every pipeline stage (6.5).

The format is Chrome's trace events as JSON, which ui.perfetto.dev opens: a process for each stage, with
a track for its kernels and a track for its port to each network. The stage with the largest footprint also
has counters of the memory of a device, by kind.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from math import inf, nextafter
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fastflow.core.tables import Floats, Texts, take
from fastflow.performance.memory_timeline import MemoryTimeline, memory_timeline
from fastflow.performance.prediction import Prediction
from fastflow.physics.parallelism.block_schedule import block_schedule
from fastflow.physics.parallelism.memory.timeline import StepBytes
from fastflow.physics.parallelism.stage_times import PipelineBlocks
from fastflow.physics.schedule.event_simulator import Segments, Tasks, background_segments, simulate
from fastflow.physics.schedule.pipeline import RESOURCES, PipelinePlan, TimedKernels, build_task_graph
from fastflow.physics.schedule.stage_programs import WEIGHT
from fastflow.physics.schedule.task_numbers import BARRIER, GRADIENT, KERNEL, SEND, SYNC, Labels
from fastflow.physics.workload.graph import BACKWARD, COLLECTIVES, FORWARD, PHASES, UPDATE

Event = dict[str, Any]
NETWORKS = ("network in the package", "network between packages")
NETWORK = "network"
MEMORY = "memory of a device [B]"
BLOCKS = {FORWARD: "forward", BACKWARD: "backward", WEIGHT: "weight gradients"}


class Details(NamedTuple):
    """Names and bytes of the rows of a `TimedKernels`; shape (kernels,)."""

    kernel: Texts
    sync: Texts  # the collective
    sync_bytes: Floats  # of the whole tensor, all launches of one micro-batch [B]
    gradient: Texts
    gradient_bytes: Floats
    send_bytes: Floats


def trace_point(prediction: Prediction, point: int) -> list[Event]:
    """Return the events of one point of a prediction; raises ValueError for a point without a time."""
    index = np.flatnonzero(prediction.timed == point)
    if not index.size:
        raise ValueError(f"point {point} has no time")
    if prediction.pipeline_blocks is not None:
        events = trace_blocks(prediction.pipeline_blocks, int(index[0]))
        memory = memory_timeline(prediction, point)
        return events if memory is None else [*events, *_memory_events(memory)]
    graph, shards = prediction.graph, prediction.shards
    assert prediction.kernel_schedule is not None
    names = np.array(COLLECTIVES)
    details = Details(
        kernel=graph.names[graph.label],
        sync=names[shards.waited],
        sync_bytes=graph.launches.repeat * np.sum([edges.bytes for edges in shards.syncs], axis=0),
        gradient=names[shards.gradient.collective],
        gradient_bytes=shards.gradient.bytes,
        send_bytes=graph.launches.repeat * shards.send.bytes,
    )
    return trace(*prediction.kernel_schedule, details, int(index[0]))


def trace(kernels: TimedKernels, plan: PipelinePlan, details: Details, point: int) -> list[Event]:
    """Return the events of one point's iteration, ready to be written as JSON.

    Events on a track do not overlap; concurrent kernels are on different tracks.
    """
    tasks, durations, labels = build_task_graph(kernels, plan, point)
    stages, slots, first = int(plan.stages[point]), int(plan.slots[point]), int(kernels.offset[point])
    events = [event for stage in range(stages) for event in _name_events(stage, slots)]
    lanes = [[0.0] * slots for _ in range(stages)]  # until when [s] the tracks of kernels are busy
    runs = _simulated_runs(tasks, durations[0], labels)
    for task, start, end in zip(*(column.tolist() for column in runs), strict=True):
        stage, port = divmod(int(tasks.resource[task]), RESOURCES)
        track = slots + port - 1
        if port == 0:
            track = next(lane for lane, until in enumerate(lanes[stage]) if until <= start)
            lanes[stage][track] = end
        # whole nanoseconds, so that rounded events do not overlap
        begin, finish = round(start * 1e9), round(end * 1e9)
        events.append(
            {
                "ph": "X", "pid": stage + 1, "tid": _thread(stage, slots, track),
                "ts": _microseconds(begin), "dur": _microseconds(finish - begin),
                **_task_entry(labels, task, kernels, details, first),
            }
        )  # fmt: skip
    return events


def trace_blocks(stacks: PipelineBlocks, point: int) -> list[Event]:
    """Return the events of a transformer point: blocks, gradient sums, the update."""
    stages = int(stacks.plan.stages[point])
    events = [event for stage in range(stages) for event in _name_events(stage, 1, (NETWORK,))]

    def add(stage: int, track: int, start: float, end: float, name: str, **args: Any) -> None:
        begin, finish = round(start * 1e9), round(end * 1e9)
        events.append(
            {
                "ph": "X", "pid": stage + 1, "tid": _thread(stage, 1, track, 1), "ts": _microseconds(begin),
                "dur": _microseconds(finish - begin), "name": name,
                "cat": "communication" if track else "compute", "args": args,
            }
        )  # fmt: skip

    schedule = block_schedule(stacks, point)
    last_end = [float(stacks.times.total[point])] * stages  # a stage may have begun later than the first one
    for block in schedule.blocks:
        last_end[block.stage] = max(last_end[block.stage], block.end)
        chunk, stage = block.virtual // stages, block.stage
        phase = BLOCKS[block.kind]
        args = {"phase": phase, "chunk": chunk, "micro-batch": block.microbatch}
        add(stage, 0, block.start, block.end, phase, **args)
    for virtual, part in schedule.sums.items():
        last_end[part.stage] = max(last_end[part.stage], part.end)
        if part.end > part.start:
            chunk = virtual // stages
            add(part.stage, 1, part.start, part.end, "sum of weight gradients", chunk=chunk)
    update_s = float(stacks.update[point])
    for stage, start in enumerate(last_end if update_s > 0.0 else ()):
        add(stage, 0, start, start + update_s, PHASES[UPDATE], phase=PHASES[UPDATE])
    return events


def _memory_events(timeline: MemoryTimeline) -> Iterator[Event]:
    """Yield the counters of the memory of the fullest stage's device, a track for each kind [B].

    A counter changes where a step begins, and where it ends before the next one begins.
    """
    for start, _, sizes in timeline.spans():
        yield _counters(timeline.stage, start, sizes)
    last = timeline.steps[-1]
    yield _counters(timeline.stage, last.end, last.after)


def _counters(stage: int, at: float, sizes: StepBytes) -> Event:
    """Return what is allocated from a time on [s] as counters."""
    microseconds = _microseconds(round(at * 1e9))
    return {"ph": "C", "pid": stage + 1, "name": MEMORY, "ts": microseconds, "args": sizes._asdict()}


def write_trace(path: str | Path, events: list[Event]) -> None:
    """Write events as a file that ui.perfetto.dev opens.

    Raises OSError where the file cannot be written.
    """
    text = json.dumps({"traceEvents": events}, separators=(",", ":"), allow_nan=False)
    Path(path).write_text(text, encoding="utf-8")


def _simulated_runs(tasks: Tasks, duration: Floats, labels: Labels) -> Segments:
    """Simulate a point and return when its tasks ran, in the order of starts; duration [s]: (tasks,)."""
    start, end = simulate(tasks, duration[None, :])
    segments = background_segments(tasks, duration)
    steady = np.flatnonzero(~tasks.background & (labels.kind != BARRIER))
    runs = Segments(
        np.concatenate([steady, segments.task]),
        np.concatenate([start[0, steady], segments.start]),
        np.concatenate([end[0, steady], segments.end]),
    )
    return take(runs, np.lexsort((runs.task, runs.end, runs.start)))


def _task_entry(labels: Labels, task: int, kernels: TimedKernels, details: Details, first: int) -> Event:
    """Return the name, category and arguments of a task; first: the point's first row."""
    row, kind = first + int(labels.row[task]), int(labels.kind[task])
    phase, name = PHASES[kernels.phase[row]], str(details.kernel[row])
    args: Event = {"phase": phase}
    if kind != KERNEL:
        args["kernel"] = name
    if kind == SEND:
        args |= {"collective": "point-to-point", "bytes": float(details.send_bytes[row])}
    elif kind == SYNC:
        args |= {"collective": str(details.sync[row]), "bytes": float(details.sync_bytes[row])}
    elif kind == GRADIENT:
        args |= {"collective": str(details.gradient[row]), "bytes": float(details.gradient_bytes[row])}
    if kind != GRADIENT and phase != PHASES[UPDATE]:
        args["micro-batch"] = int(labels.microbatch[task])
    title = name if kind == KERNEL else f"{args['collective']}: {name}"
    return {"name": title, "cat": "compute" if kind == KERNEL else "communication", "args": args}


def _name_events(stage: int, slots: int, networks: tuple[str, ...] = NETWORKS) -> list[Event]:
    """Return the metadata events that name and sort a stage and its tracks."""
    kernels = ["compute"] if slots == 1 else [f"compute {lane}" for lane in range(slots)]
    metadata: list[tuple[str, int, Event]] = [
        ("process_name", 0, {"name": f"stage {stage}"}),
        ("process_sort_index", 0, {"sort_index": stage}),
    ]
    for track, name in enumerate([*kernels, *networks]):
        metadata += [
            ("thread_name", track, {"name": name}),
            ("thread_sort_index", track, {"sort_index": track}),
        ]
    return [
        {
            "ph": "M",
            "name": name,
            "pid": stage + 1,
            "tid": _thread(stage, slots, track, len(networks)),
            "args": args,
        }
        for name, track, args in metadata
    ]


def _thread(stage: int, slots: int, track: int, networks: int = len(NETWORKS)) -> int:
    """Return the unique thread number of a track; 0 is reserved for viewers."""
    return stage * (slots + networks) + track + 1


def _microseconds(nanoseconds: int) -> float:
    """Return a time [us] that converts back to the same nanosecond by rounding or truncation."""
    time = nanoseconds / 1000.0
    return time if int(time * 1000.0) == nanoseconds else nextafter(time, inf)
