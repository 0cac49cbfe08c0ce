"""One point's iteration as a trace: what each stage of the pipeline does when (6.5).

The format is Chrome's trace events as JSON, which ui.perfetto.dev opens: a process for each stage, with
a track for its kernels and one for its port to each network.
"""

from __future__ import annotations

import json
from math import inf, nextafter
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fastflow.core.tables import Floats, Texts, take
from fastflow.performance.prediction import Prediction
from fastflow.physics.parallelism.stage_times import PipelineBlocks
from fastflow.physics.schedule.event_simulator import Segments, Tasks, background_segments, simulate
from fastflow.physics.schedule.pipeline import (
    BARRIER,
    GRADIENT,
    KERNEL,
    RESOURCES,
    SEND,
    SYNC,
    Labels,
    PipelinePlan,
    TimedKernels,
    tasks_of,
)
from fastflow.physics.schedule.stage_blocks import WEIGHT
from fastflow.physics.schedule.stage_spans import block_spans
from fastflow.physics.workload.graph import BACKWARD, COLLECTIVES, FORWARD, PHASES, UPDATE

Event = dict[str, Any]
Span = tuple[float, float]
"""Start and end [s]."""
NETWORKS = ("network in the package", "network between packages")
NETWORK = "network"
BLOCKS = {FORWARD: "forward", BACKWARD: "backward", WEIGHT: "weight gradients"}


class Details(NamedTuple):
    """What a trace says of the rows of a `TimedKernels` besides their times; shape (kernels,)."""

    kernel: Texts
    sync: Texts  # the collective
    sync_bytes: Floats  # of the whole tensor, all launches of one micro-batch [B]
    gradient: Texts
    gradient_bytes: Floats
    send_bytes: Floats


def trace_point(prediction: Prediction, point: int) -> list[Event]:
    """Return the events of one point of a prediction; raises ValueError for one without a time."""
    place = np.flatnonzero(prediction.timed == point)
    if not place.size:
        raise ValueError(f"point {point} has no time")
    if prediction.stacks is not None:
        return trace_blocks(prediction.stacks, int(place[0]))
    graph, shards = prediction.graph, prediction.shards
    assert prediction.kernels is not None
    assert prediction.plan is not None
    names = np.array(COLLECTIVES)
    details = Details(
        kernel=graph.names[graph.label],
        sync=names[shards.waited],
        sync_bytes=graph.repeat * np.sum([edges.bytes for edges in shards.syncs], axis=0),
        gradient=names[shards.gradient.collective],
        gradient_bytes=shards.gradient.bytes,
        send_bytes=graph.repeat * shards.send.bytes,
    )
    return trace(prediction.kernels, prediction.plan, details, int(place[0]))


def trace(kernels: TimedKernels, plan: PipelinePlan, details: Details, point: int) -> list[Event]:
    """Return the events of one point's iteration, ready to be written as JSON.

    Events on a track follow each other; kernels that run at once are on different ones.
    """
    tasks, durations, labels = tasks_of(kernels, plan, point)
    stages, slots, first = int(plan.stages[point]), int(plan.slots[point]), int(kernels.offset[point])
    events = [event for stage in range(stages) for event in _names(stage, slots)]
    lanes = [[0.0] * slots for _ in range(stages)]  # until when [s] the tracks of kernels are taken
    runs = _runs(tasks, durations[0], labels)
    for task, start, end in zip(*(column.tolist() for column in runs), strict=True):
        stage, port = divmod(int(tasks.resource[task]), RESOURCES)
        track = slots + port - 1
        if port == 0:
            track = next(lane for lane, until in enumerate(lanes[stage]) if until <= start)
            lanes[stage][track] = end
        # whole nanoseconds, so that rounding lets no event reach into the next one
        begin, finish = round(start * 1e9), round(end * 1e9)
        events.append(
            {
                "ph": "X", "pid": stage + 1, "tid": _thread(stage, slots, track),
                "ts": _microseconds(begin), "dur": _microseconds(finish - begin),
                **_say(labels, task, kernels, details, first),
            }
        )  # fmt: skip
    return events


def trace_blocks(stacks: PipelineBlocks, point: int) -> list[Event]:
    """Return the events of one point whose layers stand for several: blocks, sums, the update."""
    blocks, plan, stages = stacks.blocks, stacks.plan, int(stacks.plan.stages[point])
    spans = block_spans(blocks, plan, point)
    events = [event for stage in range(stages) for event in _names(stage, 1, (NETWORK,))]

    def add(stage: int, track: int, start: float, end: float, name: str, **said: Any) -> None:
        begin, finish = round(start * 1e9), round(end * 1e9)
        events.append(
            {
                "ph": "X", "pid": stage + 1, "tid": _thread(stage, 1, track, 1), "ts": _microseconds(begin),
                "dur": _microseconds(finish - begin), "name": name,
                "cat": "communication" if track else "compute", "args": said,
            }
        )  # fmt: skip

    every = sorted(zip(*map(np.ndarray.tolist, spans), strict=True))
    last: dict[int, Span] = {}  # block of a virtual stage after which its gradients are there
    for start, end, kind, virtual, _ in every:
        if kind != FORWARD and end > last.get(virtual, (0.0, 0.0))[1]:
            last[virtual] = start, end
    sums, later = _sums(stacks, point, last), [0.0] * stages
    for start, end, kind, virtual, microbatch in every:
        chunk, stage = divmod(virtual, stages)
        phase, begun, done = BLOCKS[kind], later[stage], later[stage]
        if kind != FORWARD and last[virtual] == (start, end):
            done, later[stage] = sums[virtual].done_later, sums[virtual].next_later
        add(
            stage, 0, start + begun, end + done, phase,
            phase=phase, chunk=chunk, **{"micro-batch": microbatch},
        )  # fmt: skip
    for virtual, own in sums.items():
        if own.end > own.start:
            chunk, stage = divmod(virtual, stages)
            add(stage, 1, own.start, own.end, "sum of weight gradients", chunk=chunk)
    total = float(stacks.times.total[point])
    for stage in range(stages):
        if stacks.update[point] > 0.0:
            add(stage, 0, total, total + float(stacks.update[point]), PHASES[UPDATE], phase=PHASES[UPDATE])
    return events


class _Sum(NamedTuple):
    """When the gradients of a virtual stage are summed, and what blocks of its stage lose to that [s]."""

    start: float
    end: float
    done_later: float  # how much later the block is done that makes the last of these gradients
    next_later: float  # how much later the blocks after that one are


def _sums(stacks: PipelineBlocks, point: int, last: dict[int, Span]) -> dict[int, _Sum]:
    """Return the sums of all virtual stages of a point, in the order of their last blocks."""
    blocks, plan, sums = stacks.blocks, stacks.plan, {}
    stages, overlaps = int(plan.stages[point]), bool(plan.overlaps_gradients[point])
    taken = float(plan.taken[point]) if overlaps else 0.0
    free, later = [0.0] * stages, [0.0] * stages
    for virtual, (start, end) in sorted(last.items(), key=lambda one: one[1][::-1]):
        row, stage = int(blocks.offset[point]) + virtual, virtual % stages
        lasts, tail = float(blocks.reduce_s[row]), float(blocks.tail_s[row])
        buckets = int(blocks.layers[row]) if overlaps else 1
        done_later = later[stage] + taken * (lasts - lasts / buckets)
        begin = max(free[stage], start + later[stage] + (end - start) / buckets)
        done = max(begin + lasts, end + done_later + lasts / buckets) + tail
        if lasts + tail > 0.0:
            free[stage] = done
        later[stage] += taken * (lasts + tail)
        sums[virtual] = _Sum(begin, done if lasts + tail > 0.0 else begin, done_later, later[stage])
    return sums


def write_trace(path: str | Path, events: list[Event]) -> None:
    """Write events as a file that ui.perfetto.dev opens.

    Raises OSError where the file cannot be written.
    """
    text = json.dumps({"traceEvents": events}, separators=(",", ":"), allow_nan=False)
    Path(path).write_text(text, encoding="utf-8")


def _runs(tasks: Tasks, duration: Floats, labels: Labels) -> Segments:
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


def _say(labels: Labels, task: int, kernels: TimedKernels, details: Details, first: int) -> Event:
    """Name a task and say what it is; first: the point's first row."""
    row, kind = first + int(labels.row[task]), int(labels.kind[task])
    phase, name = PHASES[kernels.phase[row]], str(details.kernel[row])
    said: Event = {"phase": phase}
    if kind != KERNEL:
        said["kernel"] = name
    if kind == SEND:
        said |= {"collective": "point-to-point", "bytes": float(details.send_bytes[row])}
    elif kind == SYNC:
        said |= {"collective": str(details.sync[row]), "bytes": float(details.sync_bytes[row])}
    elif kind == GRADIENT:
        said |= {"collective": str(details.gradient[row]), "bytes": float(details.gradient_bytes[row])}
    if kind != GRADIENT and phase != PHASES[UPDATE]:
        said["micro-batch"] = int(labels.microbatch[task])
    title = name if kind == KERNEL else f"{said['collective']}: {name}"
    return {"name": title, "cat": "compute" if kind == KERNEL else "communication", "args": said}


def _names(stage: int, slots: int, networks: tuple[str, ...] = NETWORKS) -> list[Event]:
    """Return the events that name a stage and its tracks, and put them in order."""
    kernels = ["compute"] if slots == 1 else [f"compute {lane}" for lane in range(slots)]
    named: list[tuple[str, int, Event]] = [
        ("process_name", 0, {"name": f"stage {stage}"}),
        ("process_sort_index", 0, {"sort_index": stage}),
    ]
    for track, name in enumerate([*kernels, *networks]):
        named += [
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
        for name, track, args in named
    ]


def _thread(stage: int, slots: int, track: int, networks: int = len(NETWORKS)) -> int:
    """Return a number for a track that no other one in the trace has; 0 is for viewers to use."""
    return stage * (slots + networks) + track + 1


def _microseconds(nanoseconds: int) -> float:
    """Return a time [us] that comes back to the nanosecond, whether a viewer rounds or cuts off."""
    time = nanoseconds / 1000.0
    return time if int(time * 1000.0) == nanoseconds else nextafter(time, inf)
