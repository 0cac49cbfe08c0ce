"""Compute graphs: the kernels of one training iteration, before any parallelism."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from fastflow.columns import Inputs, Ints, table, take
from fastflow.distinct import kinds
from fastflow.workload import gemm, lstm
from fastflow.workload.graph import Graph, join, spread
from fastflow.workload.precision import Precision, precision


def build_graph(inputs: Inputs, numbers: Precision) -> Graph:
    """Return the compute graph of every point's model; points of one model share its graph's making."""
    model = {key: column for key, column in inputs.items() if key.startswith("model.")}
    first, place = kinds(model.values(), inputs["model.training"].size)
    return spread(_build(take(model, first), take(numbers, first)), place)


def _build(inputs: Inputs, numbers: Precision) -> Graph:
    """Return the compute graph of every point's model.

    Points that share the structure of their graph (workload, training or not, layers) are built
    together, and the graphs joined in the order of the points.
    """
    graphs, members = [], []
    for training, depth, rows in _structures(inputs):
        points = take(dict(inputs), rows)
        if points["model.name"][0] == "gemm":
            graphs.append(gemm.build(table(gemm.Gemm, points, "model"), training))
        else:
            model = table(lstm.LstmLm, points, "model")
            graphs.append(lstm.build(model, depth, training, take(numbers, rows)))
        members.append(rows)
    return join(graphs, members)


def count_kernels(inputs: Inputs) -> Ints:
    """Return how many kernels each point's graph has, shape (points,); one graph a structure is built.

    inputs: the columns of `model`.
    """
    count = np.zeros(inputs["model.training"].size, dtype=np.int64)
    for _, _, rows in _structures(inputs):
        one = take(dict(inputs), rows[:1])
        count[rows] = build_graph(one, precision(one)).point.size
    return count


def _structures(inputs: Inputs) -> Iterator[tuple[bool, int, Ints]]:
    """Yield training, layers, and the points that have them."""
    training = inputs["model.training"]
    layers = inputs.get("model.layers", np.ones(training.size, dtype=np.int64))
    first, place = kinds([training, layers], training.size)
    for structure, one in enumerate(first):
        yield bool(training[one]), int(layers[one]), np.flatnonzero(place == structure)
