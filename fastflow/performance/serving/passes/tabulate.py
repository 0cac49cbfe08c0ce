"""What passes of a server take, tabulated by the same kernels and exchanges as training.

A point of `crossflow.predict` is one part of a pass (`transformer/serving_pass.py`) at one size. All parts
and sizes of a server are predicted in one call, many servers together, so that what repeats is timed once.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastflow.core.dedupe import factorize, map_values
from fastflow.core.tables import (
    Bools,
    Columns,
    Floats,
    Inputs,
    Ints,
    Texts,
    broadcast_column,
    first_of,
    stacked,
    take,
)
from fastflow.performance.crossflow import predict
from fastflow.performance.prediction import Prediction
from fastflow.performance.serving.layout import ServerLayouts, stage_inputs
from fastflow.performance.serving.passes.table import PassTimes
from fastflow.performance.serving.pipeline_stages import EMBEDDING_TIME, HEAD_TIME, PARTS_OF_MODEL
from fastflow.physics.hardware.chip import Chip
from fastflow.physics.hardware.packages import PACKAGE
from fastflow.physics.timing.roofline import limiter_names
from fastflow.physics.workload.graph import Graph, sum_by_kind
from fastflow.physics.workload.models.transformer.layer_pattern import KEY, KINDS, kinds_of
from fastflow.physics.workload.models.transformer.serving_pass import (
    BEFORE,
    DECODE,
    FAMILY,
    HEAD_PART,
    PART,
    PREFILL,
    TOKENS_PART,
)
from fastflow.physics.workload.ops import grouped_gemm
from fastflow.physics.workload.precision import OPERAND_BYTES, precision, stored_experts

NETWORK = "network"
PAIR = "pair"
"""Of a prefill: two chunks beside each other."""
PARTS = (TOKENS_PART, HEAD_PART, DECODE, PREFILL)
_FINE, _COARSE = (1.0, 1.5), (1.0,)  # steps of an axis, in every doubling
_USUAL = {"tokens": 8192, "requests": 512, "context": 16384}  # so that most calls have the same tables
_AT_ONCE = 32  # servers of a call, which have some 500 sizes each
_MOST_KEPT = 64  # servers


class Axes(NamedTuple):
    """Sizes at which passes are tabulated, as `PassTimes` has them; ascending."""

    tokens: Ints
    requests: Ints
    context: Ints
    chunk: Ints
    before: Ints

    def of(self, part: str) -> tuple[Ints, ...]:
        """Return the sizes that a part of passes is tabulated by."""
        return {
            TOKENS_PART: (self.tokens,), HEAD_PART: (self.tokens,), DECODE: (self.requests, self.context),
            PREFILL: (self.chunk, self.before),
        }[part]  # fmt: skip


class Part(NamedTuple):
    """One part of passes at all sizes; (servers, ...) as its times are."""

    time: Floats  # [s]
    exchange: Floats  # of it, waiting for the network [s]
    energy: Floats  # of one device [J]
    by: Floats  # time by limiter, (servers, ..., limiters) [s]
    of_model: Floats  # time by part of the model, (servers, ..., PARTS_OF_MODEL) [s]

    def sent(self, seconds: Floats) -> Part:
        """Return the same with what goes from stage to stage beside; seconds: as `time` [s]."""
        by = self.by.copy()
        by[..., -1] += seconds
        return self._replace(time=self.time + seconds, exchange=self.exchange + seconds, by=by)


class Passes(NamedTuple):
    """Passes of servers, and what is known of these beside."""

    times: PassTimes
    axes: Axes
    parts: Mapping[str, Part]  # tokens, head, decode, prefill
    limiters: tuple[str, ...]  # what the last axis of `Part.by` is
    weights: Floats  # of a device that has all layers, by part of the model, (servers, PARTS_OF_MODEL) [B]
    chip: Chip  # of every server
    peak: Floats  # [flop/s], (servers,); NaN where one has no times
    reason: Texts  # why a server has no times, (servers,)


def axes_of(tokens: int, requests: int, context: int, chunk: int, before: int) -> Axes:
    """Return sizes up to these, or the usual ones; what lies between two of an axis is interpolated."""
    return Axes(
        tokens=_axis(max(tokens, _USUAL["tokens"]), _FINE),
        requests=_axis(max(requests, _USUAL["requests"]), _COARSE),
        context=_axis(max(context, _USUAL["context"]), _COARSE, 64),
        chunk=_axis(max(chunk, _USUAL["tokens"]), _COARSE, 16),
        before=np.concatenate([[0], _axis(max(before, _USUAL["tokens"]), _COARSE, 1024)[1:]]),
    )


def _axis(most: int, steps: tuple[float, ...], least: int = 1) -> Ints:
    """Return whole numbers from 1 to at least `most`: 1, then in each doubling from `least` on these."""
    found, start = [1], max(least, 2)
    while found[-1] < most or len(found) < 2:
        found += [int(start * step) for step in steps]
        start *= 2
    return np.array(found, dtype=np.int64)


def passes_of(inputs: Inputs, servers: ServerLayouts, axes: Axes, queries: Ints) -> Passes:
    """Return what `tabulate` does; chunks of a grid ask for the same servers one after the other."""
    if servers.ranks.size > _MOST_KEPT:
        return tabulate(inputs, servers, axes, queries)
    columns = *inputs.values(), *servers, *axes, queries
    asked = [*inputs, *(np.asarray(column).tobytes() for column in columns)]
    known, passes = getattr(_last, "passes", (None, None))
    if passes is None or known != asked:
        passes = tabulate(inputs, servers, axes, queries)
        _last.passes = asked, passes
    return passes


_last = threading.local()


def tabulate(inputs: Inputs, servers: ServerLayouts, axes: Axes, queries: Ints) -> Passes:
    """Tabulate the passes of servers; inputs: of the model, one server a row.

    queries: tokens of a request that a pass of decoding verifies, (servers,).
    """
    own, count = stage_inputs(inputs, servers), servers.ranks.size
    batches = np.split(np.arange(count), np.arange(_AT_ONCE, count, _AT_ONCE))
    every = [_predicted(*take((own, servers.ranks, queries), rows), axes) for rows in batches]
    found = stacked(every)
    head, decode, prefill, pair = (found[name].part.time for name in (*PARTS[1:], PAIR))
    first = found[TOKENS_PART]
    sent = first.part.sent(_sends(inputs, servers, first.chip, axes.tokens))
    times = PassTimes(
        tokens=axes.tokens, shared=sent.time, head=head,
        requests=axes.requests, context=axes.context, decode=decode, chunk=axes.chunk, before=axes.before,
        prefill=prefill, prefill_more=np.maximum(pair - prefill, 0.0),
    )  # fmt: skip
    return Passes(
        times=times,
        axes=axes,
        parts={name: found[name].part for name in PARTS} | {TOKENS_PART: sent},
        limiters=_limiters(first.chip),
        weights=sum(found[name].weights for name in (HEAD_PART, PREFILL)) + first.weights,
        chip=first.chip,
        peak=first.peak,
        reason=first_of(servers.reason, *(one.reason for one in found.values())),
    )


class _Found(NamedTuple):
    """A part of passes, and the servers'; (servers, ...)."""

    part: Part
    weights: Floats  # of a device of one stage alone, by part of the model, (servers, PARTS_OF_MODEL) [B]
    reason: Texts
    chip: Chip
    peak: Floats


class _Sizes(NamedTuple):
    """The sizes of a part of a server's passes; (sizes,)."""

    part: str
    shape: tuple[int, ...]  # of its table
    sequences: Ints
    tokens: Ints | None  # of a sequence; None: what decoding verifies
    before: Ints  # of a sequence, in the cache


def _sizes(axes: Axes) -> dict[str, _Sizes]:
    """Return the sizes of every part, and of prefills of two chunks."""

    def grid(part: str, *sides: Ints) -> tuple[str, tuple[int, ...], tuple[Ints, ...]]:
        shape = tuple(side.size for side in sides)
        return part, shape, tuple(side.reshape(-1) for side in np.meshgrid(*sides, indexing="ij"))

    found = {}
    for name in (TOKENS_PART, HEAD_PART):
        part, shape, (rows,) = grid(name, axes.tokens)
        found[name] = _Sizes(part, shape, rows, np.ones_like(rows), np.zeros_like(rows))
    part, shape, (requests, context) = grid(DECODE, axes.requests, axes.context)
    found[DECODE] = _Sizes(part, shape, requests, None, context)
    part, shape, (chunk, before) = grid(PREFILL, axes.chunk, axes.before)
    for name, many in ((PREFILL, 1), (PAIR, 2)):
        found[name] = _Sizes(part, shape, np.full_like(chunk, many), chunk, before)
    return found


def _limiters(chip: Chip) -> tuple[str, ...]:
    return (*limiter_names(len(chip.levels)), NETWORK)


def _predicted(inputs: Columns, ranks: Ints, queries: Ints, axes: Axes) -> dict[str, _Found]:
    """Predict servers at all sizes of all parts in one call."""
    sizes, count = _sizes(axes), ranks.size
    lengths = [one.before.size * count for one in sizes.values()]
    own = np.concatenate([np.repeat(np.arange(count), one.before.size) for one in sizes.values()])

    def each(column: str) -> Ints:
        return np.concatenate([np.tile(getattr(one, column), count) for one in sizes.values()])

    tokens = [
        np.repeat(queries, one.before.size) if one.tokens is None else np.tile(one.tokens, count)
        for one in sizes.values()
    ]
    asked: Columns = {
        key: broadcast_column(column[:1], own.size) if _alike(column) else column[own]
        for key, column in inputs.items()
    }
    asked |= {
        "model.name": np.full(own.size, FAMILY.name),
        PART.name: np.repeat([one.part for one in sizes.values()], lengths),
        BEFORE.name: each("before"),
        "model.sequence": np.concatenate(tokens),
        "model.batch": each("sequences") * ranks[own],
    }
    found = predict(asked)
    table, ends = _read(found, asked, len(_limiters(found.chip))), np.cumsum([0, *lengths])
    return {
        name: _of_part(table, slice(start, stop), (count, *one.shape), axes.of(one.part))
        for (name, one), start, stop in zip(sizes.items(), ends, ends[1:], strict=False)
    }


def _alike(column: NDArray[Any]) -> bool:
    return bool(column.size == 1 or (column[1:] == column[:-1]).all())


def _read(found: Prediction, inputs: Inputs, limiters: int) -> _Found:
    """Read what was predicted, (points, ...); inputs: of every point."""
    points, graph = found.reason.size, found.graph
    time, energy, peak = np.full((3, points), np.nan)
    by, (of_model, weights) = np.zeros((points, limiters)), np.zeros((2, points, PARTS_OF_MODEL))
    kernels = sum_by_kind(
        graph.offset, found.timing.limiter, found.launches * found.timing.time, limiters - 1
    )
    time[found.timed] = found.timeline.total
    by[found.timed, :-1] = kernels
    by[found.timed, -1] = np.maximum(found.timeline.total - kernels.sum(axis=1), 0.0)
    energy[found.timed], peak[found.timed] = found.energy, found.peak
    own = take(dict(inputs), found.timed)
    place = _parts_of_model(graph, own)
    of_model[found.timed] = _times_of_model(found, place)
    weights[found.timed] = sum_by_kind(graph.offset, place, _owned(found, own), PARTS_OF_MODEL)
    return _Found(Part(time, by[:, -1], energy, by, of_model), weights, found.reason, found.chip, peak)


def _parts_of_model(graph: Graph, inputs: Inputs) -> Ints:
    """Return the part of the model that every kernel belongs to, (kernels,); inputs: of timed points."""
    names, place = factorize(inputs[KEY])
    parts, part = factorize(inputs[PART.name])
    table = np.zeros((len(names), len(parts), 1 + len(KINDS)), dtype=np.int64)
    for number, name in enumerate(names):
        layers = [1 + KINDS.index(kind) for kind in kinds_of(name)]
        for at, which in enumerate(parts):
            places = {TOKENS_PART: [EMBEDDING_TIME, *layers], HEAD_PART: [HEAD_TIME]}.get(which, layers)
            table[number, at, : len(places)] = places
    parts_of_rows: Ints = table[place[graph.point], part[graph.point], graph.layer]
    return parts_of_rows


def _times_of_model(prediction: Prediction, place: Ints) -> Floats:
    """Return what each part of the model takes, with what kernels wait for [s], (timed, PARTS_OF_MODEL)."""
    each, waits = prediction.timing.time, prediction.communication.waits
    if waits is not None:
        each = each + waits.time.sum(axis=0)
    spent = sum_by_kind(prediction.graph.offset, place, prediction.launches * each, PARTS_OF_MODEL)
    whole = spent.sum(axis=1)
    return spent * (prediction.timeline.total / np.where(whole > 0.0, whole, 1.0))[:, None]


def _of_part(table: _Found, rows: slice, shape: tuple[int, ...], axes: tuple[Ints, ...]) -> _Found:
    """Return the rows of one part, by server and size; what servers have is said once.

    Where a size is too large for a time, times go on as between the sizes before it. A server without times
    of the smallest sizes has none.
    """
    reasons = table.reason[rows].reshape(shape)
    first = np.arange(rows.start, rows.stop, reasons[0].size)
    part = Part(*(column[rows].reshape(*shape, *column.shape[1:]) for column in table.part))
    missing = reasons != ""
    if missing.any():
        for column in part:
            gone = missing.copy()
            for axis in range(len(axes), 0, -1):
                _go_on(column, gone, axes[axis - 1], axis)
        missing = gone
    reasons = np.where(missing, reasons, "").reshape(shape[0], -1)
    return take(table, first)._replace(
        part=part,
        reason=reasons[np.arange(shape[0]), (reasons != "").argmax(axis=1)],
    )


def _go_on(column: Floats, missing: Bools, sizes: Ints, axis: int) -> None:
    """Write what is missing along an axis: on a straight line through the two sizes before it, if there.

    column: of a part, sizes from axis 1 on; missing: (servers, *sizes), where what is written is there then.
    """
    table, gone = np.moveaxis(column, axis, 0), np.moveaxis(missing, axis, 0)
    for i in range(2, sizes.size):
        rows = gone[i] & ~gone[i - 1] & ~gone[i - 2]
        if rows.any():
            share = (sizes[i] - sizes[i - 1]) / (sizes[i - 1] - sizes[i - 2])
            table[i][rows] = table[i - 1][rows] + share * (table[i - 1][rows] - table[i - 2][rows])
            gone[i][rows] = False


def _owned(found: Prediction, inputs: Inputs) -> Floats:
    """Return the bytes of weights that every kernel owns, (kernels,); inputs: of timed points."""
    graph, shards = found.graph, found.shards
    size = precision(inputs).weight[graph.point]
    for one in shards.fused:
        if one.type is grouped_gemm.TYPE:
            size[one.rows] = map_values(OPERAND_BYTES, stored_experts(inputs))[graph.point[one.rows]]
    elements = 1.0 * graph.weights * shards.batch * shards.inner * shards.cols * graph.times
    owned: Floats = elements * size
    return owned


def _sends(inputs: Inputs, servers: ServerLayouts, chip: Chip, tokens: Ints) -> Floats:
    """Return what activations take from stage to stage, all of them, (servers, tokens) [s].

    inputs: of all devices. Stages lie in one package where it has room for them; each device sends its part.
    """
    inside = servers.each <= inputs[PACKAGE]
    intra, inter = (
        getattr(chip, name).bandwidth * inputs[f"net.{name}.utilization"] for name in ("intra", "inter")
    )
    bandwidth = np.where(inside, intra, inter)
    latency = np.where(inside, inputs["net.intra.latency"], inputs["net.inter.latency"])
    of_a_token = inputs["model.hidden"] * precision(inputs).activation / servers.tensor
    hops = servers.slots[:, None] - 1
    # one device alone may have no links
    with np.errstate(divide="ignore"):  # a chip without links takes forever, and has its reason
        spread = np.divide(of_a_token, bandwidth, out=np.zeros(bandwidth.size), where=servers.slots > 1)
    each = latency[:, None] + tokens * spread[:, None]
    return np.where(hops > 0, hops * each, 0.0)
