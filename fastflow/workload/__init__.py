"""Compute graphs: the kernels of one training iteration, before any parallelism."""

from __future__ import annotations

import numpy as np

from fastflow.columns import Inputs, table, take
from fastflow.workload import gemm, lstm
from fastflow.workload.graph import Graph, join
from fastflow.workload.precision import Precision


def build_graph(inputs: Inputs, precision: Precision) -> Graph:
    """Return the compute graph of every point's model.

    Points that share the structure of their graph (workload, training or not, layers) are built
    together, and the graphs joined in the order of the points.
    """
    layers = inputs.get("model.layers", np.ones(precision.operand.size, dtype=np.int64))
    structures = np.stack([inputs["model.training"].astype(np.int64), layers], axis=1)
    graphs, members = [], []
    for training, depth in np.unique(structures, axis=0):
        rows = np.flatnonzero((structures == (training, depth)).all(axis=1))
        points = take(dict(inputs), rows)
        if points["model.name"][0] == "gemm":
            graphs.append(gemm.build(table(gemm.Gemm, points, "model"), bool(training)))
        else:
            model = table(lstm.LstmLm, points, "model")
            graphs.append(lstm.build(model, int(depth), bool(training), take(precision, rows)))
        members.append(rows)
    return join(graphs, members)
