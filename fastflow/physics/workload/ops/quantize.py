"""A pass that rounds its input to fewer bits, with block scales, and the passes that align the scales."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from fastflow.core.tables import Floats, Ints
from fastflow.core.yaml_file import choice_of
from fastflow.physics.timing.device import Device
from fastflow.physics.timing.library.thread_blocks import Launched
from fastflow.physics.timing.memory_bound import run_passes
from fastflow.physics.timing.warm_cache import hit_rates_of_passes
from fastflow.physics.workload.data_types import BOTH_OPERANDS, FP32_SCALE_BYTES
from fastflow.physics.workload.graph import Kernel, PerElement
from fastflow.physics.workload.network import KernelType, Network, Node, PassCost, Side, Size
from fastflow.physics.workload.ops.elementwise import TYPE as PASS
from fastflow.physics.workload.precision import QUANTISING_FLOP, QUANTIZED_BYTES, Precision
from fastflow.physics.workload.sharding_rules import Share

ALIGNED_ROWS = 4
"""Rows of scales that fill 16 B, the least stride of a tensor that the units' loads take (TMA, NVIDIA CUDA
programming guide)."""
ALIGN_LAUNCHES = 3.0
"""Kernels that lay out scales anew: transpose, pack to bytes, and copy with padding
(get_mn_major_tma_aligned_packed_ue8m0_tensor, deepseek-ai/DeepGEMM)."""
SCALAR = 20.0
"""Instructions of a lane for an element in kernels that take one element at a time: index, load, conversion,
maximum or division, store (computeFP8QuantizeScale and scaleMatrix, NVIDIA/TensorRT-LLM, cudaFp8Utils.cu).
Calibrated on products in fp8 of B200 (ai-dynamo/aiconfigurator@095f58a): they take as long whether their
operands lie in its cache or not."""
OF_MULTIPLY_ADD = 0.1
"""Energy of an operation that quantises, over that of a lane's multiply-add: most are moves, comparisons and
shifts. Calibrated on the powers of products on B200 (ai-dynamo/aiconfigurator@095f58a)."""


def _forward(network: Network, i: int, kernel: Kernel, precision: Precision) -> Kernel:
    """Return a pass that reads activations once, and writes elements of `moves` bytes."""
    node = network.nodes[i].node
    assert node.cost.moves is not None
    return kernel._replace(per_element=PerElement(precision.activation + node.cost.moves, node.cost.flop))


def _forward_call(network: Network, i: int, kernel: Kernel, precision: Precision) -> Kernel:
    """Return a pass as a framework calls it; attributes of its node: see `call`."""
    node = network.nodes[i].node
    size = node.attributes
    moves = size["reads"] * precision.activation + size["written"]
    flop = np.asarray(size["flop"], dtype=np.float64)
    return kernel._replace(per_element=PerElement(moves, flop), attributes=size)


class Reuse(NamedTuple):
    """What a benchmark repeats around a pass (`timing.warm_cache`)."""

    copies: Ints  # of the weights of its product, at most; 0: none is reuse
    weights: Floats  # of the product [B]
    written_all: Floats  # by the passes and the product [B]


NO_REUSE = Reuse(np.zeros(1, dtype=np.int64), np.zeros(1), np.zeros(1))


def call(
    name: str, read: str, rows: Size, cols: Size, *, reads: float, written: Floats | float,
    flop: Floats | float, instructions: float = 0.0, late: float = 1.0, reuse: Reuse = NO_REUSE,
) -> Node:  # fmt: skip
    """Return a pass that a framework calls, and that starts after the end of the kernel before it.

    reads: times that it reads an activation; written: bytes; flop: operations of lanes, all for an element;
    instructions: of a lane for an element, where these are more; late: launches that wait for the end of a
    kernel, its own and others; reuse: what runs again, and how.
    """
    return Node(
        name=name, type=CALL, rows=rows, cols=cols, reads=(read,), keeps=0, keeps_whole=0,
        attributes={
            "reads": reads, "written": written, "flop": flop, "instructions": instructions, "late": late,
            **reuse._asdict(),
        },
    )  # fmt: skip


def alignment(name: str, read: str, rows: Size, cols: Size) -> Node:
    """Return the passes that align scales; cols: scales of a row."""
    return Node(name=name, type=ALIGNMENT, rows=rows, cols=cols, reads=(read,), keeps=0, keeps_whole=0)


def _lanes(share: Share) -> Floats:
    return np.full(share.elements.size, OF_MULTIPLY_ADD)


def _from_file(
    where: str, node: Node, sides: Mapping[str, Side], model: Side, fields: Mapping[str, Any]
) -> Node:
    """Return a pass that computes the scales of rows or blocks as it quantises."""
    narrow_types = tuple(name for name in BOTH_OPERANDS if QUANTIZED_BYTES[name] > 0.0)
    dtype = choice_of(f"{where}.to", fields["to"], narrow_types)
    return node._replace(
        cost=PassCost(moves=QUANTIZED_BYTES[dtype], flop=QUANTISING_FLOP[dtype], backward_moves=0.0)
    )


def _time_alignment(device: Device, share: Share) -> tuple[Launched, Floats]:
    """Return the passes that align the scales of a product's rows, where matrix units multiply by scales.

    Scales of a row or of a number of rows that fills 16 B need none, nor does one scale a row.
    """
    rows = np.ceil(share.rows / share.row_shards)
    is_loaded = device.library.promotion[share.device] == 0.0
    aligns = is_loaded & (rows > 1.0) & (rows % ALIGNED_ROWS > 0.0) & (share.n > 1)
    launches = np.where(aligns, ALIGN_LAUNCHES, 0.0)
    moved = 2.0 * FP32_SCALE_BYTES * launches * share.elements
    nothing = np.zeros(rows.size)
    launched = run_passes(
        device, share.device, moved=moved, launches=launches, operations=nothing, trips=launches,
        late=launches,
    )  # fmt: skip
    return launched, nothing


def _time_call(device: Device, share: Share) -> tuple[Launched, Floats]:
    """Return passes as a framework calls them."""
    size, ones = share.attributes, np.ones(share.elements.size)
    flop = share.elements * size["flop"]
    moved = share.elements * (size["reads"] * share.bytes.activation + size["written"])
    issued = share.elements * size["instructions"] / device.issue[share.device]
    operations = np.maximum(flop, issued * device.vector_flops[share.device])
    read = share.elements * share.bytes.activation
    hits = hit_rates_of_passes(
        size["copies"] * ones, read, size["weights"] * ones, size["written_all"] * ones,
        device.library.cache[share.device], device.memories.capacity[share.device, -1],
    )  # fmt: skip
    launched = run_passes(
        device, share.device, moved=moved, launches=ones, operations=operations, trips=ones,
        late=size["late"], hits=hits,
    )  # fmt: skip
    return launched, flop


TYPE: KernelType = replace(
    PASS, name="quantise", title="quantise", required=("cols", "to"), required_strings=("to",),
    optional=("rows", "groups", "reads"), forward=_forward, from_file=_from_file,
)  # fmt: skip
CALL: KernelType = replace(
    PASS, name="quantise_call", title="quantise", forward=_forward_call, time=_time_call, lanes=_lanes,
)  # fmt: skip
ALIGNMENT: KernelType = replace(PASS, name="align_scales", title="scales", time=_time_alignment)
