"""What a device has during some kernels alone: full copies of sharded tensors, and a recomputed layer."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fastflow.core.tables import Floats, Inputs
from fastflow.physics.parallelism.defaults import zero_stage
from fastflow.physics.parallelism.offload import offload_of
from fastflow.physics.parallelism.sharding.local_graph import Supergraph
from fastflow.physics.workload.graph import REDUCE_SCATTER, TRAINED, UPDATE, Graph, max_by_point
from fastflow.physics.workload.precision import Precision


class Buffers(NamedTuple):
    """Buffers of a device, by what they are for; (points,) [B]."""

    gathered: Floats  # full weights that ZeRO shards
    scattered: Floats  # full gradients that ZeRO shards
    gradients: Floats  # gradients beside those that a device accumulates
    recomputed: Floats  # activations of a recomputed layer, or of the loss, whichever are more
    converted: Floats  # frozen weights in the type of products

    @property
    def total(self) -> Floats:
        """All of them at once [B]."""
        return self.gathered + self.scattered + self.gradients + self.recomputed + self.converted


def zero_buffers(
    inputs: Inputs, graph: Graph, shards: Supergraph, weights: Floats, precision: Precision
) -> tuple[Floats, Floats]:
    """Return the bytes of the largest gathered weights, and of the largest gradient to be scattered.

    Or of as many as a framework has at once (`parallel.max_live_parameters`, `.reduce_bucket_size`), but no
    more than the weights of the stage. weights: of the stage, before ZeRO shards them, (points,).
    """
    zero = zero_stage(inputs)
    if not (zero > 1).any():
        return np.zeros(zero.size), np.zeros(zero.size)
    kernel_zero, is_scattered = zero[graph.point], shards.gradient.collective == REDUCE_SCATTER
    is_gathered = (kernel_zero == 3) & (graph.phase != UPDATE)
    gathered = np.where(is_gathered, shards.fetch.bytes * graph.launches.repeat, 0.0)
    scattered = np.where((kernel_zero > 1) & is_scattered, shards.gradient.bytes, 0.0)
    of_tensor = [max_by_point(graph, gathered), max_by_point(graph, scattered)]
    if (offloads := offload_of(inputs).weights).any():  # a device that shares its weights with none has them
        local, is_owner = shards.kernels, graph.memory.weights == TRAINED
        owned = max_by_point(graph, np.where(is_owner, 1.0 * local.batch * local.inner * local.cols, 0.0))
        for index, size in enumerate((precision.weight, precision.gradient)):
            least = np.where(offloads, owned * size, 0.0)
            of_tensor[index] = np.maximum(of_tensor[index], least)
    live = np.minimum(np.where(zero == 3, inputs["parallel.max_live_parameters"], 0.0), weights)
    bucket = np.minimum(np.where(zero > 1, inputs["parallel.reduce_bucket_size"], 0.0), weights)
    is_sharded = max_by_point(graph, shards.kernels.owners.astype(np.float64)) > 1.0
    live, bucket = (np.where(is_sharded | offloads, numbers, 0.0) for numbers in (live, bucket))
    of_weights = np.maximum(of_tensor[0], live * precision.weight)
    return of_weights, np.maximum(of_tensor[1], bucket * precision.gradient)
