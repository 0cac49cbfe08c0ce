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

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __pow__ = _operate


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


RULES = {"sgd": (sgd, 0), "momentum": (momentum, 1), "adam": (adam, 2)}


def operations(optimizer):
    """Return the operations that updating one weight takes."""
    rule, states = RULES[optimizer]
    Counted.done = 0
    _, after = rule(Counted(), Counted(), [Counted() for _ in range(states)], 0.5, 0.1)
    assert len(after) == states
    return Counted.done


def moved(optimizer, gradient, weight, master, state):
    """Return the bytes that updating one weight moves, from the bytes of a number of each role.

    Each tensor is read, or written, once. Where there is a master weight, that is read and written, and the
    model's own weight is written alone.
    """
    read = [gradient, master or weight]
    written = [master, weight] if master else [weight]
    states = [state] * RULES[optimizer][1]
    return sum(read + written + states + states)
