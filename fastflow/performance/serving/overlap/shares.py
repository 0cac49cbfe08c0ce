"""How fast operations run that share a device, by the share of each.

An operation that runs alone has the whole device. Of several, attention and exchanges have stated shares R,
and products have the rest. Products then run at R of their own speed. A kernel that memory or links bound
keeps more of its speed than its share: P(R), from measured pairs of kernels.
"""

from __future__ import annotations

import numpy as np

from fastflow.core.tables import Bools, Floats

COMPUTE, MEMORY, NETWORK = range(3)
"""Kinds of operations: products, attention of decoding requests, exchanges."""
NUM_KINDS = 3
NUM_SETS = 1 << NUM_KINDS

ATTENTION_SPEED = (0.0, 0.1, 0.2, 0.4, 0.8, 0.9, 1.0), (0.0, 0.2, 0.3, 0.8, 0.85, 0.95, 1.0)
"""R and P of decode attention on A100, over its own speed: NanoFlow, arXiv:2408.12757, table 3 (GEMV); P of
0.4 from section 4.1.4. The standard deviation over shapes is below 5% of the mean, section 4.1.1."""
NETWORK_SPEED = (0.0, 0.1, 0.2, 0.8, 0.9, 1.0), (0.0, 0.3, 0.5, 0.9, 1.0, 1.0)
"""R and P of all-reduces and all-gathers on A100, over their own speed: the same table (Network)."""
MULTIMEM_SPEED = (0.0, 2.0, 4.0, 8.0), (0.0, 0.65, 0.98, 1.0)
"""SMs, and P of a multimem all-reduce of 512 MiB on eight H100, over that with 16 SMs (3,006, 1,990, 1,959
and 1,957 us with 2, 4, 8 and 16 SMs): microsoft/tokenweave, artifact/csvs/figure_7.csv; arXiv:2505.11329."""


def speeds_of_sets(attention: Floats, sms: Floats, total: Floats, is_multimem: Bools) -> Floats:
    """Return the speed of each kind in each set of kinds that run together, (points, sets, kinds).

    attention: share R of decode attention; sms: SMs that exchanges take, of a total; is_multimem: whether
    exchanges are multimem kernels, whose speed depends on SMs alone. A set is a sum of `1 << kind`. Speeds
    are over that of the operation alone; (points,) each.

    >>> import numpy as np
    >>> one = np.ones(1)
    >>> speeds_of_sets(0.4 * one, 27.0 * one, 108.0 * one, one < 1)[0, 3].tolist()  # products and attention
    [0.6, 0.8, 0.0]
    """
    network = np.clip(sms / total, 0.0, 1.0)
    attention = np.minimum(attention, 1.0 - network)
    of_network = np.where(is_multimem, np.interp(sms, *MULTIMEM_SPEED), np.interp(network, *NETWORK_SPEED))
    speeds = np.zeros((attention.size, NUM_SETS, NUM_KINDS))
    for kinds in range(1, NUM_SETS):
        products, attends, exchanges = (kinds >> kind & 1 for kind in range(NUM_KINDS))
        taken = attention * (attends and products) + network * exchanges
        rest = np.maximum(1.0 - taken, 0.0)
        if products:
            speeds[:, kinds, COMPUTE] = rest if attends or exchanges else 1.0
        if attends:
            share = attention if products else rest
            speeds[:, kinds, MEMORY] = np.interp(share, *ATTENTION_SPEED)
        if exchanges:
            speeds[:, kinds, NETWORK] = of_network if products or attends else 1.0
    return speeds
