"""Kernels and an exchange that run at the same time: what each of them takes from the other.

A collective has bundles of its own, one for each of its channels, which the kernels that run with it do
not have (NVIDIA/nccl issue 689). So kernels go on at a share 1 - taken of their pace while it is on its way,
and at their full pace before and after; the exchange is as fast as it is alone. Both are done no later than
if one had waited for the other: an exchange of X seconds keeps kernels back by taken * X at most.
"""

from __future__ import annotations

from fastflow.core.jit import lean_kernel

MOST_TAKEN = 0.5
"""Of the bundles of a chip that has few, which collectives take."""


@lean_kernel
def slowed(busy: float, exchanged: float, taken: float) -> float:
    """Return how long kernels of `busy` [s] take where an exchange of `exchanged` [s] starts with them [s].

    taken: share of the bundles that the exchange has.
    """
    return busy + taken * min(exchanged, busy / (1.0 - taken))


@lean_kernel
def waited(busy: float, exchanged: float, taken: float) -> float:
    """Return how much longer than kernels alone these take with an exchange that starts with them [s].

    Until both are done: `slowed` or the exchange, whichever is longer, less `busy`.
    """
    return max(taken * exchanged, exchanged - busy)
