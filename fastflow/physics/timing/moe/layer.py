"""The MoE layer on one device: a router, grouped GEMMs, and the memory-bound passes between them.

The kernels are those of TensorRT-LLM's fused MoE (cpp/tensorrt_llm/kernels/cutlass_kernels/moe_gemm) and
its router (tensorrt_llm/_torch/modules/fused_moe/routing.py). The passes, in this order:

- *route*: softmax and top-k of a token's logits, without the GEMM of the logits. One kernel for up to
  `MAX_ROUTED` experts and `MAX_CHOSEN` choices; else PyTorch's `topk` by radix (two kernels), two
  conversions and a softmax. Its blocks handle a token each, in `TOPK_TRIPS` trips through the memories,
  `TOPK_BLOCKS` of them on a bundle at once;
- *sort*: counts and prefix sums, one kernel for up to `MAX_SORTED` tokens, three for more. A thread reads
  the choices of its token sequentially;
- *quantise*: where operands are smaller than activations and not scaled in blocks;
- *gather*: a row for each choice of an expert of this device, and descriptors of the GEMMs where units read
  operands from L1;
- *scale*: quantises blocks of 128 elements of gathered rows, with a scale for each block;
- *activate*: the gate, after one grouped GEMM for both matrices; fused with it where units read operands from
  registers and operands are not quantised;
- *scale_gated*: as *scale*, for the output of the gate;
- *combine*: the weighted sum of a token's rows.

Where products convert weights, gathering and gates are fused into them: triton_kernels, with which
TensorRT-LLM and vLLM run gpt-oss on Hopper.

A layer of triton_kernels (python/triton_kernels of triton-lang/triton, as TensorRT-LLM's fused_moe_triton.py
calls it) has separate kernels for its routing, and fuses gathering and gates into its products:

- *triton_route*: `TRITON_LAUNCHES` small kernels, and `TRITON_PRUNES` more where other devices have experts;
  each waits for `TRITON_TRIPS` trips through the memories;
- *triton_combine*: the sum of a token's rows. Rows of choices of other devices' experts are written as
  zeros by both products, read by the second one and summed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastflow.core.tables import Bools, Floats, Ints
from fastflow.physics.timing.device import Device
from fastflow.physics.timing.library.thread_blocks import Launched
from fastflow.physics.timing.memory_bound import run_passes
from fastflow.physics.timing.moe.expert_load import Routings, expert_loads, mean_rows

MAX_ROUTED, MAX_CHOSEN = 128, 8  # routing.py, RenormalizeMoeRoutingMethod, in TensorRT-LLM 1.0
MAX_ROUTED_RECENTLY, MAX_CHOSEN_RECENTLY = 512, 10  # in 1.3
MAX_SORTED = 256  # moe_kernels.cu, fusedBuildExpertMapsSortFirstToken
TOPK_BLOCKS = 8  # on a bundle: 256 threads each, of 2048
# Trips through the memories of a block of a top-k by radix, in eight digits of two bits: four or
# five a digit. Calibrated: 3,000 layers on an A100, 9,000 on an H100 (ai-dynamo/aiconfigurator@095f58a)
TOPK_TRIPS = 36.0
# Instructions of a lane for a byte of a pass over rows of tokens, beside the time of its bytes in main
# memory. Calibrated: as above
PASS_INSTRUCTIONS = 5.7
# Operations per element for the maximum of 128 elements and their scaling. Calibrated: as above, fp8 in
# blocks
SCALE = 250.0
# Trips of the kernels around DeepGEMM's products, with a block for each choice. Calibrated: 2,000 layers on a
# B200 (ai-dynamo/aiconfigurator@095f58a)
CHOICE_TRIPS = 1.75
QUANTISE = 105.0  # operations per element where these kernels scale rows, too: as before single products
# Of prefix sums over all experts, for more tokens than one block sorts. Calibrated: as above
SUM_TRIPS = 8.0
# Padding of activations, clearing, top-k, sums of the bit matrix and their clearing, clearing and computing
# of the indices; to prune: shift, clear, compact (counted in both files' source)
TRITON_LAUNCHES, TRITON_PRUNES = 8.0, 3.0
# Dependent trips of such a kernel: indices, rows, results. Calibrated: 486 layers of mxfp4 on an H100
# (ai-dynamo/aiconfigurator@095f58a)
TRITON_TRIPS = 8.0
# Of trtllm: a kernel that routes and one that finds the places of rows, for more tokens than `MAX_SORTED`
# three more (histograms and offsets, trtllmGenKernels/blockScaleMoe).
TRTLLM_LAUNCHES, TRTLLM_MORE = 2.0, 3.0
MASKED_MOVES = 3.0  # of a masked row: written, read, written
INDEX_BYTES = 4.0
WEIGHT_BYTES = 4.0  # of a choice


class ExpertLayers(NamedTuple):
    """MoE layers, each on its busiest device; shape (layers,)."""

    point: Ints
    routing: Routings  # how tokens choose experts, each (layers,)
    hidden: Ints
    ffn: Ints  # columns of the device's gate, and of its up
    size: Floats  # of an element of weights and of the rows they are multiplied with [B]
    activation: Floats  # of an element of the layer's input and output [B]
    matrices: Floats  # before the activation: 2 with a gate, 1 without
    converted: Bools  # products convert weights: their library fuses gathering and gates into them
    recent: Bools  # routing kernels of TensorRT-LLM 1.3


class Pass(NamedTuple):
    """The work of a memory-bound pass; (layers,) or a number for all."""

    launches: NDArray[Any] | float = 1.0  # 0 where the pass is absent
    bytes: NDArray[Any] | float = 0.0
    operations: NDArray[Any] | float = 0.0  # on vector lanes
    trips: NDArray[Any] | float = 0.0  # through all memories, one after the other


class _Layers(NamedTuple):
    """Layers with the properties that passes depend on; (layers,)."""

    device: Device
    layers: ExpertLayers
    direct: Bools  # units read operands from L1
    scaled: Bools  # operands are scaled in blocks, by libraries without split-K
    quantised: Bools  # operands are smaller than activations

    @property
    def rows(self) -> Floats:
        """Rows of the device."""
        loads, routing = expert_loads(self.layers.routing)
        return mean_rows(loads)[routing]

    @property
    def written(self) -> Floats:
        """Bytes of an element that a pass writes before a GEMM, or before its scaling."""
        return np.where(self.scaled, self.layers.activation, self.layers.size)


def _route(batch: _Layers) -> Pass:
    routing, activation = batch.layers.routing, batch.layers.activation
    most = np.where(batch.layers.recent, MAX_ROUTED_RECENTLY, MAX_ROUTED)
    chosen_at_once = np.where(batch.layers.recent, MAX_CHOSEN_RECENTLY, MAX_CHOSEN)
    simple = (routing.experts <= most) & (routing.topk <= chosen_at_once)
    blocks = TOPK_BLOCKS * batch.device.instances[batch.layers.point]
    chosen = routing.tokens * routing.topk * (INDEX_BYTES + WEIGHT_BYTES)
    return Pass(
        launches=np.where(simple, 1.0, 5.0),
        bytes=routing.tokens * routing.experts * activation + chosen,
        trips=np.where(simple, 0.0, TOPK_TRIPS * np.ceil(routing.tokens / blocks)),
    )


def _sort(batch: _Layers) -> Pass:
    routing = batch.layers.routing
    large = routing.tokens > MAX_SORTED
    return Pass(
        launches=np.where(large, 3.0, 1.0),
        bytes=2.0 * routing.tokens * routing.topk * INDEX_BYTES,
        trips=routing.topk + np.where(large, SUM_TRIPS, 0.0),
    )


def _quantise(batch: _Layers) -> Pass:
    layers = batch.layers
    launches = 1.0 * (batch.quantised & ~batch.scaled)
    element_bytes = launches * (layers.activation + layers.size)
    return Pass(launches, bytes=element_bytes * layers.routing.tokens * layers.hidden)


def _quantise_tokens(batch: _Layers) -> Pass:
    """Return the pass of libraries whose products gather rows: it quantises tokens, in blocks too."""
    layers = batch.layers
    launches = 1.0 * batch.quantised
    elements = launches * layers.routing.tokens * layers.hidden
    return Pass(
        launches,
        bytes=elements * (layers.activation + layers.size),
        operations=elements * np.where(batch.scaled, QUANTISE, 0.0),
    )


def _gather(batch: _Layers) -> Pass:
    layers = batch.layers
    read = np.where(batch.quantised & ~batch.scaled, layers.size, layers.activation)
    launches = np.where(batch.direct & ~batch.scaled, 2.0, 1.0) * ~layers.converted
    return Pass(launches, bytes=batch.rows * layers.hidden * (read + batch.written) * ~layers.converted)


def _scale(batch: _Layers) -> Pass:
    return _scaling(batch, batch.layers.hidden)


def _activate(batch: _Layers) -> Pass:
    layers = batch.layers
    launches = 1.0 * ((batch.direct | batch.quantised) & ~layers.converted)
    return Pass(
        launches,
        bytes=launches * batch.rows * layers.ffn * (layers.matrices * layers.activation + batch.written),
    )


def _scale_gated(batch: _Layers) -> Pass:
    return _scaling(batch, batch.layers.ffn)


def _scaling(batch: _Layers, cols: Ints) -> Pass:
    """Return a pass that scales blocks of gathered rows."""
    if not batch.scaled.any():
        return Pass(launches=0.0)
    launches = 1.0 * batch.scaled
    elements = launches * batch.rows * cols
    return Pass(launches, elements * (batch.layers.activation + batch.layers.size), elements * SCALE)


def _combine(batch: _Layers) -> Pass:
    layers = batch.layers
    return Pass(bytes=(batch.rows + layers.routing.tokens) * layers.hidden * layers.activation)


def _triton_route(batch: _Layers) -> Pass:
    routing = batch.layers.routing
    launches = TRITON_LAUNCHES + TRITON_PRUNES * (routing.local < routing.experts)
    chosen = routing.tokens * routing.topk * (INDEX_BYTES + WEIGHT_BYTES)
    logits = routing.tokens * routing.experts * batch.layers.activation
    return Pass(launches=launches, bytes=logits + launches * chosen, trips=launches * TRITON_TRIPS)


def _triton_combine(batch: _Layers) -> Pass:
    routing, row_bytes = batch.layers.routing, batch.layers.hidden * batch.layers.activation
    choices = 1.0 * routing.tokens * routing.topk
    masked = MASKED_MOVES * np.maximum(choices - batch.rows, 0.0)
    return Pass(bytes=(masked + choices + routing.tokens) * row_bytes)


def _visit_choices(batch: _Layers) -> Floats:
    """Return the trips of a kernel with a block for each choice, also of other devices' experts."""
    routing = batch.layers.routing
    blocks = TOPK_BLOCKS * batch.device.instances[batch.layers.point]
    trips: Floats = CHOICE_TRIPS * np.ceil(routing.tokens * routing.topk / blocks)
    return trips


def _masked_gather(batch: _Layers) -> Pass:
    layers, elements = batch.layers, batch.rows * batch.layers.hidden
    return Pass(
        bytes=elements * (layers.activation + layers.size),
        operations=elements * QUANTISE,
        trips=_visit_choices(batch),
    )


def _masked_gate(batch: _Layers) -> Pass:
    layers, elements = batch.layers, batch.rows * batch.layers.ffn
    read = layers.matrices * layers.activation
    return Pass(bytes=elements * (read + layers.size), operations=elements * QUANTISE)


def _masked_combine(batch: _Layers) -> Pass:
    layers = batch.layers
    return Pass(
        launches=2.0,
        bytes=(3.0 * batch.rows + layers.routing.tokens) * layers.hidden * layers.activation,
        trips=_visit_choices(batch),
    )


def _trtllm_route(batch: _Layers) -> Pass:
    routing = batch.layers.routing
    launches = TRTLLM_LAUNCHES + TRTLLM_MORE * (routing.tokens > MAX_SORTED)
    chosen = routing.tokens * routing.topk * (INDEX_BYTES + WEIGHT_BYTES)
    logits = routing.tokens * routing.experts * batch.layers.activation
    return Pass(launches=launches, bytes=logits + launches * chosen)


def _fused(batch: _Layers) -> Pass:
    """Return the absent pass of libraries whose products gather rows."""
    return Pass(launches=0.0 * batch.layers.activation)


PASSES: dict[str, Callable[[_Layers], Pass]] = {
    "route": _route,
    "sort": _sort,
    "fused": _fused,
    "quantise": _quantise,
    "quantise_tokens": _quantise_tokens,
    "gather": _gather,
    "scale": _scale,
    "activate": _activate,
    "scale_gated": _scale_gated,
    "combine": _combine,
    "triton_route": _triton_route,
    "triton_combine": _triton_combine,
    "masked_gather": _masked_gather,
    "masked_gate": _masked_gate,
    "masked_combine": _masked_combine,
    "trtllm_route": _trtllm_route,
}


def expert_pass(device: Device, layers: ExpertLayers, name: str) -> Pass:
    """Return the work of a pass of layers; name: of `PASSES`."""
    scaled, direct = ~device.library.splits[layers.point], device.library.shared[layers.point]
    return PASSES[name](_Layers(device, layers, direct, scaled, layers.size < layers.activation))


def time_passes(device: Device, layers: ExpertLayers, names: Sequence[str]) -> tuple[Launched, Floats]:
    """Return the launches of passes of layers, one after the other, and their operations.

    names: of `PASSES`.
    """
    shape = (layers.point.size, len(names))
    launches, moved, operations, trips = (np.empty(shape) for _ in Pass._fields)
    for i, name in enumerate(names):
        kernel_pass = expert_pass(device, layers, name)
        launches[:, i], moved[:, i], operations[:, i], trips[:, i] = kernel_pass
    # lanes issue instructions while no byte moves: both times add up
    bandwidth = device.memories.bandwidth[layers.point, -1:]
    longer = 1.0 + PASS_INSTRUCTIONS * bandwidth / device.issue[layers.point, None]
    launched = run_passes(
        device, layers.point, moved=longer * moved, launches=launches, operations=operations, trips=trips
    )
    return launched._replace(bytes=launched.bytes / longer), operations.sum(axis=1)
