"""Losses of a language model, a record each: what they keep of the logits, and the chunks that they work in.

- `whole` is Megatron-LM's: logits are converted to fp32, which stay for the backward pass
  (arXiv:2205.05198, section 4.3). The logits in the model's own type, which live until the loss is computed,
  are not counted.
- `eager` is PyTorch's cross entropy of logits in fp32, as in Hugging Face's models: the logits stay in the
  model's type, and their logarithmic probabilities in fp32. A tensor more in fp32 lives meanwhile: forward
  the logits converted, backward their gradient (log_softmax of pytorch/pytorch, torch/nn/functional.py).
- `chunked` is torchtune's CEWithChunkedOutputLoss, compiled: the logits stay in the model's type, and those
  of one chunk of tokens are converted at a time, 8 chunks by default (pytorch/torchtune,
  torchtune/modules/loss/ce_chunked_output_loss.py at 10ff7cd).
- `fused` is Liger's linear cross entropy: the head works in chunks of tokens too, and makes the gradients in
  the forward pass, in place of the logits of a chunk (arXiv:2410.10989, section 3.2). Chunks are so small
  that their logits are about as large as the head's input (linkedin/Liger-Kernel,
  src/liger_kernel/ops/fused_linear_cross_entropy.py at 00eba63). Here its gradients' time is in the backward
  pass.
- `cut` is Apple's cut cross entropy: no logits are in memory at all, and the backward pass computes them once
  more (arXiv:2411.09009, section 4). Each token keeps the logarithm of its sum of exponentials. That the
  kernel skips gradients below the precision of bf16 is not counted.

In chunks, the gradient of the head's weights is read and written for each of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from fastflow.physics.workload.graph import (
    NO_GRADIENT,
    ON_WEIGHTS,
    WEIGHT_GRADIENT,
    Kernel,
    PerElement,
)
from fastflow.physics.workload.models.transformer.dimensions import LOSSES as NAMES
from fastflow.physics.workload.models.transformer.dimensions import Sizes, with_default
from fastflow.physics.workload.network import KernelType, Network, Size
from fastflow.physics.workload.ops import gemm as product
from fastflow.physics.workload.precision import Precision

KEY, DEFAULT = "model.loss", NAMES[0]
TORCHTUNE_CHUNKS = 8
UNCOUNTED = 1e-9
"""Operations of an element of a product that repeats another one: none of the model's, and not 0, which
stands for those of its sides."""


class LogitBytes(NamedTuple):
    """Bytes for a logit."""

    typed: float = 0.0  # numbers in the type of activations
    fixed: float = 0.0  # and bytes in any type

    def of(self, activation: Any) -> Any:
        """Return the bytes of a logit; activation: of a number in the type of activations."""
        return self.typed * activation + self.fixed

    def cols(self, size: Sizes, classes: Size) -> Size:
        """Return the columns of activations that the logits of a token take."""
        return int(self.typed) * classes - (-(int(self.fixed) * classes) // size.activation_bytes)


def _single_chunk(size: Sizes) -> Size:
    return 1


def _torchtune_chunks(size: Sizes) -> Size:
    return TORCHTUNE_CHUNKS


def liger_chunks(size: Sizes) -> Size:
    """Return Liger's number of chunks of a micro-batch whose tokens are a power of two.

    A chunk has the power of two that is not below tokens / ceil(vocabulary / hidden).
    """
    ratio = -(-size.vocabulary // size.hidden)
    chunks = 2 ** (np.frexp(1.0 * ratio)[1].astype(np.int64) - 1)
    return chunks if isinstance(ratio, np.ndarray) else int(chunks)


def _gradients(network: Network, i: int, kernel: Kernel, precision: Precision) -> tuple[list[Kernel], Kernel]:
    """Return the gradients of the head, and of these that of its weights."""
    gradients = product.TYPE.backward(network, i, kernel, precision)
    return gradients, next(gradient for gradient in gradients if gradient.kind == WEIGHT_GRADIENT)


def _backward_in_chunks(network: Network, i: int, kernel: Kernel, precision: Precision) -> list[Kernel]:
    """Return the gradients of the head; each chunk adds its gradient of the weights to the sum."""
    gradients, of_weights = _gradients(network, i, kernel, precision)
    further: Any = network.nodes[i].node.steps - 1.0
    added = of_weights._replace(
        label=f"{of_weights.label} by chunk", kind=ON_WEIGHTS, rows=1, gradient=NO_GRADIENT,
        per_element=PerElement(bytes=2.0 * precision.output * further, flop=further),
    )  # fmt: skip
    return [added, *gradients]


def _backward_recomputed(network: Network, i: int, kernel: Kernel, precision: Precision) -> list[Kernel]:
    """Return the gradients of the head, after a product that computes the logits once more.

    It has the sides of the product of the weights' gradient, in another order.
    """
    gradients, of_weights = _gradients(network, i, kernel, precision)
    recomputed = of_weights._replace(
        label=f"{network.nodes[i].node.name} recomputed", gradient=NO_GRADIENT, comm=kernel.comm,
        per_element=PerElement(0.0, UNCOUNTED),
    )  # fmt: skip
    return [recomputed, *gradients]


IN_CHUNKS = replace(product.TYPE, title="product in chunks", backward=_backward_in_chunks)
RECOMPUTED = replace(product.TYPE, title="product, recomputed", backward=_backward_recomputed)


class Loss(NamedTuple):
    """How a loss and the head before it compute."""

    name: str
    kept: LogitBytes  # for the backward pass
    transient: LogitBytes  # of all logits of a chunk, while the loss or its gradient is computed
    forward: LogitBytes  # moved by passes
    backward: LogitBytes
    head: KernelType = product.TYPE
    chunks: Callable[[Sizes], Size] = _single_chunk  # by default
    in_chunks: bool = False  # whether `model.loss_chunks` says how many chunks there are
    kept_of_token: int = 0  # kept for each token [B]


# Bytes that `whole` moves for each logit, in fp32 (NVIDIA/Megatron-LM, megatron/core/tensor_parallel/
# cross_entropy.py at 00611e6): conversion (6), maximum (4), difference to it (8), exponentials (8), their sum
# (4) and shares of it (8), each in place; of the gradient, scaling (8) and conversion (6). Its fused variant
# (megatron/core/fusions/fused_cross_entropy.py at 0cb4a9c) makes one pass of difference and exponentials.
# `eager`: conversion (2 + 4), maximum, sum and shares (4, 4, 8); of the gradient, zeros (4), its sum and its
# scaling with the probabilities (4, 12), conversion (4 + 2). `chunked`, compiled: maximum and sum; of the
# gradient, a pass in and out. Liger reads the logits twice, and writes their gradient.
LOSSES: Mapping[str, Loss] = {
    loss.name: loss
    for loss in (
        Loss(DEFAULT, LogitBytes(0.0, 4.0), LogitBytes(), LogitBytes(0.0, 38.0), LogitBytes(0.0, 14.0)),
        Loss(
            "eager", LogitBytes(1.0, 4.0), LogitBytes(0.0, 4.0), LogitBytes(1.0, 20.0),
            LogitBytes(1.0, 24.0),
        ),
        Loss(
            "chunked", LogitBytes(1.0), LogitBytes(1.0, 4.0), LogitBytes(2.0), LogitBytes(2.0),
            head=IN_CHUNKS, chunks=_torchtune_chunks, in_chunks=True,
        ),
        Loss(
            "fused", LogitBytes(), LogitBytes(1.0), LogitBytes(3.0), LogitBytes(), head=IN_CHUNKS,
            chunks=liger_chunks, in_chunks=True,
        ),
        Loss(
            "cut", LogitBytes(), LogitBytes(), LogitBytes(), LogitBytes(), head=RECOMPUTED,
            kept_of_token=4,
        ),
    )
}  # fmt: skip
"""Losses by name."""


def chunks_of(loss: Loss, size: Sizes) -> Size:
    """Return the chunks of the head's tokens: those of `model.loss_chunks`, or the loss's own number."""
    if not loss.in_chunks:
        return 1
    chunks: Size = with_default(size.loss_chunks, loss.chunks(size))
    return chunks
