"""The order in which the stages of a pipeline work through their blocks.

A *block* is the forward or the backward pass of one micro-batch through one chunk (consecutive layers) of
a stage. A stage has chunk c of the model's virtual stage c * stages + stage (Narayanan et al., Efficient
large-scale language model training on GPU clusters, SC 2021, section 2.2). All stages run micro-batches
and chunks in the same sequence, forward and backward, of *steps*. So step k of a stage waits for
step k of the stage before it, or, on the first stage, for step k - `group` of the last stage. Backward steps
take chunks from the last to the first.

A stage runs a forward step while fewer than `in_flight` steps lack their backward step, else a backward step:

- GPIPE (Huang et al., GPipe, NeurIPS 2019, figure 2): all forwards, then all backwards in reverse.
- ONE_F_ONE_B (PipeDream-Flush; Narayanan et al., figure 4, top), of one chunk.
- INTERLEAVED (figure 4, bottom; Megatron-LM, `schedules.py`): groups of as many micro-batches as there are
  stages go through chunk after chunk. With one chunk it is ONE_F_ONE_B.
- ZERO_BUBBLE (ZB-H1; Qi et al., Zero bubble pipeline parallelism, arXiv:2401.10241, figure 3), of one chunk:
  ONE_F_ONE_B with the backward pass in two. The gradient of the input is sent on at once. The weight gradient
  of micro-batch i follows the input gradient of micro-batch i + stage, the others come last ("delay W by
  rank" in the authors' code). So every stage keeps as many micro-batches as the first stage does under
  ONE_F_ONE_B.
"""

from __future__ import annotations

from fastflow.core.jit import kernel
from fastflow.physics.schedule.pipeline_order import GPIPE, INTERLEAVED, ONE_F_ONE_B, ZERO_BUBBLE


@kernel
def check_order(order: int, stages: int, chunks: int, microbatches: int) -> None:
    """Raise ValueError where an order is not defined for a pipeline."""
    if stages < 1 or chunks < 1 or microbatches < 1:
        raise ValueError("a pipeline has a stage, a chunk and a micro-batch at least")
    if order not in (GPIPE, ONE_F_ONE_B, INTERLEAVED, ZERO_BUBBLE):
        raise ValueError("there is no such order")
    if chunks > 1 and order == INTERLEAVED and microbatches % stages != 0:
        raise ValueError("interleaved stages take as many micro-batches at a time as there are stages")
    if chunks > 1 and order in (ONE_F_ONE_B, ZERO_BUBBLE):
        raise ValueError("this order has one chunk a stage")


@kernel
def group_of(order: int, stages: int, chunks: int, microbatches: int) -> int:
    """Return how many micro-batches a stage runs through a chunk before the next chunk."""
    return stages if order == INTERLEAVED and chunks > 1 else microbatches


@kernel
def in_flight(order: int, stages: int, stage: int, chunks: int, microbatches: int) -> int:
    """Return the largest number of blocks of a stage between forward and backward.

    Each keeps the activations of one micro-batch in one chunk. Under ZERO_BUBBLE a block ends with the
    gradient of its input; see `waiting`.
    """
    steps = chunks * microbatches
    if order == GPIPE:
        return steps
    if chunks == 1:
        return min(steps, stages - stage)
    return min(steps, 2 * (stages - stage - 1) + (chunks - 1) * stages + 1)


@kernel
def waiting(order: int, stages: int, stage: int, microbatches: int) -> int:
    """Return how many weight gradients are delayed while the most blocks are in flight.

    Each keeps the inputs of products and the gradients of their outputs, M_W, which is less than the M_B that
    a block in flight keeps (Qi et al., section 2.3: together (p - i + 1) M_B + (i - 1) M_W on stage i).
    """
    if order != ZERO_BUBBLE:
        return 0
    return min(stage, microbatches - min(microbatches, stages - stage))
