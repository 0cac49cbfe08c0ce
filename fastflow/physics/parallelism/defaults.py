"""Defaults of parallel options: a transformer is trained as its frameworks train it by default."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fastflow.core.dedupe import map_values
from fastflow.core.tables import Bools, Inputs, Ints
from fastflow.physics.parallelism.options import ALL_GATHER, AUTO, BUFFER, DISPATCHER, FLEX, FOLDS, MICROBATCH
from fastflow.physics.workload import family_of, has_layer_runs


class ParallelOptions(NamedTuple):
    """Parallel options of points other than their layouts; (points,)."""

    stages: Ints  # of the pipeline
    microbatches: Ints
    zero: Ints  # stage of ZeRO: which tensors are sharded over devices with the same weights
    reshards: Bools  # whether ZeRO's stage 3 frees weights between forward and backward pass
    copies: Bools  # whether the last of several stages has a copy of the first stage's embedding


def parallel_options(inputs: Inputs, stages: Ints, microbatches: Ints) -> ParallelOptions:
    """Return the options of every point; inputs: `parallel.zero_stage`, `.reshard` and columns of `model`."""
    return ParallelOptions(
        stages=stages,
        microbatches=microbatches,
        zero=zero_stage(inputs),
        reshards=np.array(inputs["parallel.reshard_after_forward"]),  # a column that kernels take
        copies=copies_embedding(inputs) & (stages > 1),
    )


def zero_stage(inputs: Inputs) -> Ints:
    """Return the stage of ZeRO of every point (`parallel.zero_stage`), (points,).

    A transformer's optimizer is sharded by default (Megatron-LM's distributed optimizer).
    """
    requested = inputs["parallel.zero_stage"]
    stage: Ints = np.where(requested < 0, int(has_layer_runs(inputs)), requested)
    return stage


def frees_weights(inputs: Inputs) -> Bools:
    """Return whether devices with the same weights shard them, and free them after a pass, (points,).

    inputs: as of `zero_stage`, and `parallel.reshard_after_forward`.
    """
    frees: Bools = (zero_stage(inputs) >= 3) & inputs["parallel.reshard_after_forward"]
    return frees


def copies_embedding(inputs: Inputs) -> Bools:
    """Return whether the last of several stages has a copy of the first stage's embedding, (points,).

    So where the head is tied to it, or with multi-token prediction: Megatron-LM keeps weights, gradients
    and optimizer states there too, and sums the gradients of both once an iteration
    (megatron/core/distributed/finalize_model_grads.py at 00c2c0a). Where the schedule folds the pipeline, the
    first stage has both.
    """
    none = np.zeros(inputs["model.name"].size, dtype=np.int64)
    if "model.tied" not in inputs:
        return none > 0
    looked_up = inputs.get("model.mel", none) == 0  # sound has no table in the first layer
    tied = (inputs["model.tied"] & looked_up) | (inputs.get("model.mtp", none) > 0)
    copies: Bools = inputs["model.training"] & tied
    if copies.any():
        copies &= map_values(FOLDS, inputs["parallel.schedule"]) == 0
    return copies


def sums_each_microbatch(inputs: Inputs, stages: Ints) -> Bools:
    """Return whether gradients are summed for every micro-batch (`parallel.grad_reduce`), (points,).

    By default so where gradients are sharded, since no device has room for all of them: DeepSpeed's stages 2
    and 3 (deepspeed/runtime/zero/stage_1_and_2.py), and FSDP without `no_sync` (pytorch/pytorch#126166). But
    stages of a pipeline keep gradients over all micro-batches, and sum them after the last backward pass:
    PyTorch's (backward_maybe_with_nosync, torch/distributed/pipelining/stage.py) and Megatron's (no_sync of
    megatron/core/pipeline_parallel/schedules.py), whose buffer does so without stages too, unless FSDP shards
    it. Only of models with layer runs.

    stages: of a pipeline, (points,).
    """
    requested, zero = inputs["parallel.grad_reduce"], zero_stage(inputs)
    shards_gradients = ((requested == AUTO) & (zero >= 2)) | ((requested == BUFFER) & (zero >= 3))
    result: Bools = ((shards_gradients & (stages == 1)) | (requested == MICROBATCH)) & has_layer_runs(inputs)
    return result


def sends_once(inputs: Inputs) -> Bools:
    """Return whether tokens go once to each machine (`parallel.token_dispatcher`), (points,).

    By default so in training of a model that restricts a token's experts to some groups, as DeepSeek-V3
    does for this (arXiv:2412.19437, sections 2.1.2 and 3.2.2). Megatron-Bridge has `alltoall` by default.
    """
    if "model.topk_groups" not in inputs or DISPATCHER not in inputs:
        return np.zeros(inputs["model.name"].size, dtype=np.bool_)
    requested, topk_groups = inputs[DISPATCHER], inputs["model.topk_groups"]
    limits_groups = (
        (topk_groups > 0) & (topk_groups < inputs["model.expert_groups"]) & inputs["model.training"]
    )
    deduplicates: Bools = (requested == FLEX) | ((requested == AUTO) & limits_groups)
    return deduplicates & has_experts(inputs) if deduplicates.any() else deduplicates


def gathers_tokens(inputs: Inputs) -> Bools:
    """Return whether all ranks that share experts get all tokens (`parallel.token_dispatcher`), (points,)."""
    if DISPATCHER not in inputs:
        return np.zeros(inputs["model.name"].size, dtype=np.bool_)
    gathers: Bools = inputs[DISPATCHER] == ALL_GATHER
    return gathers & has_experts(inputs) if gathers.any() else gathers


def has_experts(inputs: Inputs) -> Bools:
    """Return whether models have layers of experts, (points,)."""
    sizes = [size > 0 for axis, _, size in family_of(inputs).divided_of_layers(inputs) if axis == "ep"]
    has: Bools = np.any(sizes, axis=0)
    return has
