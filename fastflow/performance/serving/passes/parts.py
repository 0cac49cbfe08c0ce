"""Tables of passes by part and size: what `tabulate` returns, and `Axes`, the sizes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from fastflow.core.reasons.columns import ReasonColumn
from fastflow.core.tables import Floats, Ints, take
from fastflow.performance.serving.passes.table import PassTimes
from fastflow.physics.hardware.chip import Chip
from fastflow.physics.workload.models.transformer.serving_pass import (
    DECODE,
    HEAD_PART,
    PREFILL,
    TOKENS_PART,
)

_FINE, _COARSE = (1.0, 1.5), (1.0,)  # entries of an axis, relative to the start of each doubling
_DEFAULT_SIZES = {"tokens": 8192, "requests": 512, "context": 16384}  # most calls have the same tables


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
    attention: Floats  # time of products of attention's blocks, without its core [s]
    sums: Floats  # time of residual sums, with the norms that follow them [s]

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
    expert_weights: Floats  # of these, routed experts [B]
    attention_weights: Floats  # of these, of attention [B]
    chip: Chip  # of every server
    peak: Floats  # [flop/s], (servers,); NaN where a server has no times
    reason: ReasonColumn  # why a server has no times, (servers,)
    reads: Floats  # of a device from lower tiers of memory in all layers, (servers, tokens) [B]
    busy: Floats  # devices of attention, without its core, and others, (servers, tokens, 2) [s]

    def of_servers(self, rows: Ints) -> Passes:
        """Return the passes of some servers, in order."""
        times = self.times
        return self._replace(
            times=times._replace(
                shared=times.shared[rows], experts=times.experts[rows], head=times.head[rows],
                decode=times.decode[rows], prefill=times.prefill[rows], prefill_more=times.prefill_more[rows],
                overlap=times.overlap.of_servers(rows),
            ),
            parts=take(dict(self.parts), rows),
            weights=self.weights[rows], expert_weights=self.expert_weights[rows],
            attention_weights=self.attention_weights[rows],
            chip=take(self.chip, rows), peak=self.peak[rows],
            reason=take(self.reason, rows), reads=self.reads[rows], busy=self.busy[rows],
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
