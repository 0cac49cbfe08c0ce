"""Hand formulas of the LSTM language model (Section 8, 9; issue 2, item 5)."""

from tests.naive import optimizers

# A cell's pass over each element of h: four biases added, five activations (four gates and tanh of
# c), f c + i g (three) and o tanh(c) (one).
CELL = 4 + 5 + 3 + 1
# Its backward, each element of h: do, dc, di, dg, df, dc' and the five derivatives, as the model counts it.
CELL_BACKWARD = 24
LOSS, LOSS_BACKWARD = 4, 3  # an element of the logits: max, subtract, exp, sum; scale, subtract, scale
NORM = 2  # a weight: square and add


def parameters(hidden, vocabulary, layers):
    """Embedding table, four gates on [x, h] in each layer, projection on the vocabulary; no biases."""
    return vocabulary * hidden + layers * 4 * hidden * (hidden + hidden) + hidden * vocabulary


def gemm_flop(hidden, batch, vocabulary, layers, sequence):
    """Forward GEMMs: the cells of every step, and the projection; two operations a multiply-add."""
    cells = layers * sequence * 2 * batch * (2 * hidden) * (4 * hidden)
    return cells + 2 * (batch * sequence) * hidden * vocabulary


def flop(hidden, batch, vocabulary, layers, sequence, training, optimizer="sgd"):
    """All operations of one iteration; a training GEMM has two more of the same size behind it."""
    tokens = batch * sequence
    forward = gemm_flop(hidden, batch, vocabulary, layers, sequence)
    forward += layers * tokens * hidden * CELL + tokens * vocabulary * LOSS
    if not training:
        return forward
    backward = 2 * gemm_flop(hidden, batch, vocabulary, layers, sequence)
    backward += layers * tokens * hidden * CELL_BACKWARD + tokens * vocabulary * LOSS_BACKWARD
    backward += tokens * hidden  # a token's row is added to the table's gradient
    # only embedding rows that a token touched are clipped and updated
    moved = min(vocabulary, tokens) * hidden + layers * 8 * hidden * hidden + hidden * vocabulary
    return forward + backward + moved * (NORM + optimizers.operations(optimizer))


def kept(hidden, rows, tokens, vocabulary, layers, sequence):
    """Activations kept for the backward pass, in elements.

    rows: sequences of a device. Four gates, c and h of every cell and step; the embedding and the
    logits of every token.
    """
    return rows * sequence * layers * (4 + 1 + 1) * hidden + tokens * (hidden + vocabulary)
