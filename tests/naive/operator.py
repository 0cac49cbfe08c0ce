"""Operators by their definitions, run on numbers that count what is done with them."""

import math


class Counted:
    """A number; additions, products, quotients, comparisons and elementary functions count one each."""

    done = 0

    def __init__(self, value):
        self.value = value

    @classmethod
    def of(cls, value):
        cls.done += 1
        return cls(value)

    def __add__(self, other):
        return Counted.of(self.value + plain(other))

    def __sub__(self, other):
        return Counted.of(self.value - plain(other))

    def __mul__(self, other):
        return Counted.of(self.value * plain(other))

    def __truediv__(self, other):
        return Counted.of(self.value / plain(other))

    def __neg__(self):  # a sign is no operation
        return Counted(-self.value)


def plain(x):
    return x.value if isinstance(x, Counted) else x


def apply(function, x):
    return Counted.of(function(plain(x)))


def total(row):
    found = row[0]
    for x in row[1:]:
        found = found + x
    return found


def largest(row):
    found = row[0]
    for x in row[1:]:
        found = Counted.of(max(plain(found), plain(x)))
    return found


def softmax(row):
    top = largest(row)
    raised = [apply(math.exp, x - top) for x in row]
    below = total(raised)
    return [x / below for x in raised]


def log_softmax(row):
    top = largest(row)
    shifted = [x - top for x in row]
    below = apply(math.log, total([apply(math.exp, x) for x in shifted]))
    return [x - below for x in shifted]


def layernorm(row):
    mean = total(row) / len(row)
    centred = [x - mean for x in row]
    variance = total([x * x for x in centred]) / len(row)
    scale = apply(lambda v: 1.0 / math.sqrt(v + 1e-5), variance)
    return [x * scale * 1.5 + 0.5 for x in centred]  # a gain and a bias for each column


def rmsnorm(row):
    scale = apply(lambda v: 1.0 / math.sqrt(v + 1e-5), total([x * x for x in row]) / len(row))
    return [x * scale * 1.5 for x in row]


def rmsnorm_residual(a, b):
    added = [x + y for x, y in zip(a, b, strict=True)]
    return rmsnorm(added) + added


def rotary(row):
    """Turn pairs, one from each half of the row, by some angle each."""
    half = len(row) // 2
    pairs = list(zip(row[:half], row[half:], strict=True))
    return [x * 0.8 - y * 0.6 for x, y in pairs] + [y * 0.8 + x * 0.6 for x, y in pairs]


def sampling(row):
    drawn, reached, found = 0.7, Counted(0.0), []
    for column, share in enumerate(softmax([x / 0.9 for x in row])):
        reached = reached + share
        if plain(Counted.of(float(plain(reached) >= drawn))) and not found:
            found.append(Counted(float(column)))
    return found


def _one(x):
    return Counted(1.0) + x


# a function of a row for each input, and how many tensors its gradient's kernel moves: dy and what the
# derivative is made of in, a gradient for each input out
ROWS = {
    "elementwise": (lambda a: [apply(math.sqrt, abs_of(x)) for x in a], 3),  # dy, x; dx
    "add": (lambda a, b: [x + y for x, y in zip(a, b, strict=True)], 0),  # da = db = dy
    "sub": (lambda a, b: [x - y for x, y in zip(a, b, strict=True)], 2),  # da = dy; dy; db
    "mul": (lambda a, b: [x * y for x, y in zip(a, b, strict=True)], 5),  # dy, a, b; da, db
    "div": (lambda a, b: [x / y for x, y in zip(a, b, strict=True)], 5),
    "pow": (lambda a, b: [Counted.of(abs(x.value) ** y.value) for x, y in zip(a, b, strict=True)], 5),
    "exp": (lambda a: [apply(math.exp, x) for x in a], 3),  # dy, y; dx
    "relu": (lambda a: [Counted.of(max(x.value, 0.0)) for x in a], 3),  # dy, y; dx
    "tanh": (lambda a: [apply(math.tanh, x) for x in a], 3),  # dy, y; dx
    "sigmoid": (lambda a: [Counted(1.0) / _one(apply(math.exp, -x)) for x in a], 3),  # dy, y; dx
    "silu": (lambda a: [x / _one(apply(math.exp, -x)) for x in a], 3),  # dy, x; dx
    "gelu": (lambda a: [x * 0.5 * _one(apply(math.erf, x / math.sqrt(2.0))) for x in a], 3),  # dy, x; dx
    "softmax": (softmax, 3),  # dy, y; dx
    "log_softmax": (log_softmax, 3),  # dy, y; dx
    "layernorm": (layernorm, 3),  # dy, x; dx
    "rmsnorm": (rmsnorm, 3),  # dy, x; dx
    "rmsnorm_residual": (rmsnorm_residual, 4),  # dy, gradient of the sum, sum; da = db
    "rotary": (rotary, 2),  # dy; dx
    "swiglu": (lambda a, b: [x / _one(apply(math.exp, -x)) * y for x, y in zip(a, b, strict=True)], 5),
    "geglu": (
        lambda a, b: [
            x * 0.5 * _one(apply(math.erf, x / math.sqrt(2.0))) * y for x, y in zip(a, b, strict=True)
        ],
        5,  # dy, a, b; da, db
    ),
    "sampling": (sampling, 0),  # a token has no gradient
}
WRITES = {"rmsnorm_residual": 2, "sampling": 0}  # others one


def abs_of(x):
    return Counted(abs(x.value))


def run(op, inputs):
    """Return an operator's output for rows of numbers, and the operations that it took."""
    Counted.done = 0
    out = ROWS[op][0](*([Counted(x) for x in row] for row in inputs))
    return [x.value for x in out], Counted.done


def tensors(op):
    """Return how many tensors an operator reads and writes."""
    return ROWS[op][0].__code__.co_argcount + WRITES.get(op, 1)
