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

import numpy as np

from fastflow.columns import Floats, Ints
from fastflow.workload.graph import (
    ALL_GATHER,
    ALL_REDUCE,
    BACKWARD,
    DENSE,
    FORWARD,
    INPUT_GRADIENT,
    ON_ACTIVATIONS,
    ON_WEIGHTS,
    PRODUCT,
    REDUCE_SCATTER,
    SPARSE,
    UPDATE,
    WEIGHT_GRADIENT,
    Graph,
    Kernel,
    stack,
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
# Embedding: a row in, a row out; its gradient is added to the table's.
LOOKUP_MOVES, SCATTER_MOVES = 2.0, 3.0
# Kept for the backward pass by each cell, per element of h: four gates and c (h is kept whole).
KEPT_OF_CELL = 5
# A row's maximum and sum, in fp32, as columns of 2-byte logits; exact enough at fp32 too.
ROW_STATISTICS_COLS = 4


class LstmLm(NamedTuple):
    """Dimensions of the language model; shape (points,)."""

    hidden: Ints
    batch: Ints
    vocabulary: Ints
    sequence: Ints


def _forward(lm: LstmLm, layers: int, size: Floats, training: bool) -> list[Kernel]:
    tokens = lm.batch * lm.sequence
    kept = 1 if training else 0
    embedding = Kernel(
        "embedding", FORWARD, ON_ACTIVATIONS, tokens, inner=lm.vocabulary, cols=lm.hidden,
        bytes_per_element=LOOKUP_MOVES * size,
        rc=ALL_GATHER, rc_cols=lm.hidden, weights=1, kept_whole_cols=kept * lm.hidden,
    )  # fmt: skip
    cell = [
        Kernel(
            "lstm cell", FORWARD, PRODUCT, lm.batch, 2 * lm.hidden, 4 * lm.hidden, lm.sequence,
            cr=REDUCE_SCATTER, cr_cols=4 * lm.hidden, weights=1,
        ),
        Kernel(
            "lstm gates", FORWARD, ON_ACTIVATIONS, lm.batch, cols=lm.hidden, repeat=lm.sequence,
            bytes_per_element=CELL_MOVES * size, flop_per_element=CELL_FLOP,
            rc=ALL_GATHER, rc_cols=lm.hidden,
            kept_cols=kept * KEPT_OF_CELL * lm.hidden, kept_whole_cols=kept * lm.hidden,
        ),
    ]  # fmt: skip
    softmax = [
        Kernel(
            "softmax", FORWARD, PRODUCT, tokens, lm.hidden, lm.vocabulary,
            cr=REDUCE_SCATTER, cr_cols=lm.vocabulary, weights=1, kept_cols=kept * lm.vocabulary,
        ),
        Kernel(
            "loss", FORWARD, ON_ACTIVATIONS, tokens, cols=lm.vocabulary,
            bytes_per_element=LOSS_MOVES * size, flop_per_element=LOSS_FLOP,
            rc=ALL_REDUCE, rc_cols=ROW_STATISTICS_COLS, cr=ALL_REDUCE, cr_cols=ROW_STATISTICS_COLS,
        ),
    ]  # fmt: skip
    return [embedding, *cell * layers, *softmax]


def _backward(lm: LstmLm, layers: int, size: Floats) -> list[Kernel]:
    tokens = lm.batch * lm.sequence
    softmax = [
        Kernel(
            "loss gradient", BACKWARD, ON_ACTIVATIONS, tokens, cols=lm.vocabulary,
            bytes_per_element=LOSS_BACKWARD_MOVES * size, flop_per_element=LOSS_BACKWARD_FLOP,
        ),
        Kernel(
            "softmax input gradient", BACKWARD, INPUT_GRADIENT, tokens, lm.hidden, lm.vocabulary,
            rc=REDUCE_SCATTER, rc_cols=lm.hidden, cr=ALL_GATHER, cr_cols=lm.vocabulary,
        ),
        Kernel(
            "softmax weight gradient", BACKWARD, WEIGHT_GRADIENT, tokens, lm.hidden, lm.vocabulary,
            gradient=DENSE,
        ),
    ]  # fmt: skip
    cell = [
        Kernel(
            "lstm gates gradient", BACKWARD, ON_ACTIVATIONS, lm.batch, cols=lm.hidden, repeat=lm.sequence,
            bytes_per_element=CELL_BACKWARD_MOVES * size, flop_per_element=CELL_BACKWARD_FLOP,
        ),
        Kernel(
            "lstm cell input gradient", BACKWARD, INPUT_GRADIENT,
            lm.batch, 2 * lm.hidden, 4 * lm.hidden, lm.sequence,
            rc=REDUCE_SCATTER, rc_cols=2 * lm.hidden, cr=ALL_GATHER, cr_cols=4 * lm.hidden,
        ),
        Kernel(
            "lstm cell weight gradient", BACKWARD, WEIGHT_GRADIENT, tokens, 2 * lm.hidden, 4 * lm.hidden,
            gradient=DENSE,
        ),
    ]  # fmt: skip
    embedding = Kernel(
        "embedding gradient", BACKWARD, ON_ACTIVATIONS, tokens, inner=lm.vocabulary, cols=lm.hidden,
        bytes_per_element=SCATTER_MOVES * size, flop_per_element=1.0, gradient=SPARSE,
    )  # fmt: skip
    return [*softmax, *cell * layers, embedding]


def _update(lm: LstmLm, layers: int, precision: Precision) -> list[Kernel]:
    # an iteration touches at most one embedding row a token, and only those are updated
    touched = np.minimum(lm.vocabulary, lm.batch * lm.sequence)
    tensors = (
        ("embedding", touched, lm.hidden, 1),
        ("lstm cell", 2 * lm.hidden, 4 * lm.hidden, layers),
        ("softmax", lm.hidden, lm.vocabulary, 1),
    )
    norms = [
        Kernel(
            f"{name} gradient norm", UPDATE, ON_WEIGHTS, 1, inner, cols, repeat,
            bytes_per_element=precision.operand, flop_per_element=2.0,
            rc=ALL_REDUCE, rc_cols=ROW_STATISTICS_COLS, cr=ALL_REDUCE, cr_cols=ROW_STATISTICS_COLS,
        )
        for name, inner, cols, repeat in tensors
    ]  # fmt: skip
    updates = [
        Kernel(
            f"{name} update", UPDATE, ON_WEIGHTS, 1, inner, cols, repeat,
            bytes_per_element=precision.update_traffic, flop_per_element=precision.update_flop,
        )
        for name, inner, cols, repeat in tensors
    ]  # fmt: skip
    return norms + updates


def build(lm: LstmLm, layers: int, training: bool, precision: Precision) -> Graph:
    """Return the compute graph of language models that share their number of layers."""
    kernels = _forward(lm, layers, precision.operand, training)
    if training:
        kernels += _backward(lm, layers, precision.operand) + _update(lm, layers, precision)
    return stack(kernels, lm.batch.size)
