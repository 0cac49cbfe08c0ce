"""A chunk takes the memory that it is allowed, whatever the model."""

import tracemalloc

import numpy as np
import pytest

from fastflow.config.composer import Composer
from fastflow.config.library import hydra_rules
from fastflow.engine.grid.plan import plan
from fastflow.engine.run import chunks
from fastflow.engine.run.chunks import evaluated, rows, warm_up
from fastflow.physics.workload import count_kernels

MODELS = (
    ("model.batch=range(512,20481,64)", "parallel.strategy=d512,CR-8-d64,RC-4-2-d64"),
    pytest.param(
        ("model.layers=200", "model.batch=range(512,4097,64)", "parallel.strategy=d512,CR-8-d64,RC-4-2-d64"),
        marks=pytest.mark.long,
    ),
    ("model=gemm", "model.m=range(64,4097,64)", "model.n=range(64,2049,64)"),
)


@pytest.fixture(params=MODELS, ids=lambda overrides: overrides[0])
def study(request):
    with hydra_rules():
        found = plan(Composer.of_library(), request.param)
    warm_up(found.grid)
    rows(found.grid, 0, 2)
    return found


def test_a_chunk_keeps_to_its_bytes(study):
    room = 20e6
    settings = study.settings._replace(chunk=4096, chunk_bytes=room)
    points = []
    tracemalloc.start()
    try:
        for table in evaluated(study.grid, 0, min(study.grid.points, 900), settings):
            points.append(table["point"].size)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert sum(points) == min(study.grid.points, 900)
    assert peak < room
    # and makes use of them
    assert points[0] == sum(points) or peak > 0.4 * room


def test_a_point_that_is_too_large_is_a_chunk_of_its_own(study):
    settings = study.settings._replace(chunk_bytes=1.0)
    assert [table["point"].size for table in evaluated(study.grid, 3, 6, settings)] == [1, 1, 1]


def test_kernels_are_counted_without_building_them():
    with hydra_rules():
        grid = plan(Composer.of_library(), ["model.layers=2,7,1", "model.training=true,false"]).grid
    table = chunks.predict_range(grid._replace(unset={}), 0, grid.points)
    graph = table[0].prediction.graph
    inputs = grid.inputs(next(grid.shares(0, grid.points)), "model.")
    assert count_kernels(inputs).tolist() == np.diff(graph.offset).tolist()
