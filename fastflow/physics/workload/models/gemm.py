"""`model=gemm`: a matrix product, C[m, n] = A[m, k] B[k, n], with its gradients when training.

A product of 8-bit or 4-bit operands quantises A first, unless A is quantised already (`model.quantized`).
"""

from __future__ import annotations

import numpy as np

from fastflow.core.dedupe import map_values
from fastflow.core.field import Column, count
from fastflow.core.tables import Floats, Inputs
from fastflow.physics.timing.device import SCALED, SCALED_AT_ONCE
from fastflow.physics.workload.family import Family, independent_rows, single_operation
from fastflow.physics.workload.graph import HIDDEN
from fastflow.physics.workload.network import INPUT, Layer, Network, Node, PassCost, connect
from fastflow.physics.workload.ops import elementwise, gemm, quantize, rowwise
from fastflow.physics.workload.precision import MAXIMUM_FLOP, OUTPUT_BYTES, QUANTISE_FLOP, QUANTISING_FLOP, QUANTIZED_BYTES


def network(points: Inputs) -> Network:
    """Return the network of each point's product; A, B and C are in memory."""
    m, k, n = (points[f"model.{side}"] for side in "mkn")
    dtype, batch = points["model.dtype"], points["model.batch"]
    written = map_values(QUANTIZED_BYTES, dtype)
    kept_whole, quantize_passes = 1.0 * k, []
    if written[0] > 0.0:
        kept_whole *= written / map_values(OUTPUT_BYTES, dtype)  # columns of quantised A
        if not points["model.quantized"][0]:
            quantize_passes = _quantize_passes(points, written)
            kept_whole += k
    node = Node(
        name="gemm", type=gemm.TYPE, rows=m, cols=n, inner=k, batch=batch,
        reads=(quantize_passes[-1].name if quantize_passes else INPUT,), keeps=n,
        keeps_whole=np.rint(kept_whole).astype(np.int64),
    )  # fmt: skip
    return connect([Layer("gemm", HIDDEN, (*quantize_passes, node))], needs_input_gradient=True)


def _quantize_passes(points: Inputs, written: Floats) -> list[Node]:
    """Return the passes that quantise A; written: bytes an element, (points,).

    A scale of a whole tensor is known once all of it was read, so that it is read twice. TensorRT-LLM's
    kernels clear the scale, raise it to the largest magnitude, quantise, and convert the scale
    (quantize_e4m3_per_tensor and FP8QDQLinearMethod, NVIDIA/TensorRT-LLM). Scales of rows and of blocks are
    computed by the quantise kernel.
    """
    rows, k, dtype = points["model.m"] * points["model.batch"], points["model.k"], points["model.dtype"]
    quantize_pass = Node(
        name="quantise", type=quantize.TYPE, rows=rows, cols=k,
        cost=PassCost(written, map_values(QUANTISING_FLOP, points["model.dtype"])), keeps=0, keeps_whole=0,
    )  # fmt: skip
    if points["model.dtype"][0] == SCALED:
        scales = -(-k // SCALED_AT_ONCE)
        alignment = Node(
            name="scales", type=quantize.ALIGNMENT, rows=rows, cols=scales, reads=("quantise",), keeps=0,
            keeps_whole=0,
        )  # fmt: skip
        return [quantize_pass, alignment]
    if points["model.dtype"][0] != "fp8":
        return [quantize_pass]
    scale = Node(
        name="scale", type=rowwise.TYPE, rows=1, cols=1, reads=("maximum",),
        cost=PassCost(moves=2.0, flop=1.0), keeps=0, keeps_whole=0,
    )  # fmt: skip
    of_tensor = Node(
        name="maximum", type=quantize.WITH_TENSOR_SCALE, rows=rows, cols=k, reads=("clear",), keeps=0,
        keeps_whole=0, attributes={"moves": map_values(OUTPUT_BYTES, dtype), "flop": MAXIMUM_FLOP},
    )  # fmt: skip
    return [
        scale._replace(
            name="clear", type=elementwise.TYPE, reads=(INPUT,), cost=PassCost(moves=1.0, flop=0.0)
        ),
        of_tensor,
        scale,
        of_tensor._replace(
            name="quantise", reads=("scale",),
            attributes={"moves": map_values(OUTPUT_BYTES, dtype) + written, "flop": QUANTISE_FLOP},
        ),
    ]  # fmt: skip


FAMILY = Family(
    name="gemm",
    work="products",
    sizes=(
        count("model.m", "rows of A and C"),
        count("model.k", "columns of A, rows of B"),
        count("model.n", "columns of B and C"),
        count("model.batch", "independent GEMMs"),
        Column(
            "model.transposed",
            "bool",
            "",
            "true: B is stored as n x k, as the weights of a linear layer in PyTorch; both operands"
            " are read along k",
        ),
    ),
    structure=(
        Column(
            "model.quantized",
            "bool",
            "",
            "true: A is of model.dtype already; false: A is in bf16, and its quantisation to fp8, int8"
            " or 4 bits is timed",
        ),
    ),
    quantizes=True,
    network=network,
    kernels=single_operation,
    rows=independent_rows("model.m"),
    multiplied=("model.m", "model.batch"),
    transposed="model.transposed",
)
