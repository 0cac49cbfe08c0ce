"""Training on pairs (DPO, arXiv:2305.18290, figure of equation 7), counted pass by pass."""

FORWARD, BACKWARD = 1, 2
"""Passes of products: forward one, backward two: the gradients of inputs and of weights."""


def passes(method, frozen=False, recomputes=False):
    """Return how many passes over its weights each sequence of a pair makes.

    frozen: the weights are a base beside adapters, without gradients of their own.
    """
    policy = FORWARD + (BACKWARD - 1 if frozen else BACKWARD)
    if recomputes:
        policy += FORWARD
    return policy + (FORWARD if method == "dpo" else 0)


def copies(method, frozen=False):
    """Return how often the weights are in memory, beside masters and states."""
    return 2 if method == "dpo" and not frozen else 1
