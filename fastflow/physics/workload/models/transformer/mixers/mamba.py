"""Mamba (Gu and Dao, arXiv:2312.00752): a selective scan of each channel; with norms as in Jamba, too.

A head is a channel, whose state has `linear_key_dim` numbers. One product makes the channels and their gate;
a short convolution follows, and of its output a product makes a low-rank step, a key and a query (B and C),
of which a further product makes each channel's step. The scan multiplies its output by the gate (Mamba of
state-spaces/mamba; the rank is a 16th of model.hidden by default). The backward pass computes convolution and
steps again (MambaInnerFn, mamba_ssm/ops/selective_scan_interface.py). Jamba normalises step, key and query
(JambaMambaMixer of huggingface/transformers), and Falcon-Mamba does so without weights.
"""

from __future__ import annotations

from functools import partial

from fastflow.core.tables import Inputs
from fastflow.physics.workload.models.transformer.building_blocks import HEADS, HIDDEN, gemm, norm
from fastflow.physics.workload.models.transformer.dimensions import RMS, Sizes
from fastflow.physics.workload.models.transformer.layer_kind import LayerKind
from fastflow.physics.workload.models.transformer.mixer import PROJECTION, Mixer
from fastflow.physics.workload.models.transformer.mixers.linear import (
    MIXER_IN,
    RANK,
    RECURRENCE,
    core_of_training,
    mixer_of_rule,
    rank_of,
)
from fastflow.physics.workload.network import Node, Size
from fastflow.physics.workload.ops.recurrence.rules import SELECTIVE

_RANK = 16  # columns of the model for each of a step's rank


def _channels(size: Sizes) -> Size:
    return size.linear_heads


def _scan(size: Sizes) -> Sizes:
    """Return the sizes of the scan: a value has one column, and all channels share keys and queries."""
    return size._replace(linear_key_heads=1, linear_value_dim=1)


def _nodes(normed: bool, points: Inputs, size: Sizes, kind: LayerKind, read: str) -> list[Node]:
    channels, states = size.linear_heads, 2 * size.linear_key_dim
    rank = rank_of(size, -(-size.hidden // _RANK))
    low, step = "step, key and query", "step up"
    weights = size.linear_heads * size.linear_key_dim + channels  # decays, and the skip connection
    *convolved, core = core_of_training(
        _scan(size), SELECTIVE, (MIXER_IN, step), channels, vectors=weights, biased=True,
        further_cols=channels, keeps_convolution=False,
    )  # fmt: skip
    source = convolved[-1].name if convolved else MIXER_IN
    nodes = [
        gemm(MIXER_IN, size, size.hidden, 2 * channels, read, (HIDDEN, HEADS)),
        *convolved,
        gemm(low, size, channels, rank + states, source, (HEADS, RANK)),
    ]
    if normed:
        nodes.append(norm("step norm", size, RMS, low, rank + states, RANK))
    up = gemm(step, size, rank, channels, nodes[-1].name, (RANK, HEADS), biased=True)
    return [
        *nodes,
        up._replace(keeps=0, keeps_whole=0),
        core,
        gemm(PROJECTION, size, channels, size.hidden, RECURRENCE, (HEADS, HIDDEN)),
    ]


def _mixer(name: str, meaning: str, normed: bool) -> Mixer:
    return mixer_of_rule(
        name,
        meaning,
        SELECTIVE,
        partial(_nodes, normed),
        channels=_channels,
        recurrent=_scan,
        needed=("linear_heads", "linear_key_dim", "conv_width"),
        further=("linear_rank",),
    )


MAMBA = _mixer("mamba", "Mamba", normed=False)
NORMED_MAMBA = _mixer("normed_mamba", "Mamba with norms of step, key and query", normed=True)
