"""Kernels that a server's host launches one by one, where no captured graph has them.

Captured graphs (CUDA graphs) hold iterations that only decode: an iteration with prompts takes at least the
time in which the host launches its kernels (`server.eager_launch_time`). Where a server captures no graphs
(`server.cuda_graphs`), each iteration takes at least the time of its launches.
"""

from __future__ import annotations

import numpy as np

from fastflow.core.dedupe import unique_rows
from fastflow.core.tables import Floats, Inputs, Ints
from fastflow.performance.serving.passes.tabulate import Passes
from fastflow.physics.workload.models.transformer.serving_pass import (
    DECODE,
    HEAD_PART,
    PREFILL,
    TOKENS_PART,
)
from fastflow.schema.serving import CUDA_GRAPHS

EAGER = "server.eager_launch_time"


def eager_s(inputs: Inputs, passes: Passes, server: Ints) -> Floats:
    """Return the time in which a host launches the kernels of a pass with a prompt [s], (points,).

    server: the row of each point in the passes.
    """
    parts = passes.parts
    launches = parts[TOKENS_PART].launches[server, 0] + parts[PREFILL].launches[server, 0, 0]
    eager: Floats = inputs[EAGER] * launches
    return eager


def with_launches(inputs: Inputs, passes: Passes, server: Ints) -> tuple[Passes, Ints]:
    """Return the passes of servers with and without captured graphs, and the row of each point in them.

    What launches take beyond the kernels of a single token is added to the layers' time of all sizes where
    these take less. inputs: of points; server: the row of each in the passes, (points,).
    """
    is_eager = ~inputs[CUDA_GRAPHS]
    if not is_eager.any():
        return passes, server
    launch_s = np.where(is_eager, inputs[EAGER], 0.0)
    first, inverse = unique_rows([server, launch_s], server.size)
    passes = passes.of_servers(server[first])
    parts, times = passes.parts, passes.times
    layers, head, decode = (parts[name] for name in (TOKENS_PART, HEAD_PART, DECODE))
    kernels = layers.launches[:, 0] + head.launches[:, 0] + decode.launches[:, 0, 0]
    least = launch_s[first] * kernels - head.time[:, 0] - decode.time[:, 0, 0]
    added = np.maximum(least[:, None] - layers.time, 0.0)
    by = layers.by.copy()
    by[..., passes.limiters.index("launch")] += added
    layers = layers._replace(time=layers.time + added, by=by)
    return passes._replace(
        times=times._replace(shared=times.shared + added), parts={**parts, TOKENS_PART: layers}
    ), inverse
