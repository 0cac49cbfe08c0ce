"""Passes of servers that read some of their weights from lower tiers of memory.

*Prefetch*: a device computes with one buffer while the next layer is read into another (Superpipeline,
arXiv:2410.08791; FlexGen, arXiv:2303.06865; vllm/model_executor/offloader/prefetch.py). A read of a layer
starts when the read before has ended and its buffer is free. With n equal layers, a pass takes the longer of
all computing and all reads, and an n-th of the shorter: the first layer is read before anything is computed,
or the last one is computed when all are read. vLLM and FlexGen read the first layer during the pass before:
their passes are up to this n-th shorter.

*UVA*: kernels read weights over the link when they need them (vllm/model_executor/offloader/uva.py), or the
weights are copied in the stream of the kernels (python/sglang/srt/utils/offloader.py of sgl-project/sglang).
Reads then add to the pass.

The core of attention, which is timed separately, hides no reads: the estimate is cautious where it is long.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fastflow.core.dedupe import unique_rows
from fastflow.core.reasons.columns import first_reasons
from fastflow.core.tables import Floats, Inputs, Ints, take
from fastflow.performance.serving.kv_cache import Lower
from fastflow.performance.serving.layout import ServerLayouts
from fastflow.performance.serving.passes.parts import Part, Passes
from fastflow.performance.serving.weight_tiers import reads_of, short_of_tiers
from fastflow.physics.hardware.power import power_of
from fastflow.physics.workload.models.transformer.serving_pass import TOKENS_PART
from fastflow.schema.servers import OFFLOAD_BACKEND, PREFETCH

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


def with_streamed_layers(
    inputs: Inputs, layouts: ServerLayouts, passes: Passes, server: Ints, lower: Lower
) -> tuple[Passes, Ints]:
    """Return the passes of servers that read layers from lower tiers, and the row of each point in them.

    inputs: of points, (points,); server: the row of each in the passes; lower: weights of layers there.
    """
    held, total = lower.weights.max(axis=1), lower.weights.sum(axis=1)
    reads = reads_of(inputs, held, layouts.devices)
    is_ahead, layers = inputs[OFFLOAD_BACKEND] == PREFETCH, inputs["model.layers"]
    seconds = np.where(total > 0.0, total * reads.seconds + layers * reads.latency, 0.0)
    first, inverse = unique_rows([server, seconds, total, held, is_ahead, layouts.slots], server.size)
    passes = passes.of_servers(server[first])
    along = np.ones((1, passes.axes.tokens.size))
    streams = Streams(
        ahead=np.where(is_ahead, seconds, 0.0)[first, None] * along,
        demanded=np.where(is_ahead, 0.0, seconds)[first, None] * along,
        layers=(layers / layouts.slots)[first],
        bytes=(total / layouts.slots)[first, None] * along,
    )
    idle = power_of(take(dict(inputs), first), passes.chip).idle
    reason = take(short_of_tiers(inputs, held, layouts.devices), first)
    passes = passes._replace(reason=first_reasons(passes.reason, reason))
    return with_reads(passes, streams, idle), inverse


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
