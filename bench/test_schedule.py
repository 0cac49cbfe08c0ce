"""How fast an iteration is laid out in time: the simulator, pipelines, one device in closed form."""

from __future__ import annotations

import numpy as np
import pytest
from pytest_benchmark.fixture import BenchmarkFixture
from test_tiling import seconds

from fastflow.physics.schedule.event_simulator import simulate
from fastflow.physics.schedule.pipeline import PipelinePlan, TimedKernels, build_task_graph
from fastflow.physics.schedule.pipeline_order import INTERLEAVED, ONE_F_ONE_B
from fastflow.physics.schedule.stage_blocks import BlockPlan, Blocks, schedule_blocks
from fastflow.physics.schedule.timeline import schedule


def pipeline(
    points: int, stages: int, microbatches: int, rows_of_stage: int
) -> tuple[TimedKernels, PipelinePlan]:
    """Points whose stages have as many forward as backward rows, and a few for the update."""
    half, update = rows_of_stage // 2, 1
    stage = np.repeat(np.arange(stages), half)
    stage = np.concatenate([stage, stage[::-1], np.repeat(np.arange(stages), update)])
    phase = np.repeat([0, 1, 2], [stages * half, stages * half, stages * update])
    rows = stage.size
    place, backward = np.arange(rows) % half, phase == 1
    some = 0.5 + np.random.default_rng(0).random((points, rows))
    one = TimedKernels(
        np.array([0, rows]), phase, stage, backward & (place % 2 == 1), some[0],
        np.where(place % 3 == 0, 0.3, 0.0), np.zeros(rows, dtype=np.int64), np.ones(rows, dtype=np.int64),
        np.where(backward & (place % 2 == 1), 0.5, 0.0), np.ones(rows, dtype=np.int64),
        np.where(place == half - 1, 0.1, 0.0), np.ones(rows, dtype=np.int64),
    )  # fmt: skip
    many = TimedKernels(*(np.tile(column, points) for column in one))
    work = many._replace(offset=np.arange(points + 1) * rows, kernel_s=some.reshape(-1))
    return work, PipelinePlan(*(np.full(points, n) for n in (stages, microbatches, ONE_F_ONE_B, 1)))


def test_simulate_100000_tasks(benchmark: BenchmarkFixture) -> None:
    """Ten rows of durations on one structure; an event is a task's end."""
    tasks, _, _ = build_task_graph(*pipeline(1, 8, 280, 32), 0)
    durations = np.random.default_rng(0).random((10, tasks.resource.size))
    _, end = benchmark(simulate, tasks, durations)
    assert np.isfinite(end).all()
    events = durations.size
    benchmark.extra_info["events"] = events
    if benchmark.stats is not None:
        benchmark.extra_info["ns_an_event"] = 1e9 * benchmark.stats.stats.min / events


def test_build_a_pipeline(benchmark: BenchmarkFixture) -> None:
    """4 stages, 16 micro-batches, 20 rows of a stage."""
    work, plan = pipeline(1, 4, 16, 20)
    tasks, _, _ = benchmark(build_task_graph, work, plan, 0)
    benchmark.extra_info["tasks"] = tasks.resource.size


def test_time_1000_pipelines(benchmark: BenchmarkFixture) -> None:
    got = benchmark(schedule, *pipeline(1000, 4, 16, 4))
    assert (got.bubble > 0.0).all()


def test_time_100000_points_on_one_device(benchmark: BenchmarkFixture) -> None:
    got = benchmark(schedule, *pipeline(100_000, 1, 1, 20))
    assert (got.total > 0.0).all()


def blocks(points: int, stages: int, chunks: int, microbatches: int, order: int) -> tuple[Blocks, BlockPlan]:
    """Points whose blocks differ, with sends, sums and no gathers, all of which overlap."""
    virtual = stages * chunks
    some = 0.5 + np.random.default_rng(0).random((5, points * virtual))
    table = Blocks(
        np.arange(points + 1) * virtual, some[0], 2.0 * some[1], 0.0 * some[2], 0.1 * some[3], some[4],
        np.full(points * virtual, 4), 0.0 * some[4], 0.0 * some[4],
    )  # fmt: skip
    numbers = (np.full(points, n) for n in (order, stages, chunks, microbatches))
    return table, BlockPlan(*numbers, *(np.full(points, True) for _ in range(3)), np.full(points, 0.1))


@pytest.mark.parametrize(
    ("order", "stages", "chunks", "microbatches"), [(ONE_F_ONE_B, 8, 1, 64), (INTERLEAVED, 16, 6, 128)]
)
def test_time_blocks(
    benchmark: BenchmarkFixture, order: int, stages: int, chunks: int, microbatches: int
) -> None:
    """With and without sends: two walks a point."""
    points = 20
    got = benchmark(schedule_blocks, *blocks(points, stages, chunks, microbatches, order))
    assert (got.sends > 0.0).all()
    if benchmark.stats is not None:
        count = points * 2 * stages * chunks * microbatches
        benchmark.extra_info["ns_a_block"] = 1e9 * benchmark.stats.stats.min / count
        benchmark.extra_info["blocks_per_s"] = count / benchmark.stats.stats.min


def test_blocks_against_events(benchmark: BenchmarkFixture) -> None:
    """The same pipelines as graphs of kernels, one a block, event by event."""
    points, stages, microbatches = 50, 8, 64
    work, plan = pipeline(points, stages, microbatches, 2)
    table, order = blocks(points, stages, 1, microbatches, ONE_F_ONE_B)
    (one, two) = seconds(lambda: schedule_blocks(table, order), lambda: schedule(work, plan))
    benchmark.extra_info["ratio:events_over_blocks"] = two / one
    benchmark.pedantic(schedule_blocks, (table, order), rounds=5)
