"""`model=gemm`: a matrix product, C[m, n] = A[m, k] B[k, n], with its gradients when training.

A product of 8-bit or 4-bit operands quantises A first, unless A is quantised already (`model.quantized`).
"""

from __future__ import annotations

from functools import partial

import numpy as np

from fastflow.core.dedupe import map_values
from fastflow.core.field import Column, count
from fastflow.core.tables import Floats, Inputs
from fastflow.physics.timing.device import SCALED, SCALED_AT_ONCE
from fastflow.physics.workload.data_types import FP32_SCALE_BYTES, MAXIMUM_FLOP, QUANTISE_FLOP
from fastflow.physics.workload.family import Family, independent_rows, single_operation
from fastflow.physics.workload.graph import HIDDEN
from fastflow.physics.workload.network import INPUT, Layer, Network, Node, connect
from fastflow.physics.workload.ops import gemm, quantize
from fastflow.physics.workload.precision import OPERAND_BYTES, OUTPUT_BYTES, QUANTISING_FLOP, QUANTIZED_BYTES

LAST = 2.0
"""Late launches of the last pass: its own, and that of the product, which waits for its end."""


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
    rows, cols = points["model.m"] * points["model.batch"], points["model.k"]
    dtype = points["model.dtype"]
    weights = 1.0 * cols * points["model.n"] * points["model.batch"] * map_values(OPERAND_BYTES, dtype)
    output = 1.0 * rows * points["model.n"] * map_values(OUTPUT_BYTES, dtype)
    reuse = quantize.Reuse(points["model.copies"], weights, output + 1.0 * rows * cols * written)
    call = partial(quantize.call, reuse=reuse)

    def quantise(read: str, flop: Floats | float, instructions: float = 0.0) -> Node:
        return call(
            "quantise", read, rows, cols, reads=1.0, written=written, flop=flop, late=LAST,
            instructions=instructions,
        )  # fmt: skip

    if dtype[0] == "fp8":
        scale = 1.0 * FP32_SCALE_BYTES
        return [
            call("clear", INPUT, 1, 1, reads=0.0, written=scale, flop=0.0),
            call(
                "maximum", "clear", rows, cols, reads=1.0, written=0.0, flop=MAXIMUM_FLOP,
                instructions=quantize.SCALAR,
            ),
            call("scale", "maximum", 1, 1, reads=0.0, written=2.0 * scale, flop=1.0),
            quantise("scale", QUANTISE_FLOP, quantize.SCALAR),
        ]  # fmt: skip
    quantised = quantise(INPUT, map_values(QUANTISING_FLOP, dtype))
    if dtype[0] == SCALED:
        return [quantised, quantize.alignment("scales", "quantise", rows, -(-cols // SCALED_AT_ONCE))]
    return [quantised]


FAMILY = Family(
    name="gemm",
    work="products",
    sizes=(
        count("model.m", "rows of A and C"),
        count("model.k", "columns of A, rows of B"),
        count("model.n", "columns of B and C"),
        count("model.batch", "independent GEMMs"),
        count(
            "model.copies",
            "copies of B that a benchmark turns through, as many as exceed the last cache and at most these;"
            " 0: operands come from main memory",
            low=0,
        ),
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
