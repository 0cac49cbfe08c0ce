"""How servers share a model's layers out over pipeline stages, and which stage sets the pace.

Where stages do not divide the layers, some have a layer more: the first ones (TensorRT-LLM's
Mapping.pp_layers), the last ones (SGLang's get_pp_indices), or the last ones before the very last, which has
the head (vLLM's get_pp_indices). `parallel.split=balanced` sets the numbers so that the slowest stage takes
as little as it can, which users do by hand (VLLM_PP_LAYER_PARTITION, SGLANG_PP_LAYER_PARTITION).

The first stage has the embedding beside its layers, the last one the head. Where as many batches are in
flight as there are stages, a batch comes back to a stage once the slowest stage has run all of them.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np

from fastflow.core.dedupe import unique_rows
from fastflow.core.tables import Floats, Inputs, Ints
from fastflow.performance.serving.layout import ServerLayouts
from fastflow.physics.parallelism.virtual_stages import BALANCED
from fastflow.physics.schedule.pipeline_order import balance
from fastflow.physics.workload.models.transformer.layer_pattern import KEY, KINDS, parse

FIRST, BEFORE_LAST, LAST = "first", "before_last", "last"
EXTRA_LAYERS = "server.extra_layers"
EMBEDDING_TIME, HEAD_TIME = 0, 1 + len(KINDS)
"""Places in what a model's parts take: its embedding, each of KINDS, its head."""
PARTS_OF_MODEL = HEAD_TIME + 1


class Stages(NamedTuple):
    """Pipeline stages of each point's servers; (points,) but for `layers`."""

    layers: Ints  # of each of KINDS in every stage, none beyond a point's last, (points, stages, kinds)
    widest: Floats  # share of the time of all layers that the slowest stage but the last takes
    last: Floats  # the same of the last stage, which takes the head's time too


def stages_of(inputs: Inputs, layouts: ServerLayouts, part_s: Floats) -> Stages:
    """Return the stages of points.

    part_s: what each part of the model takes in the pass that stages are balanced for [s],
    (points, PARTS_OF_MODEL).
    """
    points, slots = layouts.slots.size, layouts.slots
    what = [inputs[KEY], inputs["model.layers"], slots, inputs[EXTRA_LAYERS], inputs["parallel.split"]]
    balances = (inputs["parallel.split"] == BALANCED) & (slots > 1)
    times = np.where(balances[:, None], part_s, 0.0)  # which no other split depends on
    first, place = unique_rows([*what, *times.T], points)
    split_by = [part_s[row] if balances[row] else None for row in first.tolist()]
    rows = zip(*(column[first].tolist() for column in what[:4]), split_by, strict=True)
    every = [_split(*row) for row in rows]
    table = np.zeros((first.size, int(slots.max(initial=1)), len(KINDS)), dtype=np.int64)
    for number, split in enumerate(every):
        table[number, : len(split)] = split
    layers = table[place]
    stage_s = _times(layers, part_s)
    whole, at = stage_s.sum(axis=1), np.arange(points)
    share = stage_s / np.where(whole > 0.0, whole, 1.0)[:, None]
    last = np.where(slots > 1, share[at, slots - 1], 1.0)
    share[at, slots - 1] = 0.0
    return Stages(layers, share.max(axis=1), last)


def _times(layers: Ints, part_s: Floats) -> Floats:
    """Return what each stage takes without the head [s], (points, stages)."""
    many = layers.sum(axis=1)
    each = part_s[:, 1:HEAD_TIME] / np.maximum(many, 1)
    stage_s: Floats = (layers * each[:, None, :]).sum(axis=2)
    stage_s[:, 0] += part_s[:, EMBEDDING_TIME]
    return stage_s


def _split(pattern: str, layers: int, stages: int, extra: str, part_s: Floats | None) -> Ints:
    """Return how many layers of each of KINDS stages have, (stages, kinds).

    part_s: what stages are balanced by, as `stages_of` has it, of one point; None: they are even.
    """
    order = kinds_in_order(pattern, layers)
    if part_s is None:
        counts = even(layers, stages, extra)
        starts = np.cumsum([0, *counts[:-1]])
    else:
        each = part_s[1:HEAD_TIME] / np.maximum(np.bincount(order, minlength=len(KINDS)), 1)
        times = each[order]
        times[0] += part_s[EMBEDDING_TIME]
        times[-1] += part_s[HEAD_TIME]
        starts = balance(times, stages)
    counted = np.zeros((stages, len(KINDS)), dtype=np.int64)
    np.add.at(counted, (np.searchsorted(starts, np.arange(layers), side="right") - 1, order), 1)
    return counted


@lru_cache(maxsize=4096)
def even(layers: int, stages: int, extra: str) -> tuple[int, ...]:
    """Return the layers of each stage, as even as they come; extra: which stages have a layer more."""
    each, rest = divmod(layers, stages)
    begin = {FIRST: 0, BEFORE_LAST: stages - 1 - rest, LAST: stages - rest}[extra]
    return tuple(each + (begin <= stage < begin + rest) for stage in range(stages))


@lru_cache(maxsize=4096)
def kinds_in_order(pattern: str, layers: int) -> Ints:
    """Return the place among KINDS of every layer of a model, (layers,)."""
    every = np.array([KINDS.index(kind) for kind in parse(pattern)], dtype=np.int64)
    return np.resize(every, layers)
