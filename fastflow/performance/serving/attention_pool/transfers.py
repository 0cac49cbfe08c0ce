"""What devices of attention and the other devices of a server send each other in every layer.

Attention with its projections gets the input of a layer's feed-forward block from its own devices, sends it
to the other devices, and gets their output back. A token is sent once for each of its experts, to devices of
experts, as by the M2N library of MegaScale-Infer (arXiv:2504.02263, section 5). The core of attention alone
gets queries, keys and values, and sends its output (Lamina, arXiv:2405.01814). Each device sends or receives
an equal share, and the slower set of devices counts.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fastflow.core.tables import Floats, Inputs, Ints
from fastflow.performance.serving.attention_pool.devices import BANDWIDTH, PART_APART
from fastflow.performance.serving.layout import ServerLayouts
from fastflow.performance.serving.other_chips import has_chip
from fastflow.physics.hardware.chip import Chip
from fastflow.physics.hardware.packages import PACKAGE
from fastflow.physics.workload.models.transformer.dimensions import sizes_of
from fastflow.physics.workload.precision import precision
from fastflow.schema import OF_ATTENTION
from fastflow.schema.serving import OPERATOR


class Transfers(NamedTuple):
    """Times of transfers in a layer; (points,)."""

    latency: Floats  # [s]
    send: Floats  # of a token of every attention rank, to the other devices and back to those of attention
    back: Floats  # [s]


def transfers_of(inputs: Inputs, layouts: ServerLayouts, groups: Ints, chips: tuple[Chip, Chip]) -> Transfers:
    """Return the transfers of servers; inputs: of points with devices of attention, with the other chip.

    groups: ranks of the other devices, (points,); chips: of devices of attention, and of others.
    """
    size, element = sizes_of(inputs), precision(inputs).activation
    is_operator = inputs[PART_APART] == OPERATOR
    copies = np.where(groups > 1, np.minimum(np.asarray(size.topk), groups), 1)
    hidden = copies * np.asarray(size.hidden)
    out = np.asarray(size.heads) * np.asarray(size.value_dim)
    keys = np.asarray(size.kv_heads) * (np.asarray(size.head_dim) + np.asarray(size.value_dim))
    queries = np.asarray(size.heads) * np.asarray(size.head_dim)
    # of the core of attention, devices of attention get what the others send first
    to_others = np.where(is_operator, out, hidden) * element * layouts.ranks
    to_attention = np.where(is_operator, queries + keys, hidden) * element * layouts.ranks
    inside = (layouts.devices <= inputs[PACKAGE]) & (not has_chip(inputs, OF_ATTENTION))
    counts = layouts.tensor * layouts.ranks, layouts.others
    rates = []
    for chip, count in zip(chips, counts, strict=True):
        links = np.where(
            inside,
            chip.intra.bandwidth * inputs["net.intra.utilization"],
            chip.inter.bandwidth * inputs["net.inter.utilization"],
        )
        rates.append(np.where(inputs[BANDWIDTH] > 0.0, inputs[BANDWIDTH], links) * count)
    slower = np.minimum(*rates)
    latency = np.where(inside, inputs["net.intra.latency"], inputs["net.inter.latency"])
    with np.errstate(divide="ignore"):  # a device without links takes forever, and has its reason
        return Transfers(latency, to_others / slower, to_attention / slower)
