"""Recurrent cells written out from their equations (cuDNN's documentation of its RNN modes), one element.

The gradients are derived by hand; numbers that count the operations done with them say what a cell costs,
and the arguments and results what it reads and writes. Biases are one a gate and lie in the cache.
"""

from math import exp, tanh


class Number:
    """A number that counts the operations that made it, and those that made what it was made of."""

    done = 0

    def __init__(self, value):
        self.value = float(value)

    def _of(self, value):
        Number.done += 1
        return Number(value)

    def __add__(self, other):
        return self._of(self.value + other.value)

    def __sub__(self, other):
        return self._of(self.value - other.value)

    def __mul__(self, other):
        return self._of(self.value * other.value)

    def sigmoid(self):
        return self._of(1 / (1 + exp(-self.value)))

    def tanh(self):
        return self._of(tanh(self.value))

    def relu(self):
        return self._of(max(self.value, 0.0))

    def where_positive(self, other):
        return self._of(other.value if self.value > 0 else 0.0)


ONE = Number(1)

# Of each cell: forward (products of the gates, x, carried from the step before, biases) gives (h, carried to
# the step after, kept for the backward pass); backward (kept, carried before, h, gradients of h from above
# and from the step after's product, gradient carried) gives gradients of (products, x, carried).


def relu_forward(p, x, carried, b):
    return (p[0] + x + b[0]).relu(), (), ()


def relu_backward(kept, carried, h, above, after, gradient):
    d = h.where_positive(above + after)
    return (d,), d, ()


def tanh_forward(p, x, carried, b):
    return (p[0] + x + b[0]).tanh(), (), ()


def tanh_backward(kept, carried, h, above, after, gradient):
    d = (above + after) * (ONE - h * h)
    return (d,), d, ()


def gru_forward(p, x, carried, b):
    (before,) = carried  # h of the step before
    r = (p[0] + x + b[0]).sigmoid()
    i = (p[1] + x + b[1]).sigmoid()
    m = p[2] + b[2]
    n = (x + r * m).tanh()
    return (ONE - i) * n + i * before, (), (r, i, n, m)


def gru_backward(kept, carried, h, above, after, gradient):
    (r, i, n, m), (before,), (through,) = kept, carried, gradient
    d = above + after + through
    dn = d * (ONE - i) * (ONE - n * n)
    di = d * (before - n) * (i * (ONE - i))
    dr = dn * m * (r * (ONE - r))
    return (dr, di, dn * r), dr + di + dn, (d * i,)


def lstm_forward(p, x, carried, b):
    (before,) = carried  # c of the step before
    i, f, o = ((p[gate] + x + b[gate]).sigmoid() for gate in (0, 1, 2))
    g = (p[3] + x + b[3]).tanh()
    c = f * before + i * g
    return o * c.tanh(), (c,), (i, f, o, g)


def lstm_backward(kept, carried, h, above, after, gradient):
    (i, f, o, g, c), (before,), (through,) = kept, carried, gradient
    d = above + after
    t = c.tanh()
    dc = through + d * o * (ONE - t * t)
    di = dc * g * (i * (ONE - i))
    df = dc * before * (f * (ONE - f))
    do = d * t * (o * (ONE - o))
    dg = dc * i * (ONE - g * g)
    return (di, df, do, dg), di + df + do + dg, (dc * f,)


GATES = {"rnn_relu": 1, "rnn_tanh": 1, "gru": 3, "lstm": 4}
CARRIES = {"rnn_relu": 0, "rnn_tanh": 0, "gru": 1, "lstm": 1}
FORWARD = {"rnn_relu": relu_forward, "rnn_tanh": tanh_forward, "gru": gru_forward, "lstm": lstm_forward}
BACKWARD = {"rnn_relu": relu_backward, "rnn_tanh": tanh_backward, "gru": gru_backward, "lstm": lstm_backward}


def run_forward(cell, p, x, carried, b):
    """Return h, what is carried on, what is kept, and operations and moves: all floats."""
    Number.done = 0
    numbers = [Number(v) for v in p], Number(x), [Number(v) for v in carried], [Number(v) for v in b]
    h, on, kept = FORWARD[cell](*numbers)
    moved = len(p) + 1 + len(carried) + 1 + len(on) + len(kept)  # in: p, x, carried; out: h, carried, kept
    kept = (*kept, *on)  # what is carried on is read again too, but for h, which the product keeps
    return h.value, [v.value for v in on], [v.value for v in kept], Number.done, moved


def run_backward(cell, kept, carried, h, above, after, gradient):
    """Return the gradients of products, x and what was carried, and operations and moves."""
    Number.done = 0
    lists = [[Number(v) for v in values] for values in (kept, carried, gradient)]
    dp, dx, through = BACKWARD[cell](lists[0], lists[1], Number(h), Number(above), Number(after), lists[2])
    reads_h = cell.startswith("rnn")  # the others have all that they need in what they kept
    read = len(kept) + len(carried) + reads_h + 2 + len(gradient)
    moved = read + len(dp) + 1 + len(through)
    return [v.value for v in dp], dx.value, [v.value for v in through], Number.done, moved


def per_element(cell):
    """Return operations and moves of the forward and of the backward pass, and elements kept beside h."""
    gates, carried = GATES[cell], [0.3] * CARRIES[cell]
    h, _, kept, flop, moves = run_forward(cell, [0.1] * gates, 0.2, carried, [0.0] * gates)
    *_, back_flop, back_moves = run_backward(cell, kept, carried, h, 1.0, 1.0, [1.0] * CARRIES[cell])
    return flop, moves, back_flop, back_moves, len(kept)


def launches(cell, hidden, batch, sequence, training, part="all"):
    """Return every launch in turn: its part of the layer, its operations, and the bytes of a pass over 1-byte
    elements (None of a GEMM)."""
    flop, moves, back_flop, back_moves, _ = per_element(cell)
    wide = GATES[cell] * hidden
    found = []
    for _ in range(sequence):
        found.append(("forward", 2 * batch * hidden * wide, None))
        found.append(("forward", batch * hidden * flop, batch * hidden * moves))
    for _ in range(sequence):
        found.append(("backward_inputs", batch * hidden * back_flop, batch * hidden * back_moves))
        found.append(("backward_inputs", 2 * batch * wide * hidden, None))
    found.append(("backward_weights", 2 * hidden * (batch * sequence) * wide, None))
    if part == "all":
        return found if training else [launch for launch in found if launch[0] == "forward"]
    return [launch for launch in found if launch[0] == part]


def memory(cell, hidden, batch, sequence):
    """Return weights, and activations kept for the backward pass, in elements."""
    kept = per_element(cell)[-1]
    return GATES[cell] * hidden * hidden, batch * sequence * hidden * (1 + kept)
