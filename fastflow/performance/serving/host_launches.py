"""Kernels that a server's host launches one by one, where no captured graph has them.

Captured graphs (CUDA graphs) hold iterations that only decode: an iteration with prompts takes at least the
time in which the host launches its kernels (`server.eager_launch_time`), and so does one that decodes a
number of requests of which no graph was captured.
"""

from __future__ import annotations

import numpy as np

from fastflow.core.tables import Floats, Inputs, Ints
from fastflow.performance.serving.passes.captured_graphs import Graphs
from fastflow.performance.serving.passes.parts import Passes
from fastflow.physics.workload.models.transformer.serving_pass import (
    DECODE,
    HEAD_PART,
    PREFILL,
    TOKENS_PART,
)
from fastflow.schema.servers import CUDA_GRAPHS

EAGER = "server.eager_launch_time"
_ANY = 1 << 40  # requests


def eager_s(inputs: Inputs, passes: Passes, server: Ints) -> Floats:
    """Return the time in which a host launches the kernels of a pass with a prompt [s], (points,).

    server: the row of each point in the passes.
    """
    parts = passes.parts
    launches = parts[TOKENS_PART].launches[server, 0] + parts[PREFILL].launches[server, 0, 0]
    eager: Floats = inputs[EAGER] * launches
    return eager


def graphs_of(inputs: Inputs, passes: Passes, server: Ints) -> Graphs:
    """Return the captured graphs of servers, and what their hosts launch without; server: as of `eager_s`."""
    layers, head, decode = (passes.parts[name] for name in (TOKENS_PART, HEAD_PART, DECODE))
    kernels = layers.launches[server, 0] + head.launches[server, 0] + decode.launches[server, 0, 0]
    largest = inputs["server.cuda_graph_max_bs"]
    return Graphs(
        step=np.where(inputs[CUDA_GRAPHS], inputs["server.cuda_graph_interval"], 0),
        largest=np.where(largest > 0, largest, _ANY),
        pads=inputs["server.cuda_graph_padding"],
        launch_s=inputs[EAGER] * kernels,
    )
