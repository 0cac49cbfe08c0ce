"""Bytes and ranks of collectives, beside the plan of a strategy that they follow."""

from math import ceil

import numpy as np
import pytest

from fastflow.physics.parallelism.defaults import ParallelOptions
from fastflow.physics.parallelism.mesh import devices_along
from fastflow.physics.parallelism.plans import assignments
from fastflow.physics.parallelism.sharding.layout import Layouts
from fastflow.physics.parallelism.sharding.partition import shard_graph
from fastflow.physics.parallelism.sharding.propagation import READ, SHARED, STATISTICS, SUMMED, shardings_of
from fastflow.physics.parallelism.strategy import parse
from fastflow.physics.workload import build_graph
from fastflow.physics.workload.precision import precision

MODELS = (
    ("model=lstm_lm", "model.hidden=101", "model.batch=70", "model.vocabulary=997", "model.sequence=5"),
    ("model=llama3_8b", "model.layers=1", "model.hidden=320", "model.batch=6", "model.sequence=37"),
)
STRATEGIES = ("RC-2-3-d2", "CR-3-d2", "2D-2-3-d2", "2D-3-2", "3D-2-3-5-d2", "3D-1-2-3")


@pytest.mark.parametrize("microbatches", [1, 2])
@pytest.mark.parametrize("model", MODELS)
def test_a_device_sends_its_share_of_rows_and_columns(compose, model, microbatches):
    """Other axes cut both: of whole numbers of rows and columns, the largest share counts."""
    one, strategies = np.ones(len(STRATEGIES), dtype=np.int64), [parse(text) for text in STRATEGIES]
    columns = {key: np.repeat(value, one.size) for key, value in compose(*model).items()}
    numbers = precision(columns)
    graph = build_graph(columns, numbers)
    layouts = Layouts(
        np.repeat([[strategy.kernel] for strategy in strategies], 3, axis=1),
        np.repeat([[strategy.degrees] for strategy in strategies], 3, axis=1),
        one,
    )
    options = ParallelOptions(one, microbatches * one, zero=0 * one, reshards=one > 0, copies=one < 0)
    shards = shard_graph(graph, layouts, options, numbers)
    slots = (shards.sync, *shards.further)
    cut_columns = 0
    for row, point in enumerate(graph.point.tolist()):
        strategy = strategies[point]
        plan = shardings_of(graph.structures[graph.structure[point]], assignments()[strategy.kernel])
        of = {
            STATISTICS: 0, SUMMED: graph.comm.summed_cols[row], READ: graph.comm.read_cols[row],
            SHARED: graph.comm.shared_cols[row],
        }  # fmt: skip

        def along(axes, degrees=strategy.degrees):
            return int(devices_along(np.array(degrees), axes))

        expected = []
        for exchange in plan[row - graph.offset[point]].exchanges:
            rows = ceil(graph.rows[row] / (along(exchange.rows_by) * microbatches))
            cols = ceil((of[exchange.of] + exchange.cols) / along(exchange.cols_by))
            size = numbers.activation[point] * rows * cols
            if along(exchange.axes) > 1:
                expected.append((exchange.collective, along(exchange.axes), size))
                cut_columns += along(exchange.cols_by) > 1
        found = [(edges.collective[row], edges.ranks[row], edges.bytes[row]) for edges in slots]
        assert [edge for edge in found if edge[0]] == expected, (STRATEGIES[point], row)
    assert cut_columns > 20
