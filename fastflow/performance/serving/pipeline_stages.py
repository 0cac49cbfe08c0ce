"""How servers partition a model's layers over pipeline stages, and which stage is the bottleneck.

Where the number of stages does not divide the layers, some stages have one layer more: the first ones
(TensorRT-LLM's Mapping.pp_layers), the last ones (SGLang's get_pp_indices), or the last ones before the very
last, which has the head (vLLM's get_pp_indices). `parallel.pipeline_partition=balanced` chooses the numbers
that make the slowest stage fastest, which users do by hand (VLLM_PP_LAYER_PARTITION,
SGLANG_PP_LAYER_PARTITION).

The first stage has the embedding too, the last one the head. Where as many batches are in flight as there
are stages, a batch returns to a stage once the slowest stage has run all of them.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np

from fastflow.core.dedupe import factorize, unique_rows
from fastflow.core.tables import Floats, Inputs, Ints, Texts
from fastflow.performance.serving.layout import ServerLayouts
from fastflow.physics.parallelism.virtual_stages import BALANCED
from fastflow.physics.schedule.pipeline_order import balance
from fastflow.physics.workload.models.transformer.layer_pattern import KEY, kinds_of, parse

FIRST, BEFORE_LAST, LAST = "first", "before_last", "last"
EXTRA_LAYERS = "server.extra_layers"
EMBEDDING_TIME, HEAD_TIME, FIRST_KIND = range(3)
"""Indices of a model's parts: its embedding, its head, and the layers of each kind of its pattern from
FIRST_KIND on."""


def parts_of_model(patterns: Texts) -> int:
    """Return the number of parts that models of some patterns have at most; patterns: (points,)."""
    return FIRST_KIND + max((len(kinds_of(name)) for name in factorize(patterns)[0]), default=0)


class Stages(NamedTuple):
    """Pipeline stages of each point's servers; (points,) but for `layers`."""

    layers: Ints  # of each kind in every stage, 0 beyond a point's last, (points, stages, kinds)
    widest: Floats  # largest share of all layers' time in a stage but the last
    last: Floats  # share in the last stage, which has the head too


def stages_of(inputs: Inputs, layouts: ServerLayouts, part_s: Floats) -> Stages:
    """Return the stages of points.

    part_s: time of each part of the model in the pass that stages are balanced for [s],
    (points, parts).
    """
    points, slots = layouts.slots.size, layouts.slots
    columns = [
        inputs[KEY],
        inputs["model.layers"],
        slots,
        inputs[EXTRA_LAYERS],
        inputs["parallel.pipeline_partition"],
    ]
    balances = (inputs["parallel.pipeline_partition"] == BALANCED) & (slots > 1)
    times = np.where(balances[:, None], part_s, 0.0)  # no other split depends on it
    first, inverse = unique_rows([*columns, *times.T], points)
    split_by = [part_s[row] if balances[row] else None for row in first.tolist()]
    rows = zip(*(column[first].tolist() for column in columns[:4]), split_by, strict=True)
    splits = [_split(*row) for row in rows]
    table = np.zeros((first.size, int(slots.max(initial=1)), part_s.shape[1] - FIRST_KIND), dtype=np.int64)
    for index, split in enumerate(splits):
        table[index, : len(split), : split.shape[1]] = split
    layers = table[inverse]
    stage_s = _stage_times(layers, part_s)
    total, point = stage_s.sum(axis=1), np.arange(points)
    share = stage_s / np.where(total > 0.0, total, 1.0)[:, None]
    last = np.where(slots > 1, share[point, slots - 1], 1.0)
    share[point, slots - 1] = 0.0
    return Stages(layers, share.max(axis=1), last)


def _stage_times(layers: Ints, part_s: Floats) -> Floats:
    """Return the time of each stage without the head [s], (points, stages)."""
    num_layers = layers.sum(axis=1)
    layer_s = part_s[:, FIRST_KIND:] / np.maximum(num_layers, 1)
    stage_s: Floats = (layers * layer_s[:, None, :]).sum(axis=2)
    stage_s[:, 0] += part_s[:, EMBEDDING_TIME]
    return stage_s


def _split(pattern: str, layers: int, stages: int, extra: str, part_s: Floats | None) -> Ints:
    """Return the number of layers of each kind of a pattern in every stage, (stages, kinds).

    part_s: times that stages are balanced by, as in `stages_of`, of one point; None: an even split.
    """
    order, kinds = kinds_in_order(pattern, layers), len(kinds_of(pattern))
    if part_s is None:
        counts = even_layers(layers, stages, extra)
        starts = np.cumsum([0, *counts[:-1]])
    else:
        layer_s = part_s[FIRST_KIND : FIRST_KIND + kinds] / np.maximum(np.bincount(order, minlength=kinds), 1)
        times = layer_s[order]
        times[0] += part_s[EMBEDDING_TIME]
        times[-1] += part_s[HEAD_TIME]
        starts = balance(times, stages)
    num_layers = np.zeros((stages, kinds), dtype=np.int64)
    np.add.at(num_layers, (np.searchsorted(starts, np.arange(layers), side="right") - 1, order), 1)
    return num_layers


@lru_cache(maxsize=4096)
def even_layers(layers: int, stages: int, extra: str) -> tuple[int, ...]:
    """Return the layers of each stage, split evenly; extra: which stages have one layer more."""
    each, remainder = divmod(layers, stages)
    begin = {FIRST: 0, BEFORE_LAST: stages - 1 - remainder, LAST: stages - remainder}[extra]
    return tuple(each + (begin <= stage < begin + remainder) for stage in range(stages))


@lru_cache(maxsize=4096)
def kinds_in_order(pattern: str, layers: int) -> Ints:
    """Return the index in the kinds of its pattern of every layer of a model, (layers,)."""
    kinds = kinds_of(pattern)
    indices = np.array([kinds.index(kind) for kind in parse(pattern)], dtype=np.int64)
    return np.resize(indices, layers)
