"""Devices of attention: their inputs and layouts, and what does not go with them.

`serve.attention.devices` of the devices compute attention and have the KV caches. The other devices, with the
layout `parallel.strategy`, compute the rest of each layer. Each server has its share of the devices of
attention, in data-parallel ranks of `serve.attention.strategy`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fastflow.core.dedupe import map_values
from fastflow.core.reasons.codes import Code, rejected
from fastflow.core.reasons.columns import ReasonColumn, Reasons, first_reasons, no_reasons
from fastflow.core.tables import Bools, Columns, Inputs, Ints, take
from fastflow.performance.serving.images import IMAGES
from fastflow.performance.serving.layout import STRATEGY, ServerLayouts, server_layouts
from fastflow.performance.serving.other_chips import with_chip
from fastflow.performance.serving.weight_tiers import offloads
from fastflow.physics.hardware.packages import DEVICES
from fastflow.physics.parallelism.strategy import TENSOR, Strategy, parse
from fastflow.physics.workload.models.transformer.layer_pattern import KEY, kinds_of
from fastflow.physics.workload.models.transformer.mixer import OF_HEADS
from fastflow.schema import OF_ATTENTION
from fastflow.schema.servers import ALL_REDUCE_NORM, CPU_OFFLOAD, NANO_BATCHES, TWO_BATCHES
from fastflow.schema.serving import OPERATOR

ATTENTION_DEVICES, ATTENTION_STRATEGY = f"{OF_ATTENTION}devices", f"{OF_ATTENTION}strategy"
PART_APART, MICROBATCHES = f"{OF_ATTENTION}part", f"{OF_ATTENTION}microbatches"
BANDWIDTH = f"{OF_ATTENTION}bandwidth"
_WITHOUT = {NANO_BATCHES: 1, TWO_BATCHES: False, ALL_REDUCE_NORM: False}
"""Keys of overlap inside a device, which micro-batches replace, and their values without it."""


def has_pool(inputs: Inputs) -> Bools:
    """Say which points have devices of attention."""
    return np.asarray(inputs[ATTENTION_DEVICES] > 0, dtype=np.bool_)


def other_devices(inputs: Inputs) -> Inputs:
    """Return inputs with the devices that compute the rest of each layer."""
    if not has_pool(inputs).any():
        return inputs
    return {**inputs, DEVICES: np.maximum(inputs[DEVICES] - inputs[ATTENTION_DEVICES], 1)}


def rank_inputs(inputs: Inputs) -> Columns:
    """Return inputs of the devices of one attention rank, with their chip; of points that have them."""
    tensor = _tensor(inputs)
    strategies = [str(Strategy(TENSOR, tp=degree)) for degree in tensor.tolist()]
    return with_chip(inputs, OF_ATTENTION) | {STRATEGY: np.array(strategies, np.str_), DEVICES: tensor}


def rank_layouts(inputs: Inputs) -> ServerLayouts:
    """Return the layout of an attention rank; inputs: of `rank_inputs`."""
    return server_layouts(inputs, ATTENTION_STRATEGY)


def with_attention(inputs: Inputs, layouts: ServerLayouts) -> ServerLayouts:
    """Return servers whose attention has devices of its own; layouts: of the other devices."""
    rows = has_pool(inputs)
    if not rows.any():
        return layouts
    tensor = _tensor(inputs)
    ranks = inputs[ATTENTION_DEVICES] // np.maximum(layouts.replicas * tensor, 1)
    return layouts._replace(
        tensor=np.where(rows, tensor, layouts.tensor),
        ranks=np.where(rows, ranks, layouts.ranks),
        others=np.where(rows, layouts.devices, 0),
    )


def _tensor(inputs: Inputs) -> Ints:
    """Return the devices of an attention rank, (points,)."""
    tensor: Ints = map_values(
        {text: parse(text, ATTENTION_STRATEGY).tp for text in {*inputs[ATTENTION_STRATEGY].tolist()}},
        inputs[ATTENTION_STRATEGY],
    ).astype(np.int64)
    return tensor


class _Rule(NamedTuple):
    """An input that does not go with devices of attention."""

    code: Code
    key: str
    rows: Bools
    allowed: str


def invalid_pool(inputs: Inputs, layouts: ServerLayouts) -> ReasonColumn:
    """Say for every point why attention cannot have devices of its own, (points,).

    inputs: with all devices that decode; layouts: of the other devices.
    """
    has = has_pool(inputs)
    if not has.any():
        return no_reasons(has.size)
    reason, rows = Reasons(has.size), np.flatnonzero(has)
    for rule in _rules(inputs, layouts):
        for i in reason.without(has & rule.rows):
            value = inputs[rule.key][i]
            reason.add(i, rejected(rule.code, rule.key, value.item(), rule.allowed))
    wanted, whole = inputs[ATTENTION_DEVICES], inputs[DEVICES]
    for i in reason.without(has & (wanted >= whole)):
        allowed = f"fewer than the {whole[i]} devices of which they are, or 0"
        reason.add(i, rejected(Code.STRATEGY, ATTENTION_DEVICES, int(wanted[i]), allowed))
    each = _tensor(inputs) * np.maximum(layouts.replicas, 1)
    for i in reason.without(has & (wanted % each > 0)):
        allowed = (
            f"a multiple of {each[i]}: {layouts.replicas[i]} servers of {STRATEGY}={layouts.printed[i]} with"
            f" attention ranks of {ATTENTION_STRATEGY}={inputs[ATTENTION_STRATEGY][i]}"
        )
        reason.add(i, rejected(Code.STRATEGY, ATTENTION_DEVICES, int(wanted[i]), allowed))
    of_ranks = rank_layouts(rank_inputs(take(dict(inputs), rows))).reason
    return first_reasons(reason.column(), no_reasons(has.size).replaced(rows, of_ranks))


def _rules(inputs: Inputs, layouts: ServerLayouts) -> list[_Rule]:
    """Return what does not go with devices of attention."""
    whole = f"; or {ATTENTION_DEVICES}=0"
    strategy, prefills = inputs[ATTENTION_STRATEGY], inputs["serve.mode"] == "disaggregated"
    is_tensor = map_values(
        {text: parse(text, ATTENTION_STRATEGY).devices == parse(text).tp for text in {*strategy.tolist()}},
        strategy,
    ).astype(np.bool_)
    is_operator = inputs[PART_APART] == OPERATOR
    of_heads = map_values({text: _has_heads(text) for text in {*inputs[KEY].tolist()}}, inputs[KEY])
    is_plain = of_heads.astype(np.bool_) & (inputs["model.latent"] == 0)
    return [
        *(
            _Rule(Code.LOAD, key, inputs[key] != value, f"{str(value).lower()}{whole}")
            for key, value in _WITHOUT.items()
        ),
        _Rule(Code.MEMORY, CPU_OFFLOAD, offloads(inputs), f"weights in the devices' memory alone{whole}"),
        _Rule(Code.LOAD, IMAGES, (inputs[IMAGES] > 0) & ~prefills, f"0, or serve=disaggregated{whole}"),
        _Rule(Code.STRATEGY, STRATEGY, layouts.slots > 1, f"a strategy without pipeline stages{whole}"),
        _Rule(Code.STRATEGY, ATTENTION_STRATEGY, ~is_tensor, "tensor parallelism alone, such as TP-2"),
        _Rule(
            Code.STRATEGY, STRATEGY, (layouts.ranks > 1) & (layouts.tensor > 1) & ~is_operator,
            f"experts that are distributed over ranks of a single device, or over a single rank{whole}",
        ),
        _Rule(
            Code.MODEL, PART_APART, is_operator & ~is_plain,
            "attention for this model: only a product of queries, keys and values of heads can be apart",
        ),
    ]  # fmt: skip


def _has_heads(pattern: str) -> bool:
    """Say whether all mixers of a pattern multiply queries, keys and values of heads."""
    return all(mixer in OF_HEADS for kind in kinds_of(pattern) for mixer in kind.mixers)
