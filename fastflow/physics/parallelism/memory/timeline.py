"""What one device has allocated at each step of a training iteration, walked block by block.

A block is the forward or the backward pass of a micro-batch through a chunk of a stage. The rules are those
of the footprint, so that the largest step is `Footprint.allocated`:

- Weights, gradients, optimizer state and workspaces are there all the time.
- A forward block adds what its layers keep for the backward pass. All of it stays until the backward block
  ends; where weight gradients have a block of their own, until that ends. Of offloaded activations, the
  device has those of two layers.
- A forward and a backward block have full copies of weights that ZeRO shards. A backward block has the other
  buffers too: gradients beside the accumulated ones, and its largest recomputed layer.
- The loss has logits or their gradients in the last chunk of its stage, at the end of the forward block and
  at the start of the backward block.
- All chunks of a stage count as equal.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import nan
from typing import NamedTuple

from fastflow.physics.schedule.stage_programs import WEIGHT
from fastflow.physics.workload.graph import FORWARD

REST, PASS, LOSS, LOSS_GRADIENT = "rest", "forward", "loss", "loss gradient"
BACKWARD_PASS, WEIGHT_GRADIENTS, REDUCTION, UPDATE_STEP = (
    "backward", "weight gradients", "reduction", "update",
)  # fmt: skip


class StepBytes(NamedTuple):
    """The most that a device has allocated during a step, by kind [B]."""

    weights: float
    gradients: float
    optimizer: float
    activations: float  # for the backward pass, of all blocks
    recomputed: float  # activations of a recomputed layer
    loss: float  # logits, or their gradients
    buffers: float  # of weights and gradients
    workspace: float

    @property
    def allocated(self) -> float:
        """All of it [B]."""
        return sum(self)

    @property
    def passing(self) -> float:
        """What there is during the step alone [B]."""
        return self.recomputed + self.loss + self.buffers


class StageTensors(NamedTuple):
    """What a device of one stage has in an iteration [B]."""

    weights: float  # all the time, as the three after it
    gradients: float
    optimizer: float
    workspace: float
    kept: float  # activations of a block, from its forward to its backward pass
    hidden: float  # part of these that is offloaded
    on_device: float  # the most of the offloaded activations of all blocks that stay on the device
    recomputed: float  # activations of the largest recomputed layer
    loss: float  # logits, or their gradients, during the loss
    passes: float  # buffers of every block
    gradient_buffers: float  # further ones of a backward block
    reduced: float  # buffers of a reduction of gradients after all blocks

    def activations(self, blocks: int) -> float:
        """Return the activations of a number of blocks between forward and backward pass [B]."""
        return self.kept * blocks - max(self.hidden * blocks - self.on_device, 0.0)

    def during(
        self, activations: float = 0.0, recomputed: float = 0.0, loss: float = 0.0, buffers: float = 0.0
    ) -> StepBytes:
        """Return what is there during a step: what is there all the time, and else what is given [B]."""
        return StepBytes(
            self.weights, self.gradients, self.optimizer, activations, recomputed, loss, buffers,
            self.workspace,
        )  # fmt: skip


class StageBlock(NamedTuple):
    """A block of a stage; NaN for unknown times [s]."""

    kind: int  # FORWARD, BACKWARD or WEIGHT
    chunk: int
    microbatch: int
    frees: bool  # of a backward or weight block: ends what its forward block keeps
    start: float = nan
    end: float = nan


class BlockRules(NamedTuple):
    """What the blocks of a stage have besides passes."""

    loss_chunk: int  # the chunk with the loss, -1 for none
    forward_share: float  # part of its forward block that the loss takes
    backward_share: float  # and of its backward block


class MemoryStep(NamedTuple):
    """A step of an iteration."""

    phase: str  # of the constants of this module
    chunk: int  # -1 where the step belongs to none
    microbatch: int  # likewise
    start: float  # [s], NaN where it is unknown
    end: float
    bytes: StepBytes  # during it
    after: StepBytes  # once it has ended


def idle_step(phase: str, start: float, end: float, there: StepBytes, after: StepBytes) -> MemoryStep:
    """Return a step of no block; start, end: [s]."""
    return MemoryStep(phase, -1, -1, start, end, there, after)


def walk_blocks(
    tensors: StageTensors, blocks: Sequence[StageBlock], rules: BlockRules
) -> Iterator[MemoryStep]:
    """Yield the steps of an iteration: at rest, then one or two for each block of a stage, in their order."""
    alive, first = 0, blocks[0].start  # alive: blocks whose activations are kept
    yield idle_step(REST, 0.0 * first, first, tensors.during(), tensors.during())
    for kind, chunk, microbatch, frees, start, end in blocks:
        alive += kind == FORWARD
        kept = tensors.activations(alive)
        loss = tensors.loss if chunk == rules.loss_chunk and kind != WEIGHT else 0.0
        if kind == FORWARD:
            border = end - (rules.forward_share * (end - start) if loss else 0.0)
            during, after = tensors.during(kept, buffers=tensors.passes), tensors.during(kept)
            yield MemoryStep(PASS, chunk, microbatch, start, border, during, after)
            if loss:
                yield MemoryStep(LOSS, chunk, microbatch, border, end, during._replace(loss=loss), after)
            continue
        buffers = tensors.passes + tensors.gradient_buffers
        if loss:
            border = start + rules.backward_share * (end - start)
            during = tensors.during(kept, loss=loss, buffers=buffers)
            yield MemoryStep(LOSS_GRADIENT, chunk, microbatch, start, border, during, tensors.during(kept))
            start = border
        alive -= frees
        after = tensors.during(tensors.activations(alive))
        phase, recomputed = (WEIGHT_GRADIENTS, 0.0) if kind == WEIGHT else (BACKWARD_PASS, tensors.recomputed)
        during = tensors.during(kept, recomputed, buffers=buffers)
        yield MemoryStep(phase, chunk, microbatch, start, end, during, after)
