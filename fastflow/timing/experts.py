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

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastflow.distinct import kinds
from fastflow.tables import Floats, Ints, Texts, take
from fastflow.timing.blocks import Launched, Machines, Products, read_catalogue
from fastflow.timing.device import Device
from fastflow.timing.grouped import GroupedProducts, run_groups
from fastflow.timing.loads import Loads, Routings, expert_loads, mean_rows

KERNELS = ("route", "sort", "quantise", "gather", "scale", "gate_up", "activate", "scale_gated", "down",
           "combine")  # fmt: skip
MOST_ROUTED, MOST_CHOSEN = 128, 8  # routing.py of TensorRT-LLM 1.0 to 1.3
MOST_SORTED = 256  # moe_kernels.cu, fusedBuildExpertMapsSortFirstToken
TOPK_BLOCKS = 8  # of 256 threads, of 2048 that a bundle has room for
# Trips through the memories of a block that finds the largest by radix, in eight digits of two bits: four or
# five a digit. Calibrated: 3,000 layers on an A100, 9,000 on an H100 (ai-dynamo/aiconfigurator@095f58a)
TOPK_TRIPS = 36.0
# Time of a pass that gathers or scatters rows over that of its bytes at the achievable bandwidth.
# Calibrated: as above
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
    tokens: Ints  # of all devices that share the experts
    topk: Ints  # experts that a token chooses
    experts: Ints  # of all devices
    local: Ints  # of the device
    exponent: Floats  # of the power law of loads; 0: equal (`timing/loads.py`)
    hidden: Ints
    ffn: Ints  # columns of the device's gate, and of its up


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


def expert_passes(device: Device, machines: Machines, layers: ExpertLayers, rows: Floats) -> Passes:
    """Return what the kernels of layers do beside products.

    rows: that the device gets (layers,).
    """
    p = layers.point
    size, activation = machines.size[p], machines.output[p]
    scaled, direct = device.library.promotion[p] > 0.0, device.library.shared[p]
    quantised, large = size < activation, layers.tokens > MOST_SORTED
    fused = ~direct & ~quantised
    simple = (layers.experts <= MOST_ROUTED) & (layers.topk <= MOST_CHOSEN)
    blocks = TOPK_BLOCKS * device.instances[p]
    own, whole = rows * layers.hidden, layers.tokens * layers.hidden
    inner, choices = rows * layers.ffn, layers.tokens * layers.topk
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
            route=layers.tokens * layers.experts * activation + choices * (INDEX_BYTES + WEIGHT_BYTES),
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
            route=np.where(simple, 0.0, TOPK_TRIPS * np.ceil(layers.tokens / blocks)),
            sort=layers.topk + np.where(large, SUM_TRIPS, 0.0),
        ),
    )


def time_passes(device: Device, point: Ints, passes: Passes) -> Floats:
    """Return how long each of the passes takes, launches included [s]; point: of each layer."""
    bandwidth, lanes = device.dram_bandwidth[point, None], device.vector_flops[point, None]
    launch, latency = device.library.launch[point, None], device.library.latency[point, None]
    moving = np.maximum(PASS * passes.bytes / bandwidth, passes.operations / lanes)
    return np.asarray(passes.launches * launch + moving + passes.trips * latency)


def time_grouped(
    device: Device, machines: Machines, grouped: GroupedProducts, loads: Loads, blocks: Texts
) -> Launched:
    """Return how the distinct grouped products run, for each.

    blocks: of every point's library (points,), as `Device` has them.
    """
    catalogue, single = read_catalogue(blocks)
    first, place = kinds(grouped, grouped.inner.size)
    distinct = take(grouped, first)
    ones = np.ones(distinct.inner.size, dtype=np.int64)
    products = Products(
        point=distinct.point, m=distinct.inner, k=distinct.inner, n=distinct.cols, batch=ones,
        strided=np.zeros(ones.size, dtype=np.bool_),
    )  # fmt: skip
    return take(run_groups(distinct, products, loads, machines, device.library, catalogue, single), place)


def time_experts(device: Device, machines: Machines, layers: ExpertLayers) -> ExpertTimes:
    """Time expert layers on the device that has most to do."""
    routings = Routings(layers.tokens, layers.topk, layers.experts, layers.local, layers.exponent)
    loads, routing = expert_loads(routings)
    rows = mean_rows(loads)[routing]
    none = np.zeros(routing.size, dtype=np.bool_)
    p = layers.point
    fused = ~device.library.shared[p] & (machines.size[p] >= machines.output[p])
    both = 2 * layers.ffn
    up = GroupedProducts(
        p, routing, layers.local, layers.hidden, both, np.where(fused, layers.ffn, both), none
    )
    down = GroupedProducts(p, routing, layers.local, layers.ffn, layers.hidden, layers.hidden, none)
    passes = expert_passes(device, machines, layers, rows)
    kernels = time_passes(device, p, passes)
    gate_up = time_grouped(device, machines, up, loads, device.blocks)
    lower = time_grouped(device, machines, down, loads, device.blocks)
    kernels[:, KERNELS.index("gate_up")] = gate_up.time
    kernels[:, KERNELS.index("down")] = lower.time
    return ExpertTimes(kernels.sum(axis=1), kernels, passes, gate_up, lower)
