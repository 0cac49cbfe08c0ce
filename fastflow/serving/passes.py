"""What passes of a server take, tabulated by the same kernels and exchanges as training.

A point of `crossflow.predict` is one part of a pass (workload/transformer/serving.py) at one size. All sizes
of all servers are predicted in one call a part, so that what repeats is timed once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastflow.crossflow import predict
from fastflow.distinct import look_up
from fastflow.hardware.chip import Chip
from fastflow.prediction import Prediction
from fastflow.serving.layout import PACKAGE, ServerLayouts, stage_inputs
from fastflow.serving.pass_times import PassTimes
from fastflow.tables import Columns, Floats, Inputs, Ints, Texts, first_of, repeated, take
from fastflow.timing.roofline import limiter_names
from fastflow.workload.graph import EMBEDDING, sum_by_kind, sum_by_point
from fastflow.workload.precision import OPERAND_BYTES, precision, stored_experts
from fastflow.workload.transformer.serving import (
    BEFORE,
    DECODE,
    FAMILY,
    HEAD_PART,
    PART,
    PREFILL,
    TOKENS_PART,
)
from fastflow.workload.types import experts

NETWORK = "network"
PAIR = "pair"
"""Of a prefill: two chunks beside each other."""
_FINE, _COARSE = (1.0, 1.5), (1.0,)  # steps of an axis, in every doubling


class Axes(NamedTuple):
    """Sizes at which passes are tabulated, as `PassTimes` has them; ascending."""

    tokens: Ints
    requests: Ints
    context: Ints
    chunk: Ints
    before: Ints


class Part(NamedTuple):
    """One part of passes at all sizes; (servers, ...) as its times are."""

    time: Floats  # [s]
    exchange: Floats  # of it, waiting for the network [s]
    energy: Floats  # of one device [J]
    by: Floats  # time by limiter, (servers, ..., limiters) [s]


class Passes(NamedTuple):
    """Passes of servers, and what is known of these beside."""

    times: PassTimes
    axes: Axes
    parts: Mapping[str, Part]  # tokens, head, decode, prefill
    limiters: tuple[str, ...]  # what the last axis of `Part.by` is
    weights: Floats  # of a device [B], (servers,)
    chip: Chip  # of every server
    peak: Floats  # [flop/s], (servers,); NaN where one has no times
    reason: Texts  # why a server has no times, (servers,)


def axes_of(tokens: int, requests: int, context: int, chunk: int, before: int) -> Axes:
    """Return sizes up to these; what lies between two of an axis is interpolated."""
    return Axes(
        tokens=_axis(tokens, _FINE),
        requests=_axis(requests, _COARSE),
        context=_axis(context, _COARSE, 64),
        chunk=_axis(chunk, _COARSE, 16),
        before=np.concatenate([[0], _axis(before, _COARSE, 1024)[1:]]),
    )


def _axis(most: int, steps: tuple[float, ...], least: int = 1) -> Ints:
    """Return whole numbers from 1 to at least `most`: 1, then in each doubling from `least` on these."""
    found, start = [1], max(least, 2)
    while found[-1] < most or len(found) < 2:
        found += [int(start * step) for step in steps]
        start *= 2
    return np.array(found, dtype=np.int64)


def tabulate(inputs: Inputs, servers: ServerLayouts, axes: Axes, queries: Ints) -> Passes:
    """Tabulate the passes of servers; inputs: of the model, one server a row.

    queries: tokens of a request that a pass of decoding verifies, (servers,).
    """
    own = stage_inputs(inputs, servers)
    ask = _Question(own, servers.ranks)
    rows, chunks = (axes.tokens,), (axes.chunk, axes.before)
    found = {
        TOKENS_PART: ask(TOKENS_PART, rows, lambda n: (n, 1, 0)),
        HEAD_PART: ask(HEAD_PART, rows, lambda n: (n, 1, 0)),
        DECODE: ask(DECODE, (axes.requests, axes.context), lambda b, c: (b, 1, c), queries),
        PREFILL: ask(PREFILL, chunks, lambda s, p: (1, s, p)),
        PAIR: ask(PREFILL, chunks, lambda s, p: (2, s, p)),
    }
    tokens, head, decode, prefill, pair = (one.part.time for one in found.values())
    chip, first = found[TOKENS_PART].chip, found[TOKENS_PART]
    times = PassTimes(
        tokens=axes.tokens, shared=tokens + _sends(inputs, servers, chip, axes.tokens), head=head,
        requests=axes.requests, context=axes.context, decode=decode, chunk=axes.chunk, before=axes.before,
        prefill=prefill, prefill_more=np.maximum(pair - prefill, 0.0),
    )  # fmt: skip
    return Passes(
        times=times,
        axes=axes,
        parts={name: one.part for name, one in found.items() if name != PAIR},
        limiters=first.limiters,
        weights=_weights(servers, [found[name] for name in (TOKENS_PART, HEAD_PART, PREFILL)]),
        chip=chip,
        peak=first.peak,
        reason=first_of(servers.reason, *(one.reason for one in found.values())),
    )


class _Found(NamedTuple):
    """A part of passes, and the servers'."""

    part: Part
    layers: Floats  # weights of a device of one stage alone, but the embedding's [B], (servers,)
    ends: Floats  # of the embedding, or of the head [B], (servers,)
    reason: Texts
    limiters: tuple[str, ...]
    chip: Chip
    peak: Floats


Sized = Callable[..., tuple[Any, Any, Any]]
"""From sizes to sequences, their tokens, and those that the cache holds of each."""


class _Question(NamedTuple):
    """Asks the model for all sizes of a part."""

    inputs: Columns
    ranks: Ints

    def __call__(
        self, part: str, axes: tuple[Ints, ...], sized: Sized, queries: Ints | None = None
    ) -> _Found:
        """Predict a part at all sizes; queries: tokens of a sequence instead, (servers,)."""
        count = self.ranks.size
        grid = [axis.reshape(-1) for axis in np.meshgrid(*axes, indexing="ij")]
        each = grid[0].size
        sequences, tokens, before = (np.broadcast_to(np.asarray(one), (each,)) for one in sized(*grid))
        own = np.repeat(np.arange(count), each)
        inputs: Columns = {
            key: repeated(column[:1], own.size) if _alike(column) else column[own]
            for key, column in self.inputs.items()
        }
        inputs |= {
            "model.name": np.full(own.size, FAMILY.name),
            PART.name: np.full(own.size, part),
            BEFORE.name: np.tile(before, count).astype(np.int64),
            "model.sequence": np.tile(tokens, count).astype(np.int64) if queries is None else queries[own],
            "model.batch": np.tile(sequences, count).astype(np.int64) * self.ranks[own],
        }
        return _read(predict(inputs), inputs, (count, *(axis.size for axis in axes)))


def _alike(column: NDArray[Any]) -> bool:
    return bool(column.size == 1 or (column[1:] == column[:-1]).all())


def _read(found: Prediction, inputs: Inputs, shape: tuple[int, ...]) -> _Found:
    """Read what was predicted of a part; inputs: of every point; shape: servers and sizes."""
    points, servers = found.reason.size, shape[0]
    limiters = (*limiter_names(len(found.chip.levels)), NETWORK)
    time, energy, peak = np.full((3, points), np.nan)
    by, weights = np.zeros((points, len(limiters))), np.zeros((points, 2))
    graph = found.graph
    kernels = sum_by_kind(
        graph.offset, found.timing.limiter, found.launches * found.timing.time, len(limiters) - 1
    )
    time[found.timed] = found.timeline.total
    by[found.timed, :-1] = kernels
    by[found.timed, -1] = np.maximum(found.timeline.total - kernels.sum(axis=1), 0.0)
    energy[found.timed], peak[found.timed] = found.energy, found.peak
    weights[found.timed] = _owned(found, inputs)
    reasons = found.reason.reshape(servers, -1)
    first = np.arange(0, points, points // servers)
    return _Found(
        Part(time.reshape(shape), by[:, -1].reshape(shape), energy.reshape(shape), by.reshape(*shape, -1)),
        weights[first, 0],
        weights[first, 1],
        reasons[np.arange(servers), (reasons != "").argmax(axis=1)],
        limiters,
        take(found.chip, first),
        peak[first],
    )


def _owned(found: Prediction, inputs: Inputs) -> Floats:
    """Return the bytes of weights that layers own, and that the embedding or the head does; (timed, 2)."""
    graph, shards, own = found.graph, found.shards, take(dict(inputs), found.timed)
    size = precision(own).weight[graph.point]
    for one in shards.fused:
        if one.type is experts.TYPE:
            size[one.rows] = look_up(OPERAND_BYTES, stored_experts(own))[graph.point[one.rows]]
    elements = 1.0 * graph.weights * shards.batch * shards.inner * shards.cols * graph.times
    at_ends = (graph.layer_kind == EMBEDDING) | (inputs[PART.name][found.timed] == HEAD_PART)[graph.point]
    both = [sum_by_point(graph, np.where(at_ends == end, elements * size, 0.0)) for end in (False, True)]
    return np.stack(both, axis=1)


def _weights(servers: ServerLayouts, parts: list[_Found]) -> Floats:
    """Return the weights of a device of the stage that has most; parts: the head's second."""
    layers = sum((one.layers for one in parts), np.zeros(servers.slots.size)) / servers.slots
    ends = [one.ends for one in parts]
    return layers + np.where(servers.slots > 1, np.maximum(ends[0], ends[1]), ends[0] + ends[1])


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
    spread = np.divide(of_a_token, bandwidth, out=np.zeros(bandwidth.size), where=servers.slots > 1)
    each = latency[:, None] + tokens * spread[:, None]
    return np.where(hops > 0, hops * each, 0.0)
