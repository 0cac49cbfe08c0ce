"""`model=lstm_lm`: the LSTM language model of the paper's validation and case studies (Sections 8, 9).

Embedding, layers of LSTM cells over the steps of a sequence, softmax over the vocabulary and its
cross-entropy, the backward pass of all of it, gradient clipping by the global norm, weight update.

A cell is one fused GEMM, [x, h] (2 hidden wide) times the weights of the four gates (4 hidden
wide), and one memory-bound pass over the gates. The weight gradient of a layer is one GEMM over
all steps, as cuDNN does it, rather than one a step.

What kernel parallelism exchanges is what the next kernel needs. Gate columns are dealt out so
that a device owns all four gates of its hidden units: the pointwise pass is local, and a
Row-Column cut gathers h, not the gates. Loss and its gradient need of other devices' logits only
each row's maximum and sum.
"""

from __future__ import annotations

from typing import NamedTuple

from fastflow.tables import Ints
from fastflow.workload.graph import EMBEDDING, HIDDEN, SOFTMAX, Graph, stack
from fastflow.workload.kernels import kernels
from fastflow.workload.layers import (
    ELEMENTWISE,
    GEMM,
    INPUT,
    LOOKUP,
    ROWWISE,
    Layer,
    Network,
    Node,
    connect,
)
from fastflow.workload.precision import Precision

# Elements that a fused pass reads and writes, per element of h, and its operations.
# Forward: four gates and c in, four activated gates, c and h out; biases, five activations, c and h.
CELL_MOVES, CELL_FLOP = 11.0, 13.0
# Backward: four gates, c, previous c, dh from above and from the next step, dc in; dgates and dc out.
CELL_BACKWARD_MOVES, CELL_BACKWARD_FLOP = 14.0, 24.0
# Softmax and cross-entropy in one pass over the logits; gradient in place.
LOSS_MOVES, LOSS_FLOP = 1.0, 4.0
LOSS_BACKWARD_MOVES, LOSS_BACKWARD_FLOP = 2.0, 3.0
# Kept for the backward pass by each cell, per element of h: four gates and c (h is kept whole).
KEPT_OF_CELL = 5


OTHER_LAYERS = 2  # embedding and softmax


class LstmLm(NamedTuple):
    """Dimensions of the language model; shape (points,)."""

    hidden: Ints
    batch: Ints
    vocabulary: Ints
    sequence: Ints


def _network(lm: LstmLm, layers: int) -> Network:
    tokens, h = lm.batch * lm.sequence, lm.hidden
    embedding = Node(name="embedding", type=LOOKUP, rows=tokens, cols=h, inner=lm.vocabulary, reads=())
    cell = Node(
        name="lstm cell", type=GEMM, rows=lm.batch, cols=4 * h, inner=2 * h, steps=lm.sequence,
        reads=(INPUT, "lstm gates"), keeps=0,
    )  # fmt: skip
    gates = Node(
        name="lstm gates", type=ELEMENTWISE, rows=lm.batch, cols=h, steps=lm.sequence, reads=("lstm cell",),
        moves=CELL_MOVES, flop=CELL_FLOP,
        backward_moves=CELL_BACKWARD_MOVES, backward_flop=CELL_BACKWARD_FLOP, keeps=KEPT_OF_CELL * h,
    )  # fmt: skip
    softmax = Node(name="softmax", type=GEMM, rows=tokens, cols=lm.vocabulary, inner=h)
    loss = Node(
        name="loss",
        type=ROWWISE,
        rows=tokens,
        cols=lm.vocabulary,
        reads=("softmax",),
        moves=LOSS_MOVES,
        flop=LOSS_FLOP,
        backward_moves=LOSS_BACKWARD_MOVES,
        backward_flop=LOSS_BACKWARD_FLOP,
    )
    return connect(
        (
            Layer("embedding", EMBEDDING, (embedding,)),
            Layer(name="lstm", kind=HIDDEN, nodes=(cell, gates), repeat=layers),
            Layer("softmax", SOFTMAX, (softmax, loss)),
        )
    )


def build(lm: LstmLm, layers: int, training: bool, precision: Precision) -> Graph:
    """Return the compute graph of language models that share their number of layers."""
    return stack(kernels(_network(lm, layers), training, precision), lm.batch.size)
