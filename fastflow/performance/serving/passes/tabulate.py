"""Pass times of servers, tabulated with the same kernels and collectives as training.

A point of `crossflow.predict` is one part of a pass (`transformer/serving_pass.py`) at one size. All parts
and sizes of many servers are predicted in one call, so that repeated kernels are timed once.
"""

from __future__ import annotations

import threading
from typing import NamedTuple

import numpy as np

from fastflow.core.reasons.columns import first_reasons
from fastflow.core.tables import (
    Bools,
    Columns,
    Floats,
    Inputs,
    Ints,
    broadcast_column,
    concat_tables,
    is_constant,
    take,
)
from fastflow.performance.crossflow import predict
from fastflow.performance.serving.layout import ServerLayouts, stage_inputs
from fastflow.performance.serving.passes.kernel_sums import (
    TabulatedPart,
    limiters_of,
    parts_of_kernels,
    read_prediction,
)
from fastflow.performance.serving.passes.parts import Axes, Part, Passes
from fastflow.performance.serving.passes.table import PassTimes
from fastflow.performance.serving.pipeline_stages import parts_of_model
from fastflow.physics.hardware.chip import Chip
from fastflow.physics.hardware.packages import PACKAGE
from fastflow.physics.workload.models.transformer.dimensions import BEFORE
from fastflow.physics.workload.models.transformer.layer_pattern import KEY
from fastflow.physics.workload.models.transformer.serving_pass import (
    DECODE,
    FAMILY,
    HEAD_PART,
    PART,
    PREFILL,
    TOKENS_PART,
)
from fastflow.physics.workload.precision import precision

PAIR = "pair"
"""A prefill of two chunks in the same iteration."""
PARTS = (TOKENS_PART, HEAD_PART, DECODE, PREFILL)
_BATCH_SIZE = 32  # servers of a call, which have some 500 sizes each
_MAX_CACHED = 64  # servers


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
        limiters=limiters_of(first.chip),
        weights=sum(tables[name].weights for name in (HEAD_PART, PREFILL)) + first.weights,
        expert_weights=first.expert_weights,
        attention_weights=tables[PREFILL].attention_weights + first.attention_weights,
        chip=first.chip,
        peak=first.peak,
        reason=first_reasons(servers.reason, *(table.reason for table in tables.values())),
        reads=np.zeros(layers.time.shape),
        busy=np.zeros((*layers.time.shape, 2)),
    )


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
        key: broadcast_column(column[:1], server.size) if is_constant(column) else column[server]
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
    table = read_prediction(prediction, timed, parts_of_kernels(prediction.graph, timed, parts), parts)
    ends = np.cumsum([0, *lengths])
    return {
        name: _select_part(table, slice(start, stop), (count, *size.shape), axes.of(size.part))
        for (name, size), start, stop in zip(sizes.items(), ends, ends[1:], strict=False)
    }


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
