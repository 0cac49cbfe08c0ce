"""What the last cache holds of a product's tensors when a benchmark repeats the product (6.1).

A benchmark turns through copies of the weights, as many as exceed the cache, but at most some number
(`model.copies`). So many small weights fit in a large cache, and stay in it. In use, other layers come
between two runs of a product, and nothing stays: copies is 0.

- A cache that replaces what was used longest ago holds a tensor until its next use, if it has room for all
  bytes that are used up to there. Addresses are hashed over its sets, some of which are full before others:
  around its capacity it holds a part.
- Where a cache has partitions, each has a copy of what all bundles read (`chip.memory.l2.partitions`). Each
  line has a partition of its own, beside the memory that it comes from, and further ones have copies for
  their bundles (NVIDIA A100 architecture whitepaper). Rows of A that few tiles of C read are in few: those of
  the readers, and their own. So one reader leaves room for more than half of the cache. Weights that a
  benchmark turns through show no such effect (no source says why).
- What a product writes does not stay in a cache with partitions: products with large C take the time of main
  memory on A100, H100 and B200, but not on L40S, whose cache is one (measured; no source says why).
"""

from __future__ import annotations

import numpy as np

from fastflow.core.jit import kernel
from fastflow.core.tables import Floats

COPIES = "model.copies"
SPREAD = 0.15
"""Share of a cache's capacity below which it holds all used bytes, and above which none stay. Calibrated on
9,000 products on L40S (ai-dynamo/aiconfigurator@095f58a): of copies of 96 MiB in a cache of 96, half is held,
of 108 little."""


@kernel
def hit_rate(used: float, cache: float) -> float:
    """Return the share of a tensor that is held until its next use; used: bytes up to there, its own too."""
    return float(min(1.0, max(0.0, 0.5 + (1.0 - used / cache) / (2.0 * SPREAD))))


@kernel
def copies_of_a_line(partitions: float, readers: float) -> float:
    """Return how many partitions hold a line on average; readers: bundles that read it, in any partition."""
    reading = min(partitions, readers)
    return float(reading + 1.0 - reading / partitions)


@kernel
def hit_rates(
    copies: float, rows: float, columns: float, output: float, cache: float, part: float, readers: float
) -> tuple[float, float, float]:
    """Return the shares of A, B and C of a product that the last cache holds from the run before.

    copies: of B, at most; 0: other kernels come between. rows, columns, output: bytes of A, B and C. cache:
    all its bytes, 0 where bundles share none; part: of it, for data that all bundles read [B]. readers: of
    each row of A.
    """
    if copies <= 0.0 or cache <= 0.0 or columns <= 0.0:
        return 0.0, 0.0, 0.0
    turns = max(1.0, min(copies, float(np.ceil(cache / columns))))
    partitions = max(1.0, np.round(cache / part))
    rows *= copies_of_a_line(partitions, readers) / partitions
    each = hit_rate(rows + columns + output, part)
    return each, hit_rate(rows + turns * columns + output, part), each if part >= cache else 0.0


@kernel
def hit_rates_of_passes(
    copies: Floats, read: Floats, columns: Floats, written: Floats, cache: Floats, part: Floats
) -> Floats:
    """Return the share that the last cache holds of what passes before products read, (kernels,).

    copies, columns: of the product, cache, part: as in `hit_rates`. read: by the pass, written: by all
    kernels until the next run [B].
    """
    shares = np.zeros(read.size)
    for row in range(read.size):
        shares[row], _, _ = hit_rates(
            copies[row], read[row], columns[row], written[row], cache[row], part[row], np.inf
        )
    return shares


@kernel
def hit_rates_of_layers(copies: Floats, used: Floats, cache: Floats, part: Floats) -> Floats:
    """Return the share of all bytes of layers that the last cache holds from the run before, (kernels,).

    copies: 0: other kernels come between; used: by the layer [B]; cache, part: as in `hit_rates`. A cache
    with partitions holds nothing: on A100, H100 and B200 attention's constants are calibrated without it.
    """
    shares = np.zeros(used.size)
    for row in range(used.size):
        if copies[row] > 0.0 and cache[row] > 0.0 and part[row] >= cache[row]:
            shares[row] = hit_rate(used[row], part[row])
    return shares
