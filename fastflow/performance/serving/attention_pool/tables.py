"""Tables of passes of servers whose attention has devices of its own.

An iteration is cut into micro-batches. Tables have the time of all of them one after the other, and what the
pipeline hides of it (`pipeline.py`), as those of overlap inside a device have it: the simulators and the
analytic form read both alike. A server's ranks are those of attention, and its memory for caches is that of
the devices of attention. Energy and power are means over all devices of a server.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from fastflow.core.dedupe import unique_rows
from fastflow.core.reasons.columns import ReasonColumn, first_reasons
from fastflow.core.tables import Floats, Inputs, Ints, concat_tables, take
from fastflow.performance.serving.attention_pool.devices import MICROBATCHES, PART_APART, has_pool
from fastflow.performance.serving.attention_pool.memory import (
    OtherDevices,
    no_other_devices,
    other_memory_of,
    short_of,
)
from fastflow.performance.serving.attention_pool.pipeline import Trip, pipelined_s
from fastflow.performance.serving.attention_pool.split import Sets, Split, read, split_of
from fastflow.performance.serving.attention_pool.transfers import transfers_of
from fastflow.performance.serving.layout import ServerLayouts
from fastflow.performance.serving.passes.parts import Axes, Part, Passes
from fastflow.performance.serving.passes.table import Overlap
from fastflow.performance.serving.pipeline_stages import FIRST_KIND
from fastflow.physics.hardware.power import Power
from fastflow.physics.workload.models.transformer.serving_pass import DECODE, HEAD_PART, PREFILL, TOKENS_PART
from fastflow.schema.serving import OPERATOR

RATIOS = np.linspace(0.0, 1.0, 33)
"""Times of attention's core at which hidden time is tabulated, over that of all else: beyond, with two or
more micro-batches, attention is the slowest in the pipeline, and hides all that it can."""
COARSE_RATIOS = np.linspace(0.0, 1.0, 9)


class Side(NamedTuple):
    """Passes of the devices of attention, and the row of each point in them."""

    passes: Passes
    rows: Ints  # (points with devices of attention,)
    power: Power  # of a device, of these points


class Pooled(NamedTuple):
    """Servers of all points, with or without devices of attention."""

    passes: Passes
    server: Ints  # row of each point in them
    power: Power  # of a device, mean over those of a server, (points,)
    others: OtherDevices  # memory of the other devices, (points,)


def with_attention_pool(
    inputs: Inputs, layouts: tuple[ServerLayouts, ServerLayouts], passes: Passes, server: Ints, power: Power,
    side: Side,
) -> Pooled:  # fmt: skip
    """Return the passes of servers with devices of attention, and those of all other points.

    inputs: of points, (points,); layouts: of servers, and of their other devices; passes, server, power: of
    the latter.
    """
    servers, others = layouts
    rows, points = np.flatnonzero(has_pool(inputs)), server.size
    columns, of_rows, of_others = take((dict(inputs), servers, others), rows)
    chips = take(side.passes.chip, side.rows), take(passes.chip, server[rows])
    idle, share = take(power.idle, rows), of_rows.tensor * of_rows.ranks / of_rows.stage
    sets = Sets(
        row=server[rows], side=side.rows, attention=of_rows.tensor * of_rows.ranks, others=of_rows.others,
        ranks=of_rows.ranks, groups=of_others.ranks, microbatches=columns[MICROBATCHES],
        queries=columns["serve.num_speculative_tokens"] + 1, layers=columns["model.layers"],
        is_operator=columns[PART_APART] == OPERATOR, idle=idle, side_idle=side.power.idle,
        transfers=transfers_of(columns, of_rows, of_others.ranks, chips),
    )  # fmt: skip
    memory = other_memory_of(
        columns, of_rows, of_others, _other_weights(sets, passes), chips[1].dram.capacity
    )
    first, inverse = unique_rows([*sets[:-1], *sets.transfers, *memory], rows.size)
    distinct = _of_sets(take(sets, first), passes, side.passes, short_of(take(memory, first)))
    plain = passes.parts[TOKENS_PART].time.shape[0]
    index = server.copy()
    index[rows] = plain + inverse
    whole = no_other_devices(points)
    for column, values in zip(whole, memory, strict=True):
        column[rows] = values
    return Pooled(_joined(passes, distinct), index, _mean_power(power, side.power, rows, share), whole)


def _mean_power(power: Power, side: Power, rows: Ints, share: Floats) -> Power:
    """Return the mean power of the devices of every server; side: of devices of attention, of some rows.

    share: of the devices, those of attention.
    """

    def mean(column: Floats, of_side: Floats) -> Floats:
        means = column.copy()
        means[rows] = column[rows] * (1.0 - share) + of_side * share
        return means

    fields = [name for name in Power._fields if name != "of_budget"]
    means: Any = {name: mean(getattr(power, name), getattr(side, name)) for name in fields}
    return power._replace(**means)


def _other_weights(sets: Sets, passes: Passes) -> Floats:
    """Return the weights of another device, by part of the model, (servers, parts) [B]."""
    weights = passes.weights[sets.row]
    kept = weights - passes.attention_weights[sets.row]
    kept[:, :FIRST_KIND] = 0.0
    return np.where(sets.is_operator[:, None], weights, kept)


def _joined(passes: Passes, distinct: Passes) -> Passes:
    """Return two tables of passes of the same axes as one."""
    tables = passes, distinct
    limiters, width = max((table.limiters for table in tables), key=len), passes.weights.shape[1]
    # what hides time is of either kind: both are linear between their own ratios
    decode, prefill = (
        np.unique(np.concatenate([getattr(table.times.overlap, axis) for table in tables]))
        for axis in ("decode", "prefill")
    )
    overlaps = [_on_ratios(table, decode, prefill) for table in tables]
    of_servers = ("shared", "experts", "head", "decode", "prefill", "prefill_more")
    times = passes.times._replace(
        **{name: np.concatenate([getattr(table.times, name) for table in tables]) for name in of_servers},
        overlap=Overlap(
            decode, prefill, np.concatenate([of.hidden for of in overlaps]),
            np.concatenate([of.overlaps for of in overlaps]),
        ),
    )  # fmt: skip
    parts = {
        name: concat_tables([_aligned(table, name, limiters, width) for table in tables])
        for name in passes.parts
    }
    fields = ("weights", "expert_weights", "attention_weights", "peak", "reads", "busy")
    columns: Any = {name: np.concatenate([getattr(table, name) for table in tables]) for name in fields}
    return passes._replace(
        times=times, parts=parts, limiters=limiters,
        chip=concat_tables([passes.chip, distinct.chip]),
        reason=concat_tables([passes.reason, distinct.reason]),
        **columns,
    )  # fmt: skip


def _on_ratios(table: Passes, decode: Floats, prefill: Floats) -> Overlap:
    """Return what passes hide at other ratios, among which are their own."""
    overlap, (count, size) = table.times.overlap, table.times.shared.shape
    if not overlap.overlaps.size:
        return Overlap(
            decode, prefill, np.zeros((count, size, decode.size, prefill.size)), np.zeros(count, np.bool_)
        )
    hidden = _interpolated(overlap.hidden, overlap.prefill, prefill)
    hidden = _interpolated(hidden.swapaxes(2, 3), overlap.decode, decode).swapaxes(2, 3)
    return Overlap(decode, prefill, np.ascontiguousarray(hidden), overlap.overlaps)


def _interpolated(table: Floats, ratios: Floats, at: Floats) -> Floats:
    """Return a table at other ratios along its last axis; beyond the last ratio it is that of the last."""
    low = np.clip(np.searchsorted(ratios, at, side="right") - 1, 0, ratios.size - 2)
    share = np.minimum((at - ratios[low]) / (ratios[low + 1] - ratios[low]), 1.0)
    values: Floats = table[..., low] * (1.0 - share) + table[..., low + 1] * share
    return values


def _aligned(table: Passes, name: str, limiters: tuple[str, ...], parts: int) -> Part:
    """Return a part of passes whose last axes are those of more limiters, and of more parts of the model."""
    part = table.parts[name]
    by = np.zeros((*part.by.shape[:-1], len(limiters)))
    by[..., [limiters.index(limiter) for limiter in table.limiters]] = part.by
    of_model = np.zeros((*part.of_model.shape[:-1], parts))
    of_model[..., : part.of_model.shape[-1]] = part.of_model
    return part._replace(by=by, of_model=of_model)


def _of_sets(sets: Sets, passes: Passes, side: Passes, short: ReasonColumn) -> Passes:
    """Return the passes of servers with devices of attention; side: of these devices."""
    limiters, width = max(passes.limiters, side.limiters, key=len), passes.weights.shape[1]
    others, attention = (
        {name: _aligned(table, name, limiters, width) for name in table.parts} for table in (passes, side)
    )
    axes = passes.axes
    split = split_of(sets, axes.tokens, others[TOKENS_PART], attention[TOKENS_PART])
    layers = _layers(sets, split)
    parts = {
        TOKENS_PART: layers,
        HEAD_PART: _head(sets, axes.tokens, others[HEAD_PART], attention[HEAD_PART]),
        DECODE: _of_attention(sets, _in_microbatches(sets, axes, attention[DECODE])),
        PREFILL: _of_attention(sets, take(attention[PREFILL], sets.side)),
    }
    exceeding = split.batches * (split.others.time - split.attention.time)
    times = passes.times._replace(
        shared=layers.time,
        experts=np.maximum(exceeding, 0.0),
        head=parts[HEAD_PART].time,
        decode=parts[DECODE].time,
        prefill=parts[PREFILL].time,
        prefill_more=side.times.prefill_more[sets.side],
        overlap=_hidden(sets, split),
    )
    busy = [split.batches * (of.time + of.outside) for of in (split.attention, split.others)]
    chip, own_chip = take(passes.chip, sets.row), take(side.chip, sets.side)
    return Passes(
        times=times, axes=axes, parts=parts, limiters=limiters,
        weights=_attention_weights(sets, side, width),
        expert_weights=np.zeros((sets.row.size, width)),
        attention_weights=np.zeros((sets.row.size, width)),
        # caches are on devices of attention, which send and receive them
        chip=chip._replace(dram=own_chip.dram, intra=own_chip.intra, inter=own_chip.inter),
        peak=passes.peak[sets.row],
        reason=first_reasons(take(passes.reason, sets.row), take(side.reason, sets.side), short),
        reads=np.zeros(layers.time.shape),
        busy=np.stack(busy, axis=-1),
    )  # fmt: skip


def _attention_weights(sets: Sets, side: Passes, parts: int) -> Floats:
    """Return the weights of a device of attention, by part of the model, (servers, parts) [B]."""
    weights = np.zeros((sets.side.size, parts))
    kept = side.attention_weights[sets.side]
    kept[:, :FIRST_KIND] = side.weights[sets.side, :FIRST_KIND]
    weights[:, : kept.shape[1]] = np.where(sets.is_operator[:, None], 0.0, kept)
    return weights


def _hidden(sets: Sets, split: Split) -> Overlap:
    """Return the time that the pipeline of micro-batches hides."""
    layers, batches = sets.num_layers[:, None, None, None], split.batches[..., None, None]
    alone = split.serial_s(sets.num_layers[:, None])[..., None, None]
    core = (RATIOS[:, None] + COARSE_RATIOS) * alone / batches
    trip = Trip(
        (split.attention.time[..., None, None] + core) / layers,
        split.send[..., None, None],
        split.others.time[..., None, None] / layers,
        split.back[..., None, None],
    )
    hidden = batches * layers * trip.total - pipelined_s(trip, batches, layers)
    hidden = np.where(np.isfinite(hidden), np.maximum(hidden, 0.0), 0.0)
    return Overlap(RATIOS, COARSE_RATIOS, hidden, np.ones(sets.row.size, dtype=np.bool_))


def _layers(sets: Sets, split: Split) -> Part:
    """Return all layers but the core of attention, of all micro-batches one after the other."""
    mine, whole, batches = split.attention, split.others, split.batches
    time = split.serial_s(sets.num_layers[:, None])
    by, throttled, joules = np.zeros(whole.part.by.shape), np.zeros(time.shape), np.zeros(time.shape)
    each = (mine, sets.share, sets.side_idle), (whole, 1.0 - sets.share, sets.idle)
    for of, devices, idle in each:
        passes = batches * of.kernels
        by += passes[..., None] * of.part.by
        throttled += passes * of.part.throttled
        rest = np.maximum(time - batches * (of.time + of.outside), 0.0)
        joules += devices[:, None] * (passes * of.part.energy + idle[:, None] * rest)
    by[..., -1] = exchange = np.maximum(time - by[..., :-1].sum(axis=-1), 0.0)
    scale = time / np.where(whole.part.time > 0.0, whole.part.time, 1.0)
    return Part(
        time=time, exchange=exchange, energy=joules, by=by, of_model=whole.part.of_model * scale[..., None],
        throttled=throttled, experts=np.zeros(time.shape), launches=batches * whole.part.launches,
        attention=batches * mine.time, sums=np.zeros(time.shape),
    )  # fmt: skip


def _head(sets: Sets, tokens: Ints, others: Part, attention: Part) -> Part:
    """Return the head, which is with the embedding: on devices of attention, or on the others."""
    rows = 1.0 * tokens[None, :]
    core = _of_attention(sets, read(attention, (tokens,), sets.side, rows + np.zeros((sets.side.size, 1))))
    size = np.maximum(rows * (sets.ranks / sets.groups)[:, None], 1.0)
    whole = read(others, (tokens,), sets.row, size)
    waits = (sets.share * sets.side_idle)[:, None] * whole.time
    whole = whole._replace(energy=(1.0 - sets.share)[:, None] * whole.energy + waits)
    return Part(*(
        np.where(sets.is_operator.reshape(-1, *(1,) * (mine.ndim - 1)), theirs, mine)
        for mine, theirs in zip(core, whole, strict=True)
    ))  # fmt: skip


def _in_microbatches(sets: Sets, axes: Axes, core: Part) -> Part:
    """Return the core of attention of decoding requests, of all micro-batches one after the other."""
    batches = np.clip(axes.requests, 1, sets.microbatches[:, None])[..., None].astype(np.float64)
    size = axes.requests[:, None] / batches
    part = read(core, (axes.requests, axes.context), sets.side, size, axes.context.astype(np.float64))
    return Part(*(column * batches.reshape(*batches.shape, *(1,) * (column.ndim - 3)) for column in part))


def _of_attention(sets: Sets, part: Part) -> Part:
    """Return a part of passes on devices of attention, while the others wait: with the mean energy."""
    shape = -1, *(1,) * (part.time.ndim - 1)
    share, idle = sets.share.reshape(shape), sets.idle.reshape(shape)
    return part._replace(energy=share * part.energy + (1.0 - share) * idle * part.time)
