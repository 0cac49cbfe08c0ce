"""The expert layer of a mixture on one device: a router, grouped products, and the passes between them.

The kernels are those of TensorRT-LLM's fused mixture (cpp/tensorrt_llm/kernels/cutlass_kernels/moe_gemm) and
its router (tensorrt_llm/_torch/modules/fused_moe/routing.py), in the order of `KERNELS`:

- *route*: softmax and the largest of a token's logits; the product that makes logits is not among them. One
  kernel for up to `MOST_ROUTED` experts and `MOST_CHOSEN` choices; else PyTorch's `topk` by radix (two
  kernels), two conversions and a softmax. Its blocks handle a token each, in `TOPK_TRIPS` trips through the
  memories, `TOPK_BLOCKS` of them on a bundle at once;
- *sort*: counts and prefix sums, one kernel for up to `MOST_SORTED` tokens, three for more. A thread reads
  the choices of its token one after the other;
- *quantise*: where operands are smaller than activations and not scaled in blocks;
- *gather*: a row for each choice of an expert of this device, and descriptors of these products where units
  read operands in L1;
- *scale*: quantises blocks of 128 of gathered rows, each with a scale of its own;
- *gate_up*: one grouped product for both matrices;
- *activate*: the gate; part of the product where units read operands from registers and nothing is quantised;
- *scale_gated*: as *scale*, what the gate leaves;
- *down*: a grouped product;
- *combine*: the weighted sum of a token's rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastflow.tables import Floats, Ints
from fastflow.timing.blocks import Launched
from fastflow.timing.device import Device
from fastflow.timing.grouped import GroupedProducts, run_grouped
from fastflow.timing.loads import Routings, expert_loads, mean_rows
from fastflow.timing.passes import run_passes

KERNELS = ("route", "sort", "quantise", "gather", "scale", "gate_up", "activate", "scale_gated", "down",
           "combine")  # fmt: skip
MOST_ROUTED, MOST_CHOSEN = 128, 8  # routing.py, RenormalizeMoeRoutingMethod; later versions have more
MOST_SORTED = 256  # moe_kernels.cu, fusedBuildExpertMapsSortFirstToken
TOPK_BLOCKS = 8  # on a bundle: of 256 threads, where it has room for 2048
# Trips through the memories of a block that finds the largest by radix, in eight digits of two bits: four or
# five a digit. Calibrated: 3,000 layers on an A100, 9,000 on an H100 (ai-dynamo/aiconfigurator@095f58a)
TOPK_TRIPS = 36.0
# Time of a pass over rows of tokens over that of its bytes at the achievable bandwidth. Calibrated: as above
PASS = 1.5
# Operations to find the largest of 128 elements and scale them, for each. Calibrated: as above, fp8 in blocks
SCALE = 250.0
# Of prefix sums over all experts, for more tokens than one block sorts. Calibrated: as above
SUM_TRIPS = 8.0
INDEX_BYTES = 4.0
WEIGHT_BYTES = 4.0  # of a choice


class ExpertLayers(NamedTuple):
    """Expert layers, each on the device that has most to do; shape (layers,)."""

    point: Ints
    routing: Routings  # how tokens choose experts, each (layers,)
    hidden: Ints
    ffn: Ints  # columns of the device's gate, and of its up
    size: Floats  # of an element of weights, and of what they are multiplied by [B]
    activation: Floats  # of one of what comes in and goes out [B]


class Passes(NamedTuple):
    """What the kernels of layers do beside products, 0 where there is none; shape (layers, kernels)."""

    launches: Floats
    bytes: Floats
    operations: Floats  # on vector lanes
    trips: Floats  # through all memories, one after the other


class ExpertTimes(NamedTuple):
    """How long layers take."""

    time: Floats  # [s] (layers,)
    kernels: Floats  # of each of `KERNELS`, launches included [s] (layers, kernels)
    passes: Passes
    gate_up: Launched
    down: Launched


def expert_passes(device: Device, layers: ExpertLayers, rows: Floats) -> Passes:
    """Return what the kernels of layers do beside products.

    rows: that the device gets (layers,).
    """
    p, routing, size, activation = layers.point, layers.routing, layers.size, layers.activation
    # libraries of operands that are scaled in blocks have no kernels that split the inner dimension
    scaled, direct = ~device.library.splits[p], device.library.shared[p]
    quantised, large = size < activation, routing.tokens > MOST_SORTED
    fused = ~direct & ~quantised
    simple = (routing.experts <= MOST_ROUTED) & (routing.topk <= MOST_CHOSEN)
    blocks = TOPK_BLOCKS * device.instances[p]
    own, whole = rows * layers.hidden, routing.tokens * layers.hidden
    inner, choices = rows * layers.ffn, routing.tokens * routing.topk
    written = np.where(scaled, activation, size)
    first = quantised & ~scaled
    read = np.where(first, size, activation)
    none = np.zeros(p.size)

    def each(**kernels: NDArray[Any]) -> Floats:
        """Return a column a kernel."""
        columns = [np.broadcast_to(kernels.get(name, none), p.shape) for name in KERNELS]
        return np.stack(columns, axis=1).astype(np.float64)

    return Passes(
        launches=each(
            route=np.where(simple, 1, 5),
            sort=np.where(large, 3, 1),
            quantise=first,
            gather=np.where(direct & ~scaled, 2, 1),
            scale=scaled,
            activate=~fused,
            scale_gated=scaled,
            combine=np.ones(p.size),
        ),
        bytes=each(
            route=routing.tokens * routing.experts * activation + choices * (INDEX_BYTES + WEIGHT_BYTES),
            sort=2.0 * choices * INDEX_BYTES,
            quantise=first * whole * (activation + size),
            gather=own * (read + written),
            scale=scaled * own * (activation + size),
            activate=~fused * inner * (2.0 * activation + written),
            scale_gated=scaled * inner * (activation + size),
            combine=(own + whole) * activation,
        ),
        operations=each(scale=scaled * own * SCALE, scale_gated=scaled * inner * SCALE),
        trips=each(
            route=np.where(simple, 0.0, TOPK_TRIPS * np.ceil(routing.tokens / blocks)),
            sort=routing.topk + np.where(large, SUM_TRIPS, 0.0),
        ),
    )


def time_kernels(device: Device, layers: ExpertLayers, kernels: Sequence[str]) -> tuple[Launched, Floats]:
    """Return how some of the kernels of layers run, those beside products, one after the other.

    And the operations that they do. kernels: of `KERNELS`.
    """
    loads, routing = expert_loads(layers.routing)
    passes = expert_passes(device, layers, mean_rows(loads)[routing])
    chosen = [KERNELS.index(name) for name in kernels]
    launches, moved, operations, trips = (column[:, chosen] for column in passes)
    launched = run_passes(
        device, layers.point, moved=PASS * moved, launches=launches, operations=operations, trips=trips
    )
    return launched._replace(bytes=launched.bytes / PASS), operations.sum(axis=1)


def time_passes(device: Device, point: Ints, passes: Passes) -> Floats:
    """Return how long each of the passes takes, launches included [s]; point: of each layer."""
    bandwidth, lanes = device.dram_bandwidth[point, None], device.vector_flops[point, None]
    launch, latency = device.library.launch[point, None], device.library.latency[point, None]
    moving = np.maximum(PASS * passes.bytes / bandwidth, passes.operations / lanes)
    return np.asarray(passes.launches * launch + moving + passes.trips * latency)


def time_experts(device: Device, layers: ExpertLayers) -> ExpertTimes:
    """Time expert layers on the devices that have most to do."""
    loads, routing = expert_loads(layers.routing)
    passes = expert_passes(device, layers, mean_rows(loads)[routing])
    kernels = time_passes(device, layers.point, passes)
    fused = ~device.library.shared[layers.point] & (layers.size >= layers.activation)
    both = 2 * layers.ffn
    up = GroupedProducts(
        point=layers.point,
        routing=layers.routing,
        inner=layers.hidden,
        cols=both,
        stored=np.where(fused, layers.ffn, both),
        of_weights=np.zeros(routing.size, dtype=np.bool_),
        size=layers.size,
        output=layers.activation,
    )
    gate_up = run_grouped(device, up, loads, routing)
    to_hidden = up._replace(inner=layers.ffn, cols=layers.hidden, stored=layers.hidden)
    down = run_grouped(device, to_hidden, loads, routing)
    kernels[:, KERNELS.index("gate_up")] = gate_up.time
    kernels[:, KERNELS.index("down")] = down.time
    return ExpertTimes(kernels.sum(axis=1), kernels, passes, gate_up, down)
