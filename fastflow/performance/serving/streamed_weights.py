"""Passes of servers that read some of their weights from lower tiers of memory.

*Prefetch*: a device computes with one buffer while the next layer is read into another (Superpipeline,
arXiv:2410.08791; FlexGen, arXiv:2303.06865; vllm/model_executor/offloader/prefetch.py). A read of a layer
starts when the read before has ended and its buffer is free. With n equal layers, a pass takes the longer of
all computing and all reads, and an n-th of the shorter: the first layer is read before anything is computed,
or the last one is computed when all are read. vLLM and FlexGen read the first layer during the pass before:
their passes are up to this n-th shorter.

*UVA*: kernels read weights over the link when they need them (vllm/model_executor/offloader/uva.py), or the
weights are copied in the stream of the kernels (python/sglang/srt/utils/offloader.py of sgl-project/sglang).
Reads then add to the pass. Of a mixture, kernels read the experts that the tokens choose.

*Experts by use*: of the experts that a pass chooses (`timing.moe.expert_cache`), a device reads those that it
does not have: when they are chosen, or, where they are predicted (ExpertFlow, arXiv:2410.17954), while the
layer before is computed. Experts that are predicted wrongly are read for nothing, those that are not
predicted when they are chosen.

The core of attention, which is timed separately, hides no reads: the estimate is cautious where it is long.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fastflow.core.dedupe import unique_rows
from fastflow.core.reasons.columns import first_reasons
from fastflow.core.tables import Bools, Floats, Inputs, Ints, take
from fastflow.performance.serving.kv_cache import Lower, weights_of_layers
from fastflow.performance.serving.passes.parts import Part, Passes
from fastflow.performance.serving.pipeline_stages import FIRST_KIND
from fastflow.performance.serving.weight_tiers import Weights, reads_of, short_of_tiers
from fastflow.physics.hardware.power import power_of
from fastflow.physics.timing.moe.expert_cache import ExpertUse, choices_of
from fastflow.physics.workload.models.transformer.serving_pass import TOKENS_PART
from fastflow.schema.servers import EXPERT_CACHE, LFU, OFFLOAD_BACKEND, PREFETCH, PREFETCHED

LIMITER = "weight_tiers"
"""Name of what limits a pass that waits for weights from lower tiers."""


class Streams(NamedTuple):
    """Reads of all stages in a pass; (rows, tokens) but for `layers`."""

    ahead: Floats  # while layers before are computed [s]
    demanded: Floats  # when their kernels need them [s]
    layers: Floats  # of a stage that are read one after the other, (rows,)
    bytes: Floats  # of a device of each stage, on average [B]


def exposed_s(compute: Floats, streams: Streams) -> Floats:
    """Return the time by which reads make passes longer [s], (rows, tokens); compute: without reads [s].

    Example:
        >>> import numpy as np
        >>> ten = np.array([[10.0]])
        >>> exposed_s(ten, Streams(3 * ten, 0 * ten, np.array([5.0]), ten)).tolist()
        [[22.0]]
    """
    ahead, layers = streams.ahead, np.maximum(streams.layers, 1.0)[:, None]
    exposed: Floats = np.maximum(ahead - compute, 0.0) + np.minimum(ahead, compute) / layers
    return exposed + streams.demanded


class _Mixture(NamedTuple):
    """Layers of experts of servers; (rows,)."""

    layers: Ints  # 0: none
    ranks: Ints  # of attention, whose tokens choose
    devices: Ints  # that share the experts
    topk: Ints
    experts: Ints
    exponent: Floats  # of the power law of their popularity
    resident: Ints  # of a device; 0: all
    by_count: Bools  # whether a device has the most popular ones


class _Reader(NamedTuple):
    """What servers read of their weights in lower tiers; (rows,)."""

    row: Ints  # of the passes
    layers: Floats  # of all stages, read in every pass [B]
    experts: Floats  # of all stages, read when they are chosen [B]
    share: Floats  # of the weights of all layers, those of experts
    seconds: Floats  # of a byte [s/B]
    latency: Floats  # of a read of a layer [s]
    num_layers: Ints
    slots: Ints
    is_ahead: Bools  # whether layers are read ahead
    accuracy: Floats  # share of experts that are predicted
    mixture: _Mixture


def with_lower_tiers(
    inputs: Inputs, model: Weights, passes: Passes, server: Ints, lower: Lower
) -> tuple[Passes, Ints]:
    """Return the passes of servers that read weights from lower tiers, and the row of each point in them.

    inputs: of points, (points,); server: the row of each in the passes; lower: weights there.
    """
    stored = (lower.weights + lower.copied).max(axis=1)
    reader = _reader_of(inputs, model, server, lower, stored)
    first, inverse = unique_rows([*reader[:-1], *reader.mixture, stored], server.size)
    passes = passes.of_servers(server[first])
    idle = power_of(take(dict(inputs), first), passes.chip).idle
    reason = take(short_of_tiers(inputs, stored, model.layouts.devices), first)
    passes = passes._replace(reason=first_reasons(passes.reason, reason))
    return with_reads(passes, _streams(take(reader, first), passes.axes.tokens), idle), inverse


def _reader_of(inputs: Inputs, model: Weights, server: Ints, lower: Lower, stored: Floats) -> _Reader:
    """Return what the server of every point reads; stored: by all tiers, of a device [B]."""
    layouts, is_by_use = model.layouts, lower.resident > 0
    reads = reads_of(inputs, stored, layouts.devices)
    of_layers, of_experts = (
        weights_of_layers(model.stages, weights).sum(axis=1) for weights in (model.weights, model.experts)
    )
    total = lower.weights.sum(axis=1)
    is_mixture, devices = model.experts[:, FIRST_KIND:] > 0.0, np.maximum(layouts.experts, 1)
    return _Reader(
        row=server,
        layers=np.where(is_by_use, 0.0, total),
        experts=np.where(is_by_use, of_experts, 0.0),
        share=of_experts / np.where(of_layers > 0.0, of_layers, 1.0),
        seconds=reads.seconds,
        latency=reads.latency,
        num_layers=inputs["model.layers"],
        slots=layouts.slots,
        is_ahead=inputs[OFFLOAD_BACKEND] == PREFETCH,
        accuracy=np.where(is_by_use, inputs[PREFETCHED], 0.0),
        mixture=_Mixture(
            layers=(model.stages.layers.sum(axis=1) * is_mixture).sum(axis=1),
            ranks=layouts.ranks,
            devices=devices,
            topk=np.minimum(inputs["model.topk"], np.maximum(inputs["model.experts"], 1)),
            experts=model.local * devices,
            exponent=inputs["model.power_law"],
            resident=lower.resident,
            by_count=inputs[EXPERT_CACHE] == LFU,
        ),
    )


def _streams(of: _Reader, tokens: Ints) -> Streams:
    """Return the reads of servers in passes over some tokens of a rank, (rows, tokens)."""
    chosen, missed = _shares_of_experts(of.mixture, tokens)
    spared = np.where(of.is_ahead, 0.0, of.share)[:, None] * (1.0 - chosen)
    layers = of.layers[:, None] * (1.0 - spared)
    layers_s = (
        layers * of.seconds[:, None] + np.where(of.layers > 0.0, of.num_layers * of.latency, 0.0)[:, None]
    )
    experts = of.experts[:, None] * missed
    of_device = missed * (of.mixture.experts / of.mixture.devices)[:, None]
    waits = np.where(of.experts > 0.0, of.mixture.layers * of.latency, 0.0)[:, None]
    experts_s = experts * of.seconds[:, None] + waits * np.minimum(of_device, 1.0)
    accuracy = of.accuracy[:, None]
    is_ahead, is_predicted = of.is_ahead[:, None], accuracy > 0.0
    wrong = np.where(is_predicted, 1.0 - accuracy, 0.0)
    return Streams(
        ahead=np.where(is_ahead, layers_s, 0.0) + np.where(is_predicted, experts_s, 0.0),
        demanded=np.where(is_ahead, 0.0, layers_s) + np.where(is_predicted, wrong, 1.0) * experts_s,
        layers=np.where(of.experts > 0.0, of.mixture.layers, of.num_layers) / of.slots,
        bytes=(layers + (1.0 + wrong) * experts) / of.slots[:, None],
    )


def _shares_of_experts(of: _Mixture, tokens: Ints) -> tuple[Floats, Floats]:
    """Return the shares of experts that passes choose, and that they have to read, (rows, tokens)."""
    chosen, missed = np.ones((2, of.layers.size, tokens.size))
    rows = np.flatnonzero(of.layers > 0)
    if rows.size:
        some = take(of, rows)
        resident = np.where(some.resident > 0, some.resident * some.devices, some.experts)
        sizes = (some.ranks[:, None] * tokens).reshape(-1)
        columns = (some.topk, some.experts, some.exponent, resident, some.by_count)
        choices = choices_of(ExpertUse(sizes, *(np.repeat(column, tokens.size) for column in columns)))
        shares = (number.reshape(rows.size, -1) / some.experts[:, None] for number in choices)
        chosen[rows], missed[rows] = shares
    return chosen, missed


def with_reads(passes: Passes, streams: Streams, idle: Floats) -> Passes:
    """Return passes with reads of weights; idle: power of a device that waits, (rows,) [W]."""
    layers, limiters = passes.parts[TOKENS_PART], passes.limiters
    exposed = exposed_s(layers.time, streams)
    parts = {
        name: part._replace(by=np.concatenate([part.by, np.zeros((*part.by.shape[:-1], 1))], axis=-1))
        for name, part in passes.parts.items()
    }
    parts[TOKENS_PART] = _with_wait(parts[TOKENS_PART], exposed, idle)
    return passes._replace(
        times=passes.times._replace(shared=parts[TOKENS_PART].time),
        parts=parts,
        limiters=(*limiters, LIMITER),
        reads=streams.bytes,
    )


def _with_wait(layers: Part, seconds: Floats, idle: Floats) -> Part:
    """Return layers with a wait for weights, the last limiter; seconds: of it, shaped as `time`."""
    by = layers.by.copy()
    by[..., -1] += seconds
    time = layers.time + seconds
    share = time / np.where(layers.time > 0.0, layers.time, 1.0)
    return layers._replace(
        time=time,
        energy=layers.energy + idle[:, None] * seconds,
        by=by,
        of_model=layers.of_model * share[..., None],
    )
