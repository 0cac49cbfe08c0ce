"""Task graphs event by event, pipelines, one device in closed form, and traces (3.3, 6.5)."""

import json
from itertools import combinations, pairwise
from random import Random

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fastflow.physics.schedule.event_simulator import Tasks, background_segments, simulate
from fastflow.physics.schedule.pipeline import PipelinePlan, TimedKernels, build_task_graph, run_pipelines
from fastflow.physics.schedule.pipeline_order import balance, block_at
from fastflow.physics.schedule.stage_order import in_flight
from fastflow.physics.schedule.task_numbers import KERNEL
from fastflow.physics.schedule.timeline import schedule
from fastflow.physics.workload.graph import PHASES
from fastflow.reporting.trace import Details, trace, write_trace
from fastflow.schema import SCHEDULES
from tests.naive import schedule as naive
from tests.support.checks import cases, near

seeds = st.integers(0, 2**32)  # seeds: Hypothesis takes long to draw a structure's every number


def some_time(rng):
    return rng.choice([0.0, 0.1, 0.7, 1.0, 1.0, 2.0, rng.uniform(0.0, 5.0)])


@st.composite
def graphs(draw):
    """Tasks (resource, background, duration, successors) in any order, and the resources' capacities."""
    count, resources, rng = draw(st.integers(1, 20)), draw(st.integers(1, 3)), Random(draw(seeds))
    capacity, place = [rng.randint(1, 3) for _ in range(resources)], rng.sample(range(count), count)
    tasks = []
    for task in range(count):
        later = [other for other in range(count) if place[other] > place[task]]
        successors = rng.sample(later, min(len(later), rng.randint(0, 3)))
        tasks.append((rng.randrange(resources), rng.random() < 0.3, some_time(rng), successors))
    return tasks, capacity


def packed(tasks, capacity):
    successors = [other for task in tasks for other in task[3]]
    return Tasks(
        np.array([task[0] for task in tasks]),
        np.array([task[1] for task in tasks]),
        np.bincount(np.array(successors, dtype=np.int64), minlength=len(tasks)),
        np.cumsum([0, *(len(task[3]) for task in tasks)]),
        np.array(successors, dtype=np.int64),
        np.array(capacity),
    )


@given(graphs())
@cases(200)
def test_events_to_the_bit(graph):
    tasks, capacity = graph
    given_s = [task[2] for task in tasks]
    rows = [given_s, given_s[::-1]]
    start, end = simulate(packed(tasks, capacity), np.array(rows))
    for row, times in enumerate(rows):
        timed = [
            (resource, background, time, successors)
            for (resource, background, _, successors), time in zip(tasks, times, strict=True)
        ]
        first, last, segments = naive.simulate(timed, capacity)
        assert start[row].tolist() == first
        assert end[row].tolist() == last
        got = background_segments(packed(timed, capacity), np.array(times))
        expected = [
            (task, *segment) for task in range(len(tasks)) if tasks[task][1] for segment in segments[task]
        ]
        assert sorted(zip(*(column.tolist() for column in got), strict=True)) == expected


def test_a_transfer_gives_way():
    """A port: 5 s in the background, beside transfers that are ready at 1 s and at 4 s."""
    tasks = [
        (1, False, 1.0, [1, 3]),
        (0, False, 2.0, []),
        (0, True, 5.0, []),
        (1, False, 3.0, [4]),
        (0, False, 1.0, []),
    ]
    _, end = simulate(packed(tasks, [1, 1]), np.array([[task[2] for task in tasks]]))
    assert end[0].tolist() == [1.0, 3.0, 8.0, 4.0, 5.0]
    segments = background_segments(packed(tasks, [1, 1]), np.array([task[2] for task in tasks]))
    assert segments.start.tolist() == [0.0, 3.0, 5.0]
    assert segments.end.tolist() == [1.0, 4.0, 8.0]


def some_row(rng, phase, stage):
    def sometimes():
        return rng.choice([0.0, some_time(rng)])

    return {
        "phase": phase,
        "stage": stage,
        "side": phase == "backward" and rng.random() < 0.4,
        "kernel": some_time(rng),
        "sync": sometimes(),
        "sync_level": rng.randint(0, 1),
        "wait": rng.randint(1, 3),
        "gradient": 0.0 if phase == "update" else sometimes(),
        "gradient_level": rng.randint(0, 1),
        "send": sometimes(),
        "send_level": rng.randint(0, 1),
    }


@st.composite
def points(draw, most=3):
    """(rows, stages, micro-batches, order, slots) of up to so many stages, micro-batches and slots."""
    stages, microbatches, slots = (draw(st.integers(1, high)) for high in (most, most, min(most, 2)))
    order, rng = draw(st.sampled_from(SCHEDULES[:2])), Random(draw(seeds))
    rows = []
    for phase, through in (("forward", range(stages)), ("backward", range(stages)[::-1])):
        for stage in through:
            rows += [some_row(rng, phase, stage) for _ in range(rng.randint(0, 4))]
    rows += [some_row(rng, "update", rng.randrange(stages)) for _ in range(rng.randint(0, 4))]
    return rows, stages, microbatches, order, slots


def tables(*many):
    """Lay points out as the columns that the kernels take."""
    rows = [one for point in many for one in point[0]]

    def floats(name):
        return np.array([one[name] for one in rows], dtype=np.float64)

    def ints(name):
        return np.array([one[name] for one in rows], dtype=np.int64)

    work = TimedKernels(
        np.cumsum([0, *(len(point[0]) for point in many)]),
        np.array([PHASES.index(one["phase"]) for one in rows], dtype=np.int64),
        ints("stage"),
        np.array([one["side"] for one in rows], dtype=np.bool_),
        floats("kernel"),
        *(floats("sync"), ints("sync_level"), ints("wait")),
        *(floats("gradient"), ints("gradient_level"), floats("send"), ints("send_level")),
    )
    columns = zip(*((p[1], p[2], SCHEDULES.index(p[3]), p[4]) for p in many), strict=True)
    return work, PipelinePlan(*(np.array(column) for column in columns))


def kernel_row(phase, stage, kernel, **more):
    """A row that says what is not nothing."""
    nothing = dict.fromkeys(("sync", "gradient", "send"), 0.0) | dict.fromkeys(
        ("sync_level", "gradient_level", "send_level"), 0
    )
    return nothing | {"phase": phase, "stage": stage, "side": False, "kernel": kernel, "wait": 1} | more


@given(st.lists(points(), min_size=1, max_size=2))
@cases(250)
def test_pipeline(many):
    got = schedule(*tables(*many))
    for i, point in enumerate(many):
        (forward, backward, update, exposed, bubble), _ = naive.timeline(*point)
        total = forward + backward + update
        assert np.allclose(
            [column[i] for column in got], [forward, backward, update, exposed, bubble], 1e-12, 1e-12 * total
        )


@given(st.lists(points(most=1), min_size=1, max_size=3))
@cases(250)
def test_one_device_in_closed_form(many):
    work, plan = tables(*many)
    got, events = schedule(work, plan), np.zeros((5, len(many)))
    run_pipelines(work, plan, np.arange(len(many)), events)
    assert np.allclose(np.array(got), events, 1e-12, 1e-12 * got.total.max(initial=0.0))
    assert (got.bubble == 0.0).all()


def even(stages, microbatches, order, forward=1.0, backward=2.0):
    """A pipeline of equal stages, without communication."""
    rows = [kernel_row("forward", stage, forward) for stage in range(stages)]
    rows += [kernel_row("backward", stage, backward) for stage in range(stages)[::-1]]
    return rows, stages, microbatches, order, 1


@given(st.integers(1, 6), st.integers(1, 9), st.sampled_from(SCHEDULES[:2]))
@example(4, 2, "1f1b")
@cases(60)
def test_bubble_of_equal_stages(stages, microbatches, order):
    """(p - 1) / (m + p - 1) of the time for GPipe (Huang et al., 2019), and as much for 1F1B."""
    got = schedule(*tables(even(stages, microbatches, order)))
    assert got.total[0] == 3.0 * (microbatches + stages - 1)
    assert got.bubble[0] == 3.0 * (stages - 1)
    assert got.exposed[0] == 0.0


@given(
    st.integers(1, 5),
    st.integers(1, 7),
    st.sampled_from(SCHEDULES[:2]),
    st.floats(0.1, 4.0),
    st.floats(0.1, 4.0),
)
@cases(60)
def test_micro_batches_in_flight(stages, microbatches, order, forward, backward):
    """From the start of a forward to the end of its backward."""
    work, plan = tables(even(stages, microbatches, order, forward, backward))
    tasks, durations_, labels = build_task_graph(work, plan, 0)
    start, end = simulate(tasks, durations_)
    for stage in range(stages):
        mine = (labels.kind == KERNEL) & (tasks.resource == 3 * stage)
        begun = start[0, mine & (work.phase[labels.row] == 0)]
        done = end[0, mine & (work.phase[labels.row] == 1)]
        most = max((begun <= time).sum() - (done <= time).sum() for time in begun)
        code = SCHEDULES.index(order)
        assert most == in_flight(code, stages, stage, 1, microbatches)
        assert most == (microbatches if order == "gpipe" else min(microbatches, stages - stage))
        blocks = [block_at(code, stages, stage, microbatches, place) for place in range(2 * microbatches)]
        assert [(PHASES[phase], j) for phase, j in blocks] == naive.program(
            order, stages, stage, microbatches
        )


def test_backward_pass_of_figure_5():
    """Three layers on two stages (p2): the upper two on stage 1. Every layer has its input gradient, whose
    partial sums RC-4-2 exchanges within the package, and its weight gradient, which d3 sums between packages.
    """
    rows = [
        kernel_row("forward", 0, 1.0, send=1.0),
        kernel_row("forward", 1, 1.0),
        kernel_row("forward", 1, 1.0),
    ]
    for layer, stage in ((3, 1), (2, 1), (1, 0)):
        if layer > 1:
            cut = {"send": 1.0, "send_level": 1} if layer == 2 else {}
            rows.append(kernel_row("backward", stage, 4.0, sync=3.0, wait=2, **cut))
        rows.append(kernel_row("backward", stage, 2.0, side=True, gradient=6.0, gradient_level=1))
    rows += [kernel_row("update", stage, 1.0) for stage in (0, 1, 1)]
    got = schedule(*tables((rows, 2, 1, "1f1b", 1)))
    # Stage 1: forward until 4; dX3 4-8, its exchange 8-11, dW3 8-10; dX2 11-15, its exchange 15-18, dW2 15-17
    # The sum of dW3 has the port between packages from 10 to 16, that of dW2 from 17 to 18; from 18 to 19 it
    # gives way to what stage 0 waits for, and ends at 24. Stage 0: dW1 19-21, its sum 21-27. Updates 27-29.
    # Without communication: stage 1 forward 1-3, backward 3-15; stage 0 13-15; updates 15-17.
    assert [column[0] for column in got] == [4.0, 23.0, 2.0, 29.0 - 17.0, 17.0 - (2.0 + 12.0 + 2.0)]
    point = tables((rows, 2, 1, "1f1b", 1))
    tasks, times_s, _ = build_task_graph(*point, 0)
    segments = background_segments(tasks, times_s[0])
    assert segments.start.tolist() == [10.0, 17.0, 19.0, 21.0]
    assert segments.end.tolist() == [16.0, 18.0, 24.0, 27.0]


def test_an_update_waits_for_the_norms_of_all_stages():
    """Norms 0-1 and 6-7 with their sums 1-6 and 7-12, then an update of 1 s and one of 3 s."""
    rows = [kernel_row("update", stage, 1.0, sync=5.0) for stage in (0, 1)]
    rows += [kernel_row("update", 0, 1.0), kernel_row("update", 1, 3.0)]
    assert schedule(*tables((rows, 2, 1, "gpipe", 1))).total[0] == 15.0


def test_slots_let_weight_gradients_step_aside():
    """With two slots the next input gradient does not wait for a weight gradient."""
    rows = [
        kernel_row("forward", 0, 1.0),
        *(
            kernel_row("backward", 0, time, side=side)
            for time, side in ((2.0, False), (5.0, True), (2.0, False))
        ),
    ]
    assert schedule(*tables((rows, 1, 1, "gpipe", 1))).total[0] == 10.0
    assert schedule(*tables((rows, 1, 1, "gpipe", 2))).total[0] == 8.0


@given(st.lists(st.integers(0, 9) | st.floats(0.0, 9.0), min_size=1, max_size=9), st.integers(1, 9))
@cases(300)
def test_balance(layers, stages):
    stages = min(stages, len(layers))
    first = balance(np.array(layers, dtype=np.float64), stages).tolist()
    assert first[0] == 0
    assert all(a < b for a, b in zip(first, [*first[1:], len(layers)], strict=True))

    def longest(cuts):
        ends = [*cuts[1:], len(layers)]
        return max(sum(layers[begin:end]) for begin, end in zip(cuts, ends, strict=True))

    every = ([0, *cuts] for cuts in combinations(range(1, len(layers)), stages - 1))
    assert near(longest(first), min(longest(cuts) for cuts in every), 1e-9) or longest(first) < 1e-9


def test_a_stage_needs_a_layer():
    with pytest.raises(ValueError, match="layer"):
        balance(np.ones(2), 3)


@given(st.tuples(points(), points()))
@cases(60)
def test_trace(many):
    work, plan = tables(*many)
    rows = work.phase.size
    details = Details(
        np.array([f"kernel {i}" for i in range(rows)], dtype=np.str_),
        np.full(rows, "all-gather"), np.arange(rows) * 1.0,
        np.full(rows, "all-reduce"), np.arange(rows) * 2.0, np.arange(rows) * 3.0,
    )  # fmt: skip
    (_, stages, microbatches, _, slots), got = many[1], trace(work, plan, details, 1)
    runs = [event for event in got if event["ph"] == "X"]
    named = [event for event in got if event["ph"] == "M"]
    tracks = {(event["pid"], event["tid"]) for event in named}
    assert len(tracks) == len({tid for _, tid in tracks}) == stages * (slots + 2)
    assert {(event["pid"], event["tid"]) for event in runs} <= tracks
    for track in tracks:  # as a viewer reads it, in nanoseconds
        mine = [event for event in runs if (event["pid"], event["tid"]) == track]
        spans = sorted((int(1000 * event["ts"]), int(1000 * event["dur"])) for event in mine)
        assert all(a + length <= b for (a, length), (b, _) in pairwise(spans))
    # every kernel and every transfer is there whole
    _, when = naive.timeline(*many[1])
    assert near(sum(event["dur"] for event in runs if event["cat"] == "compute"), 1e6 * sum(
        row["kernel"] * (1 if row["phase"] == "update" else microbatches) for row in many[1][0]
    ), 1e-6)  # fmt: skip
    last = max((end for _, end in when.values()), default=0.0)
    assert max((event["ts"] + event["dur"] for event in runs), default=0.0) == pytest.approx(
        1e6 * last, abs=2e-3
    )
    for event in runs:
        assert event["args"]["phase"] in PHASES
        assert (event["cat"] == "compute") == ("bytes" not in event["args"])


def test_trace_file(tmp_path):
    point = even(2, 3, "1f1b")
    rows = len(point[0])
    empty, none = np.full(rows, ""), np.zeros(rows)
    events = trace(*tables(point), Details(np.full(rows, "gemm"), empty, none, empty, none, none), 0)
    write_trace(tmp_path / "one.json", events)
    read = json.loads((tmp_path / "one.json").read_text(encoding="utf-8"))["traceEvents"]
    assert read == events
    said = {event["name"]: event["args"] for event in read if event["ph"] == "M" and event["pid"] == 2}
    assert said["process_name"] == {"name": "stage 1"}
    gemms = [event for event in read if event["name"] == "gemm"]
    assert len(gemms) == 12
    assert gemms[0] == {
        "ph": "X", "pid": 1, "tid": 1, "ts": 0.0, "dur": 1e6,
        "name": "gemm", "cat": "compute", "args": {"phase": "forward", "micro-batch": 0},
    }  # fmt: skip
