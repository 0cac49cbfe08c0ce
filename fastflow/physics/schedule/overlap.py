"""Kernels and an exchange that run at the same time: how each of them slows the other.

A collective occupies bundles, one for each of its channels, which the kernels that run with it do not have
(NVIDIA/nccl issue 689). So kernels run at a share 1 - taken of their pace while the collective runs, and at
their full pace before and after; the collective is as fast as it is alone. Both are done no later than if
they ran one after the other: an exchange of X seconds delays kernels by taken * X at most.
"""

from __future__ import annotations

from fastflow.core.jit import lean_kernel

MAX_TAKEN = 0.5
"""Largest share of a chip's bundles that collectives take, where it has few."""


@lean_kernel
def slowed_time(busy: float, exchanged: float, taken: float) -> float:
    """Return how long kernels of `busy` [s] take where an exchange of `exchanged` [s] starts with them [s].

    taken: share of the bundles that the exchange occupies.
    """
    return busy + taken * min(exchanged, busy / (1.0 - taken))


@lean_kernel
def exposed_time(busy: float, exchanged: float, taken: float) -> float:
    """Return the exposed time [s] of an exchange that starts together with kernels.

    busy, exchanged: their times alone [s]. Until both are done: `slowed_time` or the exchange, whichever is
    longer, less `busy`.
    """
    return max(taken * exchanged, exchanged - busy)
