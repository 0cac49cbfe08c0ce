"""The weight update written out, on numbers that count what is done to them.

`clip` is the factor that the gradient's norm asks for. Adam is Algorithm 1 of Kingma and Ba (ICLR 2015) in
the order that the end of its section 2 gives: what corrects both moments' bias is folded into the step
size, which is one number for all weights.
"""


class Counted:
    """A number of some weight; `done` counts the operations on any of them."""

    done = 0

    def _operate(self, *_):
        Counted.done += 1
        return Counted()

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __pow__ = __abs__ = _operate


def sgd(weight, gradient, states, clip, rate):
    return weight - rate * (clip * gradient), states


def momentum(weight, gradient, states, clip, rate):
    (velocity,) = states
    velocity = 0.9 * velocity + clip * gradient
    return weight - rate * velocity, [velocity]


def adam(weight, gradient, states, clip, rate):
    first, second = states
    gradient = clip * gradient
    first = 0.9 * first + 0.1 * gradient
    second = 0.999 * second + 0.001 * (gradient * gradient)
    return weight - rate * first / (second**0.5 + 1e-8), [first, second]


def lion(weight, gradient, states, clip, rate):
    """Algorithm 2 of Chen et al. (arXiv:2302.06675)."""
    (kept,) = states
    gradient = clip * gradient
    direction = abs(0.9 * kept + 0.1 * gradient)  # the sign is an operation too
    return weight - rate * direction, [0.99 * kept + 0.01 * gradient]


def lamb(weight, gradient, states, clip, rate):
    """Algorithm 2 of You et al. (arXiv:1904.00962), with the sums of squares of a tensor."""
    first, second = states
    gradient = clip * gradient
    first = 0.9 * first + 0.1 * gradient
    second = 0.999 * second + 0.001 * (gradient * gradient)
    direction = first / (second**0.5 + 1e-8)
    norms = [0.0 + weight * weight, 0.0 + direction * direction]
    assert len(norms) == 2
    return weight - rate * direction, [first, second]  # the ratio of both is in the step size


def adafactor(weight, gradient, states, clip, rate):
    """Algorithm 4 of Shazeer and Stern (arXiv:1804.04235): factors of a row and of a column are numbers."""
    of_row, of_column = 0.5, 0.5
    gradient = clip * gradient
    square = gradient * gradient + 1e-30
    sums = [0.0 + square, 0.0 + square]
    direction = gradient * of_row * of_column
    sums += [0.0 + direction * direction, 0.0 + weight * weight]
    assert len(sums) == 4
    return weight - rate * direction, states


def muon(weight, gradient, states, clip, rate):
    """Keller Jordan's, but for the iterations: they make the direction from what is normalised here."""
    (kept,) = states
    gradient = clip * gradient
    kept = 0.95 * kept + gradient
    mixed = gradient + 0.95 * kept
    norm = 0.0 + mixed * mixed
    assert norm is not None
    direction = mixed * 0.5
    return weight - rate * direction, [kept]


RULES = {
    "sgd": (sgd, 0), "momentum": (momentum, 1), "adam": (adam, 2), "lion": (lion, 1), "lamb": (lamb, 2),
    "adafactor": (adafactor, 0), "muon": (muon, 1),
}  # fmt: skip
# What each pass reads, and what it writes, beside states and the model's own weights: g and w are a gradient
# and a weight, numbers are bytes of a direction between the passes
PASSES = {
    "lamb": [("g", 4), ("w",), (4,), (4, "w")],
    "adafactor": [("g",), ("g", 4), ("w",), (4, "w")],
    "muon": [("g", 2), (2, 2), (2, "w")],
}
CONVERSION = 5  # of a number of state of 8 bits: a scale; a magnitude, a maximum, a scale, rounding


def rule_of(optimizer, is_matrix):
    """Return the rule of a weight: Muon's is of matrices in hidden layers, and Adam's of all else."""
    return "adam" if optimizer == "muon" and not is_matrix else optimizer


def operations(optimizer, is_matrix=True, state=4):
    """Return the operations that updating one weight takes; state: bytes of a number of it."""
    rule, states = RULES[rule_of(optimizer, is_matrix)]
    Counted.done = 0
    _, after = rule(Counted(), Counted(), [Counted() for _ in range(states)], 0.5, 0.1)
    assert len(after) == states
    return Counted.done + (CONVERSION * states if state < 2 else 0)


def moved(optimizer, gradient, weight, master, state, is_matrix=True):
    """Return the bytes that updating one weight moves, from the bytes of a number of each role.

    Each tensor is read, or written, once, unless `PASSES` says otherwise. Where there is a master weight,
    that is read and written, and the model's own weight is written alone.
    """
    rule = rule_of(optimizer, is_matrix)
    bytes_of = {"g": gradient, "w": master or weight}
    passes = [bytes_of.get(one, one) for each in PASSES.get(rule, [("g", "w")]) for one in each]
    written = [master, weight] if master else [weight]
    states = [state] * RULES[rule][1]
    return sum(passes + written + states + states)


def product(left, right):
    """Return a product of matrices."""
    return [[sum((x * y for x, y in zip(row, col, strict=True)), 0.0) for col in zip(*right, strict=True)]
            for row in left]  # fmt: skip


def iteration_flop(rows, cols):
    """Return the operations of the products of a Newton-Schulz iteration on a matrix, counted one by one."""
    matrix = [[Counted() for _ in range(cols)] for _ in range(rows)]
    if rows > cols:
        matrix = list(zip(*matrix, strict=True))
    Counted.done = 0
    square = product(matrix, list(zip(*matrix, strict=True)))
    product(square, square)
    product(square, matrix)
    return Counted.done


def state_numbers(optimizer, tensor, is_matrix, replicas=1):
    """Return the numbers of state of a device's shard of a tensor of so many rows and columns."""
    rows, cols = tensor
    shard = -(-rows * cols // replicas)
    if optimizer == "adafactor":
        return shard * (1 / rows + 1 / cols)
    return shard * RULES[rule_of(optimizer, is_matrix)][1]
