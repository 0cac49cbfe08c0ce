"""The order in which the stages of a pipeline work through their blocks.

A *block* is the forward or the backward pass of one micro-batch through one chunk (consecutive layers) of
a stage. A stage has chunk c of the model's virtual stage c * stages + stage (Narayanan et al., Efficient
large-scale language model training on GPU clusters, SC 2021, section 2.2). Backward blocks take chunks from
the last to the first.

In an order of *steps*, all stages run micro-batches and chunks in the same sequence, forward and backward. So
step k of a stage waits for step k of the stage before it, or, on the first stage, for step k - `group` of the
last stage. A stage runs a forward step while fewer than `in_flight` steps lack their backward step, else a
backward step:

- GPIPE (Huang et al., GPipe, NeurIPS 2019, figure 2): all forwards, then all backwards in reverse.
- ONE_F_ONE_B (PipeDream-Flush; Narayanan et al., figure 4, top), of one chunk.
- INTERLEAVED (figure 4, bottom; Megatron-LM, `schedules.py`): groups of as many micro-batches as there are
  stages go through chunk after chunk. With one chunk it is ONE_F_ONE_B.
- ZERO_BUBBLE (ZB-H1; Qi et al., Zero bubble pipeline parallelism, arXiv:2401.10241, figure 3), of one chunk:
  ONE_F_ONE_B with the backward pass in two. The gradient of the input is sent on at once. The weight gradient
  of micro-batch i follows the input gradient of micro-batch i + stage, the others come last ("delay W by
  rank" in the authors' code). So every stage keeps as many micro-batches as the first stage does under
  ONE_F_ONE_B.
- ZERO_BUBBLE_2P (ZB-H2, figure 3; the search with twice the memory, ZB-2p, finds as short ones): forwards
  fill the wait for the first gradient, and weight gradients, delayed twice as long, the wait at the end. A
  stage keeps up to 2 stages - 1 micro-batches.

The other orders are programs of blocks (`stage_programs`):

- INTERLEAVED where stages do not divide the micro-batches: Megatron-LM's
  `microbatch_group_size_per_vp_stage`, the smallest that leaves a last group of no less than the stages.
- ZERO_BUBBLE_V (ZB-V; Qi et al., Pipeline parallelism with controllable memory, arXiv:2405.15362): two
  chunks, of which the second runs from the last stage to the first, so that the loss is on the first stage,
  and a stage keeps no more than under ONE_F_ONE_B.
- DUALPIPE_V (deepseek-ai/DualPipe; Qi et al., Cut-in-half): two such chunks, where a forward and a backward
  block run together to hide each other's communication. DualPipe (DeepSeek-V3, arXiv:2412.19437, figure 5) is
  the same on twice the stages, which have two copies of the model.

Under ZERO_BUBBLE_2P and ZERO_BUBBLE_V a stage updates its weights without a wait for the others (Qi et al.,
2401.10241, section 4, "post-validation"): the iteration takes what a stage takes from its own begin to its
own end.
"""

from __future__ import annotations

from fastflow.core.jit import kernel, lean_kernel
from fastflow.physics.schedule.pipeline_order import (
    DUALPIPE_V,
    GPIPE,
    INTERLEAVED,
    ONE_F_ONE_B,
    ZERO_BUBBLE,
    ZERO_BUBBLE_2P,
    ZERO_BUBBLE_V,
)


@kernel
def check_order(order: int, stages: int, chunks: int, microbatches: int) -> None:
    """Raise ValueError where an order is not defined for a pipeline."""
    if stages < 1 or chunks < 1 or microbatches < 1:
        raise ValueError("a pipeline has a stage, a chunk and a micro-batch at least")
    if order < GPIPE or order > DUALPIPE_V:
        raise ValueError("there is no such order")
    if chunks > 1 and order == INTERLEAVED and microbatches < stages:
        raise ValueError("interleaved stages take as many micro-batches at a time as there are stages")
    if chunks > 1 and order in (ONE_F_ONE_B, ZERO_BUBBLE, ZERO_BUBBLE_2P):
        raise ValueError("this order has one chunk a stage")
    if folds(order) and chunks != 2:
        raise ValueError("this order has two chunks a stage")
    if order == DUALPIPE_V and microbatches < 2 * stages:
        raise ValueError("this order has two micro-batches a stage at least")


@lean_kernel
def folds(order: int) -> bool:
    """Say whether second chunks run from the last stage to the first."""
    return order in (ZERO_BUBBLE_V, DUALPIPE_V)


@lean_kernel
def splits_backward(order: int) -> bool:
    """Say whether there are blocks of weight gradients alone."""
    return order >= ZERO_BUBBLE


@lean_kernel
def updates_alone(order: int) -> bool:
    """Say whether the update of a stage waits for no other stage."""
    return order in (ZERO_BUBBLE_2P, ZERO_BUBBLE_V)


@lean_kernel
def virtual_stage(order: int, stages: int, stage: int, chunk: int) -> int:
    """Return the virtual stage that is a chunk of a stage."""
    if chunk == 1 and folds(order):
        return 2 * stages - 1 - stage
    return chunk * stages + stage


@lean_kernel
def stage_of(order: int, stages: int, virtual: int) -> int:
    """Return the stage that has a virtual stage."""
    if virtual >= stages and folds(order):
        return 2 * stages - 1 - virtual
    return virtual % stages


@kernel
def is_program(order: int, stages: int, chunks: int, microbatches: int) -> bool:
    """Say whether stages do not all run micro-batches and chunks in the same sequence of steps."""
    return folds(order) or (order == INTERLEAVED and chunks > 1 and microbatches % stages > 0)


@kernel
def group_of(order: int, stages: int, chunks: int, microbatches: int) -> int:
    """Return how many micro-batches a stage runs through a chunk before the next chunk."""
    if order != INTERLEAVED or chunks == 1:
        return microbatches
    size = stages
    while 0 < microbatches % size < stages:
        size += 1
    return size


@lean_kernel
def weight_delay(order: int, stage: int) -> int:
    """Return after how many more input gradients a stage makes a weight gradient, in an order of steps."""
    return 2 * stage if order == ZERO_BUBBLE_2P else stage


@kernel
def in_flight(order: int, stages: int, stage: int, chunks: int, microbatches: int) -> int:
    """Return the largest number of blocks of a stage between forward and backward, in an order of steps.

    Each keeps the activations of one micro-batch in one chunk. Where weight gradients are separate, a block
    ends with the gradient of its input; see `waiting`.
    """
    steps = chunks * microbatches
    if order == GPIPE:
        return steps
    if order == ZERO_BUBBLE_2P:
        return min(steps, 2 * (stages - stage) - 1)
    if chunks == 1:
        return min(steps, stages - stage)
    group = group_of(order, stages, chunks, microbatches)
    return min(steps, 2 * (stages - stage - 1) + (chunks - 1) * group + 1)


@kernel
def waiting(order: int, stages: int, stage: int, microbatches: int) -> int:
    """Return how many weight gradients are delayed while the most blocks are in flight, in an order of steps.

    Each keeps the inputs of products and the gradients of their outputs, M_W, which is less than the M_B that
    a block in flight keeps (Qi et al., section 2.3: together (p - i + 1) M_B + (i - 1) M_W on stage i).
    """
    if order not in (ZERO_BUBBLE, ZERO_BUBBLE_2P):
        return 0
    return min(weight_delay(order, stage), microbatches - in_flight(order, stages, stage, 1, microbatches))
