"""`model=gemm`: one matrix product, C[m, n] = A[m, k] B[k, n], with its gradients when training."""

from __future__ import annotations

from typing import NamedTuple

from fastflow.columns import Ints
from fastflow.workload.graph import (
    ALL_GATHER,
    ALL_REDUCE,
    BACKWARD,
    DENSE,
    FORWARD,
    INPUT_GRADIENT,
    PRODUCT,
    REDUCE_SCATTER,
    WEIGHT_GRADIENT,
    Graph,
    Kernel,
    stack,
)


class Gemm(NamedTuple):
    """Dimensions of the product; shape (points,)."""

    m: Ints
    k: Ints
    n: Ints
    batch: Ints


def build(gemm: Gemm, training: bool) -> Graph:
    """Return the compute graph of each point's product."""
    m, k, n, batch = gemm
    product = Kernel("gemm", FORWARD, PRODUCT, m, k, n, batch=batch, weights=1)
    product = product._replace(rc=ALL_GATHER, rc_cols=n, cr=REDUCE_SCATTER, cr_cols=n)
    product = product._replace(kept_whole_cols=k, kept_cols=n)  # A and C lie in memory beside B
    if not training:
        return stack([product], m.size)
    to_input = Kernel("gemm input gradient", BACKWARD, INPUT_GRADIENT, m, k, n, batch=batch)
    to_input = to_input._replace(rc=ALL_REDUCE, rc_cols=k, cr=ALL_GATHER, cr_cols=n)
    to_weights = Kernel("gemm weight gradient", BACKWARD, WEIGHT_GRADIENT, m, k, n, batch=batch)
    to_weights = to_weights._replace(gradient=DENSE)
    return stack([product, to_input, to_weights], m.size)
