"""What one device has allocated at each step of a training iteration, walked block by block.

A block is the forward or the backward pass of a micro-batch through a chunk of a stage. The rules are those of
the footprint, so that the largest step is `Footprint.allocated`:

- Weights, gradients, optimizer state and workspaces are there all the time.
- A forward block adds what its layers keep for the backward pass. All of it stays until the backward block
  ends; with a zero-bubble schedule until the block of weight gradients ends. Of offloaded activations, the
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

from fastflow.physics.schedule.stage_blocks import WEIGHT
from fastflow.physics.workload.graph import FORWARD

REST, PASS, LOSS, LOSS_GRADIENT = "rest", "forward", "loss", "loss gradient"
BACKWARD_PASS, WEIGHT_GRADIENTS, REDUCTION, UPDATE_STEP = (
    "backward", "weight gradients", "reduction", "update",
)  # fmt: skip


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


class StageBlock(NamedTuple):
    """A block of a stage; NaN for unknown times [s]."""

    kind: int  # FORWARD, BACKWARD or WEIGHT
    chunk: int
    microbatch: int
    start: float = nan
    end: float = nan


class BlockRules(NamedTuple):
    """What the blocks of a stage have besides passes."""

    loss_chunk: int  # the chunk with the loss, -1 for none
    forward_share: float  # part of its forward block that the loss takes
    backward_share: float  # and of its backward block
    frees: int  # the kind of block that ends what a forward block keeps: BACKWARD or WEIGHT


class MemoryStep(NamedTuple):
    """A step of an iteration: the most that a device has allocated during it, by kind [B]."""

    phase: str  # of the constants of this module
    chunk: int  # -1 where the step belongs to none
    microbatch: int  # likewise
    start: float  # [s], NaN where it is unknown
    end: float
    weights: float
    gradients: float
    optimizer: float
    activations: float
    recomputed: float
    loss: float
    buffers: float
    workspace: float

    @property
    def allocated(self) -> float:
        """All of it [B]."""
        return sum(self[5:])


def walk_blocks(
    tensors: StageTensors, blocks: Sequence[StageBlock], rules: BlockRules
) -> Iterator[MemoryStep]:
    """Yield the steps of an iteration: at rest, then one or two for each block of a stage, in their order."""
    alive = 0
    first = blocks[0].start if blocks else nan
    yield step(tensors, REST, 0.0 * first, first)
    for block in blocks:
        has_loss = block.chunk == rules.loss_chunk and tensors.loss > 0.0
        duration, at = block.end - block.start, (block.chunk, block.microbatch)
        if block.kind == FORWARD:
            alive += 1
            border = block.end - (rules.forward_share * duration if has_loss else 0.0)
            kept = tensors.activations(alive)
            yield step(tensors, PASS, block.start, border, *at, activations=kept, buffers=tensors.passes)
            if has_loss:
                of_loss = {"activations": kept, "loss": tensors.loss, "buffers": tensors.passes}
                yield step(tensors, LOSS, border, block.end, *at, **of_loss)
            continue
        kept, buffers = tensors.activations(alive), tensors.passes + tensors.gradient_buffers
        border = block.start
        if block.kind != WEIGHT and has_loss:
            border += rules.backward_share * duration
            of_loss = {"activations": kept, "loss": tensors.loss, "buffers": buffers}
            yield step(tensors, LOSS_GRADIENT, block.start, border, *at, **of_loss)
        phase = WEIGHT_GRADIENTS if block.kind == WEIGHT else BACKWARD_PASS
        recomputed = 0.0 if block.kind == WEIGHT else tensors.recomputed
        yield step(
            tensors, phase, border, block.end, *at, activations=kept, recomputed=recomputed, buffers=buffers
        )
        alive -= block.kind == rules.frees


def step(
    tensors: StageTensors, phase: str, start: float, end: float, chunk: int = -1, microbatch: int = -1,
    *, activations: float = 0.0, recomputed: float = 0.0, loss: float = 0.0, buffers: float = 0.0,
) -> MemoryStep:  # fmt: skip
    """Return a step with what is there all the time, and what else there is during it [B]."""
    return MemoryStep(
        phase, chunk, microbatch, start, end, tensors.weights, tensors.gradients, tensors.optimizer,
        activations, recomputed, loss, buffers, tensors.workspace,
    )  # fmt: skip
