"""Tables of passes of servers with overlap inside a device: fused norms, and time that nano-batches hide."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fastflow.core.dedupe import unique_rows
from fastflow.core.jit import kernel
from fastflow.core.tables import Bools, Floats, Inputs, Ints, take
from fastflow.performance.serving.layout import ServerLayouts
from fastflow.performance.serving.overlap.schedule import KINDS, layer_time
from fastflow.performance.serving.overlap.shares import speeds_of_sets
from fastflow.performance.serving.passes.interpolate import interpolate_at
from fastflow.performance.serving.passes.parts import Part, Passes
from fastflow.performance.serving.passes.table import Overlap
from fastflow.physics.workload.models.transformer.serving_pass import TOKENS_PART
from fastflow.schema.servers import ALL_REDUCE_NORM, ATTENTION_SHARE, COMM_SMS, NANO_BATCHES, TWO_BATCHES

DECODE_RATIOS = np.array([0.0, 0.125, 0.25, 0.375, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 4.0, 8.0])
"""Time of attention of decoding requests at which hidden time is tabulated, over that of all other layers."""
PREFILL_RATIOS = np.array([0.0, 0.125, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0])
"""The same of attention of prompts."""


class _Servers(NamedTuple):
    """Overlap of servers; (servers,)."""

    batches: Ints  # nano-batches of an iteration
    fused: Bools  # whether all-reduces and norms are one kernel
    tensor: Ints  # devices that share a layer
    attention: Floats  # share of a device
    sms: Floats  # of exchanges


def with_overlap(inputs: Inputs, layouts: ServerLayouts, passes: Passes, server: Ints) -> tuple[Passes, Ints]:
    """Return the passes of servers with and without overlap, and the row of each point in them.

    inputs, layouts: of points, (points,); server: the row of each in the passes. Where two-batch overlap
    splits an iteration already, nano-batches do not split it once more.
    """
    is_split = inputs[TWO_BATCHES] & (layouts.ranks > 1)
    points = _Servers(
        batches=np.where(is_split, 1, inputs[NANO_BATCHES]),
        fused=inputs[ALL_REDUCE_NORM] & (layouts.tensor > 1),
        tensor=layouts.tensor,
        attention=1.0 * inputs[ATTENTION_SHARE],
        sms=1.0 * inputs[COMM_SMS],
    )
    if not ((points.batches > 1) | points.fused).any():
        return passes, server
    bundle = 1.0 * inputs["chip.mcus_per_bundle"]
    first, inverse = unique_rows([server, *points, bundle], server.size)
    passes = passes.of_servers(server[first])
    servers = take(points, first)
    layers = _with_fused_norms(passes.parts[TOKENS_PART], servers)
    split = servers.batches > 1
    if split.any():
        speeds = speeds_of_sets(
            servers.attention, servers.sms, passes.chip.cores.mcus / bundle[first], servers.fused
        )
        works = _works(layers, passes.axes.tokens, servers)
        hidden = _tabulate(layers.time, works, servers.batches, speeds, DECODE_RATIOS, PREFILL_RATIOS)
        overlap = Overlap(DECODE_RATIOS, PREFILL_RATIOS, hidden, split)
        layers = layers._replace(launches=layers.launches * servers.batches[:, None])
        passes = passes._replace(times=passes.times._replace(overlap=overlap))
    times = passes.times._replace(shared=layers.time)
    return passes._replace(times=times, parts={**passes.parts, TOKENS_PART: layers}), inverse


def _with_fused_norms(layers: Part, servers: _Servers) -> Part:
    """Return the layers with sums and norms in the kernels of all-reduces.

    Such a kernel norms the part of the tokens that a device has reduced, and gathers the result (TokenWeave,
    arXiv:2505.11329, section 4): sums and norms take an equal share of their time on each device.
    """
    saved = np.where(servers.fused, 1.0 - 1.0 / servers.tensor, 0.0)[:, None] * layers.sums
    if not saved.any():
        return layers
    kernels, by = layers.time - layers.exchange, layers.by.copy()
    with np.errstate(divide="ignore", invalid="ignore"):
        rest = np.where(kernels > 0.0, 1.0 - saved / kernels, 1.0)
        share = np.where(layers.time > 0.0, 1.0 - saved / layers.time, 1.0)
    by[..., :-1] *= rest[..., None]
    return layers._replace(
        time=layers.time - saved, by=by, of_model=layers.of_model * share[..., None], sums=layers.sums - saved
    )


def _works(layers: Part, tokens: Ints, servers: _Servers) -> Floats:
    """Return the operations of a nano-batch, alone on the device, (servers, tokens, operations) [s].

    They are of all layers. Of products of attention, one half is before its core and one half after it; one
    half of the exchanges follows attention, one half the feed-forward block. Fused norms are in exchanges.
    """
    count, size = servers.batches.size, tokens.size
    server, sizes = (
        np.repeat(np.arange(count), size),
        np.tile(tokens, count) / np.repeat(servers.batches, size),
    )
    columns = layers.time, layers.exchange, layers.attention, layers.sums
    time, exchange, attention, sums = (
        interpolate_at(column, (tokens,), server, (sizes,)).reshape(count, size) for column in columns
    )
    exchange = exchange + np.where(servers.fused[:, None], sums, 0.0)
    products = np.maximum(time - exchange - attention, 0.0)
    works = np.zeros((count, size, len(KINDS)))
    works[..., 0] = works[..., 2] = 0.5 * attention
    works[..., 4] = products
    works[..., 3] = works[..., 5] = 0.5 * exchange
    return works


@kernel
def _tabulate(
    serial: Floats, works: Floats, batches: Ints, speeds: Floats, decodes: Floats, prefills: Floats
) -> Floats:
    """Return the time that nano-batches hide, (servers, tokens, decodes, prefills) [s].

    serial: time of layers without them, (servers, tokens) [s]; works: of a nano-batch; speeds: of each
    server, (servers, sets, kinds); decodes, prefills: times of attention, over `serial`. A server that takes
    longer with them runs its kernels one after the other.
    """
    count, size = serial.shape
    hidden = np.zeros((count, size, decodes.size, prefills.size))
    seconds = np.zeros(works.shape[2])
    for server in range(count):
        if batches[server] < 2:
            continue
        for i in range(size):
            alone = serial[server, i]
            if not alone < np.inf:
                continue
            for j in range(decodes.size):
                for k in range(prefills.size):
                    seconds[:] = works[server, i]
                    seconds[0] += prefills[k] * alone / batches[server]
                    seconds[1] += decodes[j] * alone / batches[server]
                    whole = alone * (1.0 + decodes[j] + prefills[k])
                    time = layer_time(seconds, batches[server], speeds[server])
                    hidden[server, i, j, k] = max(0.0, whole - time)
    return hidden
