"""Messages of data parallelism: gradients of several tensors are summed together, weights gathered together.

Megatron-Core's and PyTorch's DistributedDataParallel collect gradients in buckets, each of which is one
collective (--ddp-bucket-size of NVIDIA/Megatron-LM; bucket_cap_mb, PyTorch Distributed, arXiv:2006.15704,
section 4.2). A tensor then takes its share of the time of its bucket: many small tensors pay for the latency
of one message.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fastflow.core.tables import Bools, Floats, Inputs, Ints
from fastflow.physics.parallelism.sharding.local_graph import CrossEdges, Supergraph
from fastflow.physics.workload.graph import UPDATE, Graph
from fastflow.physics.workload.precision import precision

KEY = "parallel.ddp_bucket_size"


class Messages(NamedTuple):
    """Bytes of the messages that exchanges are a part of, (kernels,); None: each tensor is a message."""

    weights: Floats | None = None
    gradients: Floats | None = None


def has_buckets(inputs: Inputs) -> bool:
    """Say whether some point has messages of several tensors."""
    return KEY in inputs and bool((inputs[KEY] > 0.0).any())


def message_bytes(
    inputs: Inputs, graph: Graph, edges: CrossEdges, element: Floats, stages: Ints, rows: Bools
) -> Floats:
    """Return the bytes of the message that each kernel's exchange is a part of, (kernels,).

    element: bytes of a parameter in it, (points,); stages: of the pipeline, (points,), each of which has
    messages of its own; rows: kernels whose exchanges share messages, with those of the same devices,
    (kernels,).
    """
    launches = graph.launches.repeat * graph.launches.times
    group = graph.point * (int(edges.group.max(initial=0)) + 1) + edges.group
    of_stage = np.bincount(group, weights=np.where(rows, edges.bytes * launches, 0.0))[group]
    of_stage /= np.maximum(stages, 1)[graph.point]
    bucket = np.minimum((inputs[KEY] * element)[graph.point], of_stage)
    return np.where(rows, np.maximum(edges.bytes, bucket), edges.bytes)


def messages_of(inputs: Inputs, graph: Graph, shards: Supergraph, stages: Ints) -> Messages:
    """Return the messages of gradients, and of weights that are gathered after their update.

    stages: of the pipeline, (points,).
    """
    if not has_buckets(inputs):
        return Messages()
    numbers = precision(inputs)
    updated, every = graph.phase == UPDATE, np.ones(graph.phase.size, dtype=np.bool_)
    return Messages(
        weights=message_bytes(inputs, graph, shards.fetch, numbers.weight, stages, updated),
        gradients=message_bytes(inputs, graph, shards.gradient, numbers.gradient, stages, every),
    )
