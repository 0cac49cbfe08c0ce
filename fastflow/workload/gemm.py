"""`model=gemm`: one matrix product, C[m, n] = A[m, k] B[k, n], with its gradients when training."""

from __future__ import annotations

from fastflow.column import Column, count
from fastflow.tables import Inputs
from fastflow.workload.family import Family, alone, independent
from fastflow.workload.graph import HIDDEN
from fastflow.workload.layers import Layer, Network, Node, connect
from fastflow.workload.types import product


def network(points: Inputs) -> Network:
    """Return the network of each point's product; A and C lie in memory beside B."""
    m, k, n = (points[f"model.{side}"] for side in "mkn")
    node = Node(
        name="gemm", type=product.TYPE, rows=m, cols=n, inner=k, batch=points["model.batch"],
        keeps=n, keeps_whole=k,
    )  # fmt: skip
    return connect([Layer("gemm", HIDDEN, (node,))], asks_input_gradient=True)


FAMILY = Family(
    name="gemm",
    sizes=(
        count("model.m", "rows of A and C"),
        count("model.k", "columns of A, rows of B"),
        count("model.n", "columns of B and C"),
        count("model.batch", "independent GEMMs"),
        Column(
            "model.transposed", "bool", "", "true: B is stored as n x k, so both operands are read along k"
        ),
    ),
    network=network,
    kernels=alone,
    rows=independent("model.m"),
    transposed="model.transposed",
)
