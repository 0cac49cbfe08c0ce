"""Parts of passes as sums over the kernels of a prediction: times, energy, launches and weights."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fastflow.core.dedupe import compute_unique, factorize, map_values
from fastflow.core.reasons.columns import ReasonColumn
from fastflow.core.tables import Floats, Inputs, Ints
from fastflow.performance.admission import TYPES
from fastflow.performance.prediction import Prediction
from fastflow.performance.serving.passes.parts import Part
from fastflow.performance.serving.pipeline_stages import EMBEDDING_TIME, FIRST_KIND, HEAD_TIME
from fastflow.physics.hardware.chip import Chip
from fastflow.physics.timing.roofline import limiter_names
from fastflow.physics.workload.graph import (
    ATTENTION,
    BESIDE,
    EXPERTS,
    NO_EXCHANGE,
    ON_ACTIVATIONS,
    OTHER,
    PRODUCT,
    Graph,
    sum_by_kind,
    sum_by_point,
)
from fastflow.physics.workload.models.transformer.layer_pattern import KEY, kinds_of
from fastflow.physics.workload.models.transformer.serving_pass import HEAD_PART, PART, TOKENS_PART
from fastflow.physics.workload.ops import grouped_gemm
from fastflow.physics.workload.precision import (
    OPERAND,
    OUTPUT_BYTES,
    attention_weights,
    precision,
    stored_bytes,
    stored_experts,
)
from fastflow.schema.servers import BESIDE_TOKENS

DRAM_TIME = -2
"""Column of `Timing.times`."""
NETWORK = "network"


class TabulatedPart(NamedTuple):
    """A part of passes with weights and chips; (points, ...) of a prediction, (servers, ...) of servers."""

    part: Part
    weights: Floats  # of a device of a single stage, by part of the model, (servers, parts) [B]
    expert_weights: Floats  # of these, routed experts [B]
    attention_weights: Floats  # of these, products of attention [B]
    reason: ReasonColumn
    chip: Chip
    peak: Floats


def limiters_of(chip: Chip) -> tuple[str, ...]:
    """Return the names of what limits passes on a chip, the network last."""
    return (*limiter_names(len(chip.levels)), NETWORK)


def read_prediction(prediction: Prediction, inputs: Inputs, parts: Ints, num_parts: int) -> TabulatedPart:
    """Return the table of a prediction, (points, ...); inputs: of timed points.

    parts: the part of the model that every kernel belongs to, of num_parts, (kernels,).
    """
    points, graph, limiters = prediction.reason.size, prediction.graph, len(limiters_of(prediction.chip))
    time, energy, peak = np.full((3, points), np.nan)
    of_parts, launches = np.zeros((3, points)), np.zeros(points)  # experts, attention, sums
    by, of_model = np.zeros((points, limiters)), np.zeros((points, num_parts))
    weights, expert_weights, attention_weights = np.zeros((3, points, num_parts))
    hidden_s = _hidden_s(prediction, inputs)
    throttled, kernel_s = np.zeros(points), prediction.pipeline.launches * prediction.timing.time - hidden_s
    kernels = sum_by_kind(graph.offset, prediction.timing.limiter, kernel_s, limiters - 1)
    total = prediction.timeline.total - sum_by_point(graph, hidden_s)
    time[prediction.timed] = total
    by[prediction.timed, :-1] = kernels
    by[prediction.timed, -1] = np.maximum(total - kernels.sum(axis=1), 0.0)
    energy[prediction.timed], peak[prediction.timed] = prediction.energy, prediction.peaks.device
    of_model[prediction.timed] = _times_of_model(prediction, parts, num_parts, hidden_s, total)
    if prediction.peaks.slower is not None:
        throttled[prediction.timed] = sum_by_point(graph, kernel_s * prediction.peaks.slower)
    part, weight_bytes = graph.layer.part, _weight_bytes(prediction, inputs)
    weights[prediction.timed] = sum_by_kind(graph.offset, parts, weight_bytes, num_parts)
    if (part == EXPERTS).any():
        of_experts = np.zeros(weight_bytes.size)  # without their routers
        for fused in prediction.shards.fused:
            if fused.type is grouped_gemm.TYPE:
                of_experts[fused.rows] = weight_bytes[fused.rows]
        expert_weights[prediction.timed] = sum_by_kind(graph.offset, parts, of_experts, num_parts)
    of_attention = np.where(part == ATTENTION, weight_bytes, 0.0)
    attention_weights[prediction.timed] = sum_by_kind(graph.offset, parts, of_attention, num_parts)
    is_sum = (part == OTHER) & (graph.kind == ON_ACTIVATIONS)
    for column, selected in zip(of_parts, (part == EXPERTS, part == ATTENTION, is_sum), strict=True):
        column[prediction.timed] = sum_by_point(graph, np.where(selected, kernel_s, 0.0))
    launches[prediction.timed] = sum_by_point(graph, _host_launches(prediction))
    times = Part(time, by[:, -1], energy, by, of_model, throttled, of_parts[0], launches, *of_parts[1:])
    return TabulatedPart(
        times, weights, expert_weights, attention_weights, prediction.reason, prediction.chip, peak
    )


def _host_launches(prediction: Prediction) -> Floats:
    """Return the kernels and collectives that a host launches, (kernels,)."""
    shards, launches = prediction.shards, np.ones(prediction.graph.point.size)
    for kernels in shards.fused:
        launches[kernels.rows] = kernels.type.launches
    for edges in shards.syncs:
        launches += edges.collective != NO_EXCHANGE
    return launches * prediction.pipeline.launches


def parts_of_kernels(graph: Graph, inputs: Inputs, num_parts: int) -> Ints:
    """Return the part of the model that every kernel belongs to, (kernels,); inputs: of timed points."""
    names, name_index = factorize(inputs[KEY])
    parts, part_index = factorize(inputs[PART.name])
    table = np.zeros((len(names), len(parts), num_parts), dtype=np.int64)
    for i, name in enumerate(names):
        layers = [*range(FIRST_KIND, FIRST_KIND + len(kinds_of(name)))]
        for j, part in enumerate(parts):
            indices = {TOKENS_PART: [EMBEDDING_TIME, *layers], HEAD_PART: [HEAD_TIME]}.get(part, layers)
            table[i, j, : len(indices)] = indices
    of_kernels: Ints = table[name_index[graph.point], part_index[graph.point], graph.layer.number]
    return of_kernels


def _hidden_s(prediction: Prediction, inputs: Inputs) -> Floats:
    """Return the time of kernels that run beside others, beyond that of their work [s], (kernels,).

    Of few tokens, shared experts run in another stream than the routed ones, or as one more of them: what
    remains is what they move and compute.
    """
    graph, timing = prediction.graph, prediction.timing
    tokens = inputs["model.batch"] * inputs["model.sequence"]
    is_beside = (graph.layer.part == BESIDE) & (tokens <= inputs[BESIDE_TOKENS])[graph.point]
    if not is_beside.any():
        return np.zeros(graph.point.size)
    work_s = np.maximum(timing.times[:, DRAM_TIME], timing.flop / prediction.peaks.kernels)
    hidden: Floats = np.where(is_beside, np.maximum(timing.time - work_s, 0.0), 0.0)
    hidden *= prediction.pipeline.launches
    return hidden


def _times_of_model(
    prediction: Prediction, parts: Ints, num_parts: int, hidden_s: Floats, total: Floats
) -> Floats:
    """Return the time of each part of the model, with exposed communication [s], (timed, parts).

    hidden_s: of kernels that run beside others; total: of passes without it.
    """
    kernel_s, waits = prediction.timing.time, prediction.communication.waits
    if waits is not None:
        kernel_s = kernel_s + waits.time.sum(axis=0)
    part_s = sum_by_kind(
        prediction.graph.offset, parts, prediction.pipeline.launches * kernel_s - hidden_s, num_parts
    )
    of_parts = part_s.sum(axis=1)
    return part_s * (total / np.where(of_parts > 0.0, of_parts, 1.0))[:, None]


class _WeightBytes(NamedTuple):
    """Bytes of a weight by its role [B]; (points,)."""

    products: Floats
    attention: Floats
    others: Floats  # of activations' type: checkpoints leave tables, heads and routers out of quantisation
    experts: Floats


def _bytes_by_role(inputs: Inputs) -> _WeightBytes:
    """Return the bytes of weights of models; inputs: `admission.TYPES`."""
    selected, size = inputs["precision.weight"] != OPERAND, precision(inputs).weight
    attention, experts = (stored_bytes(inputs, of(inputs)) for of in (attention_weights, stored_experts))
    others = map_values(OUTPUT_BYTES, inputs["model.dtype"])
    attention, others = (np.where(selected, size, narrow) for narrow in (attention, others))
    return _WeightBytes(size, attention, others, experts)


def _weight_bytes(prediction: Prediction, inputs: Inputs) -> Floats:
    """Return the bytes of every kernel's weights, (kernels,); inputs: of timed points."""
    graph, shards, of = prediction.graph, prediction.shards, compute_unique(_bytes_by_role, inputs, *TYPES)
    is_product = (graph.kind == PRODUCT) & (graph.wide == 0)
    of_products = np.where(graph.layer.part == ATTENTION, of.attention[graph.point], of.products[graph.point])
    size: Floats = np.where(is_product, of_products, of.others[graph.point])
    for fused in shards.fused:
        if fused.type is grouped_gemm.TYPE:
            size[fused.rows] = of.experts[graph.point[fused.rows]]
    local = shards.kernels
    elements = 1.0 * graph.memory.weights * local.batch * local.inner * local.cols * graph.launches.times
    weight_bytes: Floats = elements * size
    return weight_bytes
