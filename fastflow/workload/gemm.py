"""`model=gemm`: one matrix product, C[m, n] = A[m, k] B[k, n], with its gradients when training."""

from __future__ import annotations

from typing import NamedTuple

from fastflow.tables import Ints
from fastflow.workload.graph import HIDDEN, Graph, stack
from fastflow.workload.kernels import backward, forward
from fastflow.workload.layers import GEMM, Layer, Node, connect


class Gemm(NamedTuple):
    """Dimensions of the product; shape (points,)."""

    m: Ints
    k: Ints
    n: Ints
    batch: Ints


def build(gemm: Gemm, training: bool) -> Graph:
    """Return the compute graph of each point's product."""
    node = Node(name="gemm", type=GEMM, rows=gemm.m, cols=gemm.n, inner=gemm.k, batch=gemm.batch)
    network = connect([Layer("gemm", HIDDEN, (node,))], asks_input_gradient=True)
    kernels = forward(network, training, 0.0)
    # A and C lie in memory beside B, training or not
    kernels[0] = kernels[0]._replace(kept_whole_cols=gemm.k, kept_cols=gemm.n)
    if training:
        kernels += backward(network, 0.0)
    return stack(kernels, gemm.m.size)
