"""Pass times of servers, tabulated with the same kernels and collectives as training.

A point of `crossflow.predict` is one part of a pass (`transformer/serving_pass.py`) at one size. All parts
and sizes of many servers are predicted in one call, so that repeated kernels are timed once.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastflow.core.dedupe import compute_unique, factorize, map_values
from fastflow.core.reasons.columns import ReasonColumn, first_reasons
from fastflow.core.tables import Bools, Columns, Floats, Inputs, Ints, broadcast_column, concat_tables, take
from fastflow.performance.admission import TYPES
from fastflow.performance.crossflow import predict
from fastflow.performance.prediction import Prediction
from fastflow.performance.serving.layout import ServerLayouts, stage_inputs
from fastflow.performance.serving.passes.table import PassTimes
from fastflow.performance.serving.pipeline_stages import (
    EMBEDDING_TIME,
    FIRST_KIND,
    HEAD_TIME,
    parts_of_model,
)
from fastflow.physics.hardware.chip import Chip
from fastflow.physics.hardware.packages import PACKAGE
from fastflow.physics.timing.roofline import limiter_names
from fastflow.physics.workload.graph import (
    ATTENTION,
    BESIDE,
    EXPERTS,
    NO_EXCHANGE,
    PRODUCT,
    Graph,
    sum_by_kind,
    sum_by_point,
)
from fastflow.physics.workload.models.transformer.dimensions import BEFORE
from fastflow.physics.workload.models.transformer.layer_pattern import KEY, kinds_of
from fastflow.physics.workload.models.transformer.serving_pass import (
    DECODE,
    FAMILY,
    HEAD_PART,
    PART,
    PREFILL,
    TOKENS_PART,
)
from fastflow.physics.workload.ops import grouped_gemm
from fastflow.physics.workload.precision import (
    OPERAND,
    OUTPUT_BYTES,
    attention_weights,
    precision,
    stored_bytes,
    stored_experts,
)
from fastflow.schema.serving import BESIDE_TOKENS

DRAM_TIME = -2
"""Column of `Timing.times`."""
NETWORK = "network"
PAIR = "pair"
"""A prefill of two chunks in the same iteration."""
PARTS = (TOKENS_PART, HEAD_PART, DECODE, PREFILL)
_FINE, _COARSE = (1.0, 1.5), (1.0,)  # entries of an axis, relative to the start of each doubling
_DEFAULT_SIZES = {"tokens": 8192, "requests": 512, "context": 16384}  # most calls have the same tables
_BATCH_SIZE = 32  # servers of a call, which have some 500 sizes each
_MAX_CACHED = 64  # servers


class Axes(NamedTuple):
    """Sizes at which passes are tabulated, as `PassTimes` has them; ascending."""

    tokens: Ints
    requests: Ints
    context: Ints
    chunk: Ints
    before: Ints

    def of(self, part: str) -> tuple[Ints, ...]:
        """Return the axes that a part of passes is tabulated along."""
        return {
            TOKENS_PART: (self.tokens,), HEAD_PART: (self.tokens,), DECODE: (self.requests, self.context),
            PREFILL: (self.chunk, self.before),
        }[part]  # fmt: skip


class Part(NamedTuple):
    """One part of passes at all sizes; (servers, *sizes)."""

    time: Floats  # [s]
    exchange: Floats  # of the time, waiting for the network [s]
    energy: Floats  # of one device [J]
    by: Floats  # time by limiter, (servers, ..., limiters) [s]
    of_model: Floats  # time by part of the model, (servers, ..., parts) [s]
    throttled: Floats  # time of kernels that a power limit slows down [s]
    experts: Floats  # time of kernels of experts [s]
    launches: Floats  # number of kernels and collectives

    def with_transfers(self, seconds: Floats) -> Part:
        """Return the part with transfers between stages; seconds: shaped as `time` [s]."""
        by = self.by.copy()
        by[..., -1] += seconds
        return self._replace(time=self.time + seconds, exchange=self.exchange + seconds, by=by)


class Passes(NamedTuple):
    """Passes of servers, their weights and chips."""

    times: PassTimes
    axes: Axes
    parts: Mapping[str, Part]  # tokens, head, decode, prefill
    limiters: tuple[str, ...]  # names of the last axis of `Part.by`
    weights: Floats  # of a device that has all layers, by part of the model, (servers, parts) [B]
    chip: Chip  # of every server
    peak: Floats  # [flop/s], (servers,); NaN where a server has no times
    reason: ReasonColumn  # why a server has no times, (servers,)

    def of_servers(self, rows: Ints) -> Passes:
        """Return the passes of some servers, in order."""
        times = self.times
        return self._replace(
            times=times._replace(
                shared=times.shared[rows], experts=times.experts[rows], head=times.head[rows],
                decode=times.decode[rows], prefill=times.prefill[rows], prefill_more=times.prefill_more[rows],
            ),
            parts=take(dict(self.parts), rows),
            weights=self.weights[rows], chip=take(self.chip, rows), peak=self.peak[rows],
            reason=take(self.reason, rows),
        )  # fmt: skip


def axes_of(tokens: int, requests: int, context: int, chunk: int, before: int) -> Axes:
    """Return axes up to these sizes, at least the default ones."""
    return Axes(
        tokens=_axis(max(tokens, _DEFAULT_SIZES["tokens"]), _FINE),
        requests=_axis(max(requests, _DEFAULT_SIZES["requests"]), _COARSE),
        context=_axis(max(context, _DEFAULT_SIZES["context"]), _COARSE, 64),
        chunk=_axis(max(chunk, _DEFAULT_SIZES["tokens"]), _COARSE, 16),
        before=np.concatenate([[0], _axis(max(before, _DEFAULT_SIZES["tokens"]), _COARSE, 1024)[1:]]),
    )


def _axis(most: int, steps: tuple[float, ...], least: int = 1) -> Ints:
    """Return sizes from 1 to at least `most`: 1, then from `least` on some steps in each doubling."""
    sizes, start = [1], max(least, 2)
    while sizes[-1] < most or len(sizes) < 2:
        sizes += [int(start * step) for step in steps]
        start *= 2
    return np.array(sizes, dtype=np.int64)


def passes_of(inputs: Inputs, servers: ServerLayouts, axes: Axes, queries: Ints) -> Passes:
    """Return the tables of `tabulate`, cached: consecutive chunks of a grid have the same servers."""
    if servers.ranks.size > _MAX_CACHED:
        return tabulate(inputs, servers, axes, queries)
    layouts = servers[:-1]  # none has a reason
    columns = *inputs.values(), *layouts, *axes, queries
    key = [*inputs, *(np.asarray(column).tobytes() for column in columns)]
    last_key, passes = getattr(_last, "passes", (None, None))
    if passes is None or last_key != key:
        passes = tabulate(inputs, servers, axes, queries)
        _last.passes = key, passes
    return passes


_last = threading.local()


def tabulate(inputs: Inputs, servers: ServerLayouts, axes: Axes, queries: Ints) -> Passes:
    """Tabulate the passes of servers; inputs: of the model, one server a row.

    queries: tokens of a request that a pass of decoding verifies, (servers,).
    """
    columns, count, parts = stage_inputs(inputs, servers), servers.ranks.size, parts_of_model(inputs[KEY])
    batches = np.split(np.arange(count), np.arange(_BATCH_SIZE, count, _BATCH_SIZE))
    tables = concat_tables(
        [_predict_sizes(*take((columns, servers.ranks, queries), rows), axes, parts) for rows in batches]
    )
    head, decode, prefill, pair = (tables[name].part.time for name in (*PARTS[1:], PAIR))
    first = tables[TOKENS_PART]
    layers = first.part.with_transfers(_stage_transfer_s(inputs, servers, first.chip, axes.tokens))
    times = PassTimes(
        tokens=axes.tokens, shared=layers.time, experts=layers.experts, head=head,
        requests=axes.requests, context=axes.context, decode=decode, chunk=axes.chunk, before=axes.before,
        prefill=prefill, prefill_more=np.maximum(pair - prefill, 0.0),
    )  # fmt: skip
    return Passes(
        times=times,
        axes=axes,
        parts={name: tables[name].part for name in PARTS} | {TOKENS_PART: layers},
        limiters=_limiters(first.chip),
        weights=sum(tables[name].weights for name in (HEAD_PART, PREFILL)) + first.weights,
        chip=first.chip,
        peak=first.peak,
        reason=first_reasons(servers.reason, *(table.reason for table in tables.values())),
    )


class TabulatedPart(NamedTuple):
    """A part of passes with weights and chips; (servers, ...), or (points, ...) before `_select_part`."""

    part: Part
    weights: Floats  # of a device of a single stage, by part of the model, (servers, parts) [B]
    reason: ReasonColumn
    chip: Chip
    peak: Floats


class _Sizes(NamedTuple):
    """The sizes of a part of a server's passes; (sizes,)."""

    part: str
    shape: tuple[int, ...]  # of its table
    sequences: Ints
    tokens: Ints | None  # of a sequence; None: those that decoding verifies
    before: Ints  # tokens of a sequence in the cache


def _sizes(axes: Axes) -> dict[str, _Sizes]:
    """Return the sizes of every part, and of prefills of two chunks."""

    def grid(part: str, *sides: Ints) -> tuple[str, tuple[int, ...], tuple[Ints, ...]]:
        shape = tuple(side.size for side in sides)
        return part, shape, tuple(side.reshape(-1) for side in np.meshgrid(*sides, indexing="ij"))

    sizes = {}
    for name in (TOKENS_PART, HEAD_PART):
        part, shape, (rows,) = grid(name, axes.tokens)
        sizes[name] = _Sizes(part, shape, rows, np.ones_like(rows), np.zeros_like(rows))
    part, shape, (requests, context) = grid(DECODE, axes.requests, axes.context)
    sizes[DECODE] = _Sizes(part, shape, requests, None, context)
    part, shape, (chunk, before) = grid(PREFILL, axes.chunk, axes.before)
    for name, chunks in ((PREFILL, 1), (PAIR, 2)):
        sizes[name] = _Sizes(part, shape, np.full_like(chunk, chunks), chunk, before)
    return sizes


def _limiters(chip: Chip) -> tuple[str, ...]:
    """Return the names of what limits passes on a chip, the network last."""
    return (*limiter_names(len(chip.levels)), NETWORK)


def _predict_sizes(
    inputs: Columns, ranks: Ints, queries: Ints, axes: Axes, parts: int
) -> dict[str, TabulatedPart]:
    """Predict servers at all sizes of all parts of passes in one call; parts: of a model."""
    sizes, count = _sizes(axes), ranks.size
    lengths = [size.before.size * count for size in sizes.values()]
    server = np.concatenate([np.repeat(np.arange(count), size.before.size) for size in sizes.values()])

    def of_points(column: str) -> Ints:
        return np.concatenate([np.tile(getattr(size, column), count) for size in sizes.values()])

    tokens = [
        np.repeat(queries, size.before.size) if size.tokens is None else np.tile(size.tokens, count)
        for size in sizes.values()
    ]
    points: Columns = {
        key: broadcast_column(column[:1], server.size) if _is_constant(column) else column[server]
        for key, column in inputs.items()
    }
    points |= {
        "model.name": np.full(server.size, FAMILY.name),
        PART.name: np.repeat([size.part for size in sizes.values()], lengths),
        BEFORE.name: of_points("before"),
        "model.sequence": np.concatenate(tokens),
        "model.batch": of_points("sequences") * ranks[server],
    }
    prediction = predict(points)
    timed = points if prediction.timed.size == server.size else take(points, prediction.timed)
    table = read_prediction(prediction, timed, _parts_of_model(prediction.graph, timed, parts), parts)
    ends = np.cumsum([0, *lengths])
    return {
        name: _select_part(table, slice(start, stop), (count, *size.shape), axes.of(size.part))
        for (name, size), start, stop in zip(sizes.items(), ends, ends[1:], strict=False)
    }


def _is_constant(column: NDArray[Any]) -> bool:
    return bool(column.size == 1 or (column[1:] == column[:-1]).all())


def read_prediction(prediction: Prediction, inputs: Inputs, parts: Ints, num_parts: int) -> TabulatedPart:
    """Return the table of a prediction, (points, ...); inputs: of timed points.

    parts: the part of the model that every kernel belongs to, of num_parts, (kernels,).
    """
    points, graph, limiters = prediction.reason.size, prediction.graph, len(_limiters(prediction.chip))
    time, energy, peak = np.full((3, points), np.nan)
    experts, launches = np.zeros((2, points))
    by, (of_model, weights) = np.zeros((points, limiters)), np.zeros((2, points, num_parts))
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
    weights[prediction.timed] = sum_by_kind(graph.offset, parts, _weight_bytes(prediction, inputs), num_parts)
    is_expert = graph.layer.part == EXPERTS
    experts[prediction.timed] = sum_by_point(graph, np.where(is_expert, kernel_s, 0.0))
    launches[prediction.timed] = sum_by_point(graph, _host_launches(prediction))
    part = Part(time, by[:, -1], energy, by, of_model, throttled, experts, launches)
    return TabulatedPart(part, weights, prediction.reason, prediction.chip, peak)


def _host_launches(prediction: Prediction) -> Floats:
    """Return the kernels and collectives that a host launches, (kernels,)."""
    shards, launches = prediction.shards, np.ones(prediction.graph.point.size)
    for kernels in shards.fused:
        launches[kernels.rows] = kernels.type.launches
    for edges in shards.syncs:
        launches += edges.collective != NO_EXCHANGE
    return launches * prediction.pipeline.launches


def _parts_of_model(graph: Graph, inputs: Inputs, num_parts: int) -> Ints:
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


def _select_part(
    table: TabulatedPart, rows: slice, shape: tuple[int, ...], axes: tuple[Ints, ...]
) -> TabulatedPart:
    """Return the rows of one part, by server and size, with weights and chips by server.

    Sizes that are too large to be timed are extrapolated from those before. A server without times of the
    smallest sizes has none.
    """
    missing = table.reason.exists[rows].reshape(shape)
    first = np.arange(rows.start, rows.stop, missing[0].size)
    part = Part(*(column[rows].reshape(*shape, *column.shape[1:]) for column in table.part))
    if missing.any():
        for column in part:
            still_missing = missing.copy()
            for axis in range(len(axes), 0, -1):
                _extrapolate(column, still_missing, axes[axis - 1], axis)
        missing = still_missing
    missing = missing.reshape(shape[0], -1)
    reason = take(table.reason, first + missing.argmax(axis=1)).where(np.asarray(missing.any(axis=1)))
    return take(table, first)._replace(part=part, reason=reason)


def _extrapolate(column: Floats, missing: Bools, sizes: Ints, axis: int) -> None:
    """Extrapolate missing entries along an axis, linearly from the two sizes before, where both have values.

    column: of a part, sizes from axis 1 on; missing: (servers, *sizes), cleared where an entry is written.
    """
    table, gaps = np.moveaxis(column, axis, 0), np.moveaxis(missing, axis, 0)
    for i in range(2, sizes.size):
        rows = gaps[i] & ~gaps[i - 1] & ~gaps[i - 2]
        if rows.any():
            share = (sizes[i] - sizes[i - 1]) / (sizes[i - 1] - sizes[i - 2])
            table[i][rows] = table[i - 1][rows] + share * (table[i - 1][rows] - table[i - 2][rows])
            gaps[i][rows] = False


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


def _stage_transfer_s(inputs: Inputs, servers: ServerLayouts, chip: Chip, tokens: Ints) -> Floats:
    """Return the time of sending activations through all stages, (servers, tokens) [s].

    inputs: of all devices. A server is in one package where it fits; each device sends its shard.
    """
    in_package = servers.devices <= inputs[PACKAGE]
    intra, inter = (
        getattr(chip, name).bandwidth * inputs[f"net.{name}.utilization"] for name in ("intra", "inter")
    )
    bandwidth = np.where(in_package, intra, inter)
    latency = np.where(in_package, inputs["net.intra.latency"], inputs["net.inter.latency"])
    columns = inputs["model.hidden"] * np.maximum(inputs["model.streams"], 1)
    token_bytes = columns * precision(inputs).activation / servers.tensor
    hops = servers.slots[:, None] - 1
    # a single device may have no links
    with np.errstate(divide="ignore"):  # a chip without links takes forever, and has its reason
        token_s = np.divide(token_bytes, bandwidth, out=np.zeros(bandwidth.size), where=servers.slots > 1)
    hop_s = latency[:, None] + tokens * token_s[:, None]
    return np.where(hops > 0, hops * hop_s, 0.0)
