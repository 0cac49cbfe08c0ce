"""Two-batch overlap: half of an iteration's tokens are computed while the other half is exchanged.

Servers whose attention ranks share experts cut an iteration in two (`enable_two_batch_overlap` of SGLang,
`enable_dbo` of vLLM; DeepSeek-V3, arXiv:2412.19437, section 3.4). While tokens of one half are dispatched or
combined, the other half computes: an iteration takes twice the longer of both. Weights are read twice. The
core of attention, which is timed separately, hides nothing: the estimate is cautious where it is long.
"""

from __future__ import annotations

import numpy as np

from fastflow.core.dedupe import unique_rows
from fastflow.core.tables import Inputs, Ints
from fastflow.performance.serving.passes.interpolate import interpolate_at
from fastflow.performance.serving.passes.parts import Part, Passes
from fastflow.physics.workload.models.transformer.serving_pass import TOKENS_PART
from fastflow.schema.servers import TWO_BATCHES


def with_two_batches(inputs: Inputs, ranks: Ints, passes: Passes, server: Ints) -> tuple[Passes, Ints]:
    """Return the passes of servers with and without overlap, and the row of each point in them.

    inputs, ranks: of points, (points,); ranks: of attention; server: the row of each in the passes.
    """
    overlaps = inputs[TWO_BATCHES] & (ranks > 1)
    if not overlaps.any():
        return passes, server
    first, inverse = unique_rows([server, overlaps], server.size)
    passes = passes.of_servers(server[first])
    rows, whole = np.flatnonzero(overlaps[first]), passes.parts[TOKENS_PART]
    cut = _in_two(whole, passes.axes.tokens, rows)
    layers = Part(*(column.copy() for column in whole))
    for column, halves in zip(layers, cut, strict=True):
        column[rows, 1:] = halves[:, 1:]  # a single token is not cut
    layers.launches[rows, 0] *= 2.0  # of which those of all sizes are known
    times = passes.times._replace(shared=layers.time, experts=layers.experts)
    return passes._replace(times=times, parts={**passes.parts, TOKENS_PART: layers}), inverse


def _in_two(whole: Part, tokens: Ints, rows: Ints) -> Part:
    """Return the layers of some servers with iterations in two halves, (rows, tokens, ...)."""
    server, sizes = np.repeat(rows, tokens.size), np.tile(tokens / 2.0, rows.size)
    halves = (interpolate_at(column, (tokens,), server, (sizes,)) for column in whole)
    both = Part(*(2.0 * half.reshape(rows.size, tokens.size, *half.shape[1:]) for half in halves))
    hidden = np.minimum(both.exchange, both.time - both.exchange)
    by, time = both.by.copy(), both.time - hidden
    by[..., -1] -= hidden
    share = time / both.time
    return both._replace(
        time=time, exchange=both.exchange - hidden, by=by, of_model=both.of_model * share[..., None]
    )
