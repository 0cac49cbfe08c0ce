"""RWKV-7 (Peng et al., arXiv:2503.14456): a delta rule whose decay, rate and strength are of each column.

The input is mixed with that of the token before, six times with other weights. A product makes queries, keys
and values; low-rank products make decays, in-context learning rates, the share of the first layer's values,
and the output's gate (RWKV_Tmix_x070 of BlinkDL/RWKV-LM, whose ranks are the defaults here; RWKV7Attention of
fla-org/flash-linear-attention@0315a70, fla/layers/rwkv7.py). All layers count as the second one does: the
first has no share of first values. RWKV's feed-forward part is `dense` with model.gated=false and
model.activation=relu2; it mixes its input with that of the token before, too, whose weights and state count
here.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fastflow.core.tables import Inputs
from fastflow.physics.workload.graph import Dims
from fastflow.physics.workload.models.transformer.building_blocks import HEADS, HIDDEN, TOKENS, gemm
from fastflow.physics.workload.models.transformer.dimensions import Sizes
from fastflow.physics.workload.models.transformer.layer_kind import DENSE, LayerKind
from fastflow.physics.workload.models.transformer.mixer import PROJECTION
from fastflow.physics.workload.models.transformer.mixers.linear import (
    AFTER_CORE,
    MIXER_IN,
    OF_HEADS,
    RANK,
    RECURRENCE,
    core_of_training,
    keys_of,
    mixer_of_rule,
    queries_keys_and_values,
    rank_of,
    values_of,
)
from fastflow.physics.workload.network import Node, PassCost, Size
from fastflow.physics.workload.ops import pointwise
from fastflow.physics.workload.ops.elementwise import TYPE as PASS
from fastflow.physics.workload.ops.recurrence.rules import RWKV7 as RULE

_MIXED = 6  # inputs: of queries, decays, keys, values, rates, gate
_SHIFT_MOVES = 10.0
"""Tensors: in and out to shift, input and difference in, six out (fla/ops/rwkv7/fused_addcmul.py)."""
_SHIFT_FLOP = 1.0 + 2.0 * _MIXED
_UPDATED = 4  # keys, rates, strengths, values
_UPDATE_MOVES = 12.0 / _UPDATED
"""Tensors of four: values 4 in and out, normalised keys 2, keys 3, strengths 3 (fla/layers/rwkv7.py)."""
_UPDATE_FLOP = 6.0
_OUTPUT_MOVES = 8.0
"""Tensors: norm 2; its output, query, key, value, gate and the result (gate_output_correction.py)."""
_OUTPUT_FLOP = 6.0  # query x key x weight and its sum, times value, times gate, beside the norm
_LAST_TOKENS = 2  # of time mixing and of channel mixing


class _Ranks(NamedTuple):
    """Columns of the low-rank products."""

    decay: Size
    rate: Size
    value: Size
    gate: Size


def _ranks(size: Sizes) -> _Ranks:
    hidden = np.asarray(size.hidden, dtype=np.float64)

    def near(columns: np.ndarray[tuple[int, ...], np.dtype[np.float64]]) -> Size:
        rounded = np.maximum(32, 32 * np.rint(columns / 32.0)).astype(np.int64)
        rank: Size = rank_of(size, rounded if rounded.ndim else int(rounded))
        return rank

    root = np.sqrt(hidden)
    return _Ranks(near(1.8 * root), near(1.8 * root), near(1.3 * root), near(0.6 * hidden**0.8))


def _nodes(points: Inputs, size: Sizes, kind: LayerKind, read: str) -> list[Node]:
    keys, values, ranks = keys_of(size), values_of(size), _ranks(size)
    shift, down, update = "token shift", "gates down", "update of keys and values"
    ups = {
        "decay up": (ranks.decay, keys), "rate up": (ranks.rate, keys), "value up": (ranks.value, values),
        "gate up": (ranks.gate, values),
    }  # fmt: skip
    all_ranks: Size = sum(ranks, 0)
    return [
        _shifted(size, kind, read, shift),
        gemm(MIXER_IN, size, size.hidden, queries_keys_and_values(size), shift, (HIDDEN, HEADS)),
        gemm(down, size, size.hidden, all_ranks, shift, (HIDDEN, RANK)),
        *(
            gemm(name, size, rank, cols, down, (RANK, HEADS), biased=name != "gate up")
            for name, (rank, cols) in ups.items()
        ),
        Node(
            name=update, type=PASS, rows=size.tokens, cols=_UPDATED * keys,
            reads=(MIXER_IN, "rate up", "value up"), vectors=2 * keys, dims=OF_HEADS,
            cost=PassCost(_UPDATE_MOVES, _UPDATE_FLOP, 2.0 * _UPDATE_MOVES),
        ),
        *core_of_training(size, RULE, (update, "decay up", MIXER_IN)),
        _output(size, (RECURRENCE, MIXER_IN, update, "gate up")),
        gemm(PROJECTION, size, values, size.hidden, "output gate", (HEADS, HIDDEN)),
    ]  # fmt: skip


def _shifted(size: Sizes, kind: LayerKind, read: str, name: str) -> Node:
    """Return the mixtures with the token before; a product reads one of them, and all are saved."""
    vectors = (_MIXED + int(kind.feed_forward == DENSE)) * size.hidden
    return Node(
        name=name, type=PASS, rows=size.tokens, cols=size.hidden, reads=(read,),
        dims=Dims(TOKENS, (), HIDDEN), cost=PassCost(_SHIFT_MOVES, _SHIFT_FLOP, _SHIFT_MOVES),
        vectors=vectors, keeps=_MIXED * size.hidden, keeps_whole=0,
    )  # fmt: skip


def _output(size: Sizes, reads: tuple[str, ...]) -> Node:
    """Return the norm of each head's output, its bonus for the own token, and its gate."""
    flop = pointwise.OPERATORS["layernorm"].flop + _OUTPUT_FLOP
    cols = values_of(size)
    return Node(
        name="output gate", type=AFTER_CORE, rows=size.tokens, cols=cols, reads=reads, dims=OF_HEADS,
        cost=PassCost(_OUTPUT_MOVES, flop, 2.0 * _OUTPUT_MOVES), vectors=2 * cols + keys_of(size),
    )  # fmt: skip


RWKV7 = mixer_of_rule(
    "rwkv7",
    "time mixing of RWKV-7",
    RULE,
    _nodes,
    channels=None,
    tokens=lambda size: _LAST_TOKENS * size.hidden,
    further=("linear_rank",),
)
