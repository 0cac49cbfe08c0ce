"""What strategies leave unsaid: a transformer is trained as its frameworks do it unless told otherwise."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fastflow.core.tables import Bools, Inputs, Ints
from fastflow.physics.parallelism.options import AUTO, BUFFER, DISPATCHER, FLEX, MICROBATCH
from fastflow.physics.workload import has_layer_runs


class ParallelOptions(NamedTuple):
    """How points share batch and weights out, beside their layouts; (points,)."""

    stages: Ints  # of the pipeline
    microbatches: Ints
    zero: Ints  # stage of ZeRO: what devices with the same weights have parts of
    reshards: Bools  # whether ZeRO's stage 3 gives weights up between forward and backward pass
    copies: Bools  # whether the last one of several stages has a copy of the first one's embedding


def parallel_options(inputs: Inputs, stages: Ints, microbatches: Ints) -> ParallelOptions:
    """Return the options of every point; inputs: `parallel.zero`, `.reshard` and columns of `model`."""
    return ParallelOptions(
        stages=stages,
        microbatches=microbatches,
        zero=zero_stage(inputs),
        reshards=np.array(inputs["parallel.reshard"]),  # a column that kernels take
        copies=copies_embedding(inputs) & (stages > 1),
    )


def zero_stage(inputs: Inputs) -> Ints:
    """Return the stage of ZeRO of every point (`parallel.zero`), (points,).

    A transformer's optimizer is shared out unless told otherwise (Megatron-LM's distributed optimizer).
    """
    asked = inputs["parallel.zero"]
    found: Ints = np.where(asked < 0, int(has_layer_runs(inputs)), asked)
    return found


def copies_embedding(inputs: Inputs) -> Bools:
    """Return whether the last one of several stages has a copy of the first one's embedding, (points,).

    So where the head is tied to it, or modules look further tokens up: Megatron-LM keeps weights, gradients
    and optimizer states there too, and sums the gradients of both once an iteration
    (megatron/core/distributed/finalize_model_grads.py at 00c2c0a).
    """
    if "model.tied" not in inputs:
        return np.zeros(inputs["model.name"].size, dtype=np.bool_)
    found: Bools = inputs["model.training"] & (inputs["model.tied"] | (inputs["model.mtp"] > 0))
    return found


def sums_each_microbatch(inputs: Inputs, stages: Ints) -> Bools:
    """Return whether every micro-batch's gradients are summed over devices (`parallel.reduce`), (points,).

    By itself so where they are dealt out, since no device has room for all of its own: DeepSpeed's stages 2
    and 3 (deepspeed/runtime/zero/stage_1_and_2.py), and FSDP without `no_sync` (pytorch/pytorch#126166). But
    stages of a pipeline keep gradients over all micro-batches, and sum them behind the last backward pass:
    PyTorch's (backward_maybe_with_nosync, torch/distributed/pipelining/stage.py) and Megatron's (no_sync of
    megatron/core/pipeline_parallel/schedules.py), whose buffer does so without stages too, unless FSDP shards
    it. Of models whose graph has layers that stand for several.

    stages: of a pipeline, (points,).
    """
    asked, zero = inputs["parallel.reduce"], zero_stage(inputs)
    dealt = ((asked == AUTO) & (zero >= 2)) | ((asked == BUFFER) & (zero >= 3))
    found: Bools = ((dealt & (stages == 1)) | (asked == MICROBATCH)) & has_layer_runs(inputs)
    return found


def sends_once(inputs: Inputs) -> Bools:
    """Return whether tokens go once to each machine with experts of theirs, (points,).

    That is what `parallel.token_dispatcher` says.

    By itself so in training of a model that keeps a token's experts to some of their groups, as DeepSeek-V3
    does for this (arXiv:2412.19437, sections 2.1.2 and 3.2.2). Megatron-Bridge has `alltoall` by default.
    """
    if "model.topk_groups" not in inputs or DISPATCHER not in inputs:
        return np.zeros(inputs["model.name"].size, dtype=np.bool_)
    asked, kept = inputs[DISPATCHER], inputs["model.topk_groups"]
    limited = (kept > 0) & (kept < inputs["model.expert_groups"]) & inputs["model.training"]
    once: Bools = ((asked == FLEX) | ((asked == AUTO) & limited)) & (inputs["model.experts"] > 0)
    return once
