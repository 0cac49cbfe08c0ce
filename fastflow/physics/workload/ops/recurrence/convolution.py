"""Causal convolutions of each channel over its last few tokens, with SiLU, before a mixer's recurrence.

The backward pass computes the sum before SiLU once more, then the gradients of the input and of the weights:
three products with a channel's weights, in one kernel that reads the input and the output's gradient and
writes the input's (Dao-AILab/causal-conv1d@22a4577, csrc/causal_conv1d_bwd.cu).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fastflow.core.tables import Floats
from fastflow.physics.timing.device import Device
from fastflow.physics.timing.library.thread_blocks import Launched
from fastflow.physics.timing.linear_attention import time_convolution, time_short_step
from fastflow.physics.workload.network import Amount, KernelType, Node, PassCost, Size
from fastflow.physics.workload.ops.recurrence.kernel_type import local_sequences, mixer_type
from fastflow.physics.workload.sharding_rules import Share

ACTIVATION_FLOP = 4.0
"""Operations of SiLU: negate, exponential, add, divide."""
ACTIVATION_GRADIENT_FLOP = 8.0
"""Operations of SiLU's gradient s (1 + x (1 - s)): those of its sigmoid s, two products, a difference, a
sum."""
BACKWARD_PRODUCTS, BACKWARD_MOVES = 3.0, 3.0


def convolution(
    name: str, sequences: Size, tokens: Size, channels: Size, width: Amount, **fields: Any
) -> Node:
    """Return a causal convolution of each channel over the last `width` tokens, with SiLU; of prompts.

    It has channels x width weights; fields: further fields of the node, which may say otherwise (`vectors`).
    """
    return _convolution(CONVOLUTION, name, sequences, tokens, channels, width, **fields)


def convolution_step(name: str, sequences: Size, channels: Size, width: Amount, **fields: Any) -> Node:
    """Return a causal convolution of a single token a sequence, whose last tokens are in memory."""
    return _convolution(CONVOLUTION_STEP, name, sequences, 1, channels, width, **fields)


def window_elements(channels: Size, width: Amount) -> Amount:
    """Return the numbers that a convolution keeps of a sequence between its tokens: the last width - 1."""
    elements: Floats = np.asarray(channels * np.maximum(1.0 * width - 1.0, 0.0))
    return elements if elements.ndim else float(elements)


def _convolution(
    kind: KernelType, name: str, sequences: Size, tokens: Size, channels: Size, width: Amount, **fields: Any
) -> Node:
    cost = PassCost(flop=_flop(1.0 * width), backward_flop=_gradient_flop(1.0 * width))
    sizes = {"tokens": tokens, "width": width, "read_cols": channels}
    return Node(
        name=name, type=kind, rows=sequences * tokens, cols=channels, cost=cost,
        attributes={key: np.asarray(size, dtype=np.float64) for key, size in sizes.items()},
        **{"vectors": np.asarray(channels * width).astype(np.int64)} | fields,
    )  # fmt: skip


def _flop(width: Amount) -> Amount:
    return 2.0 * width + ACTIVATION_FLOP


def _gradient_flop(width: Amount) -> Amount:
    """Return the model's operations of the gradients; those that are recomputed are none of them."""
    return (BACKWARD_PRODUCTS - 1.0) * 2.0 * width + ACTIVATION_GRADIENT_FLOP


def _time_convolution(device: Device, share: Share) -> tuple[Launched, Floats]:
    tokens, width = share.attributes["tokens"], share.attributes["width"]
    sequences, channels = local_sequences(share), share.n.astype(np.float64)
    backward, elements = share.is_backward, sequences * tokens * channels
    launched = time_convolution(
        device, share.device, sequences=sequences, tokens=tokens, channels=channels,
        moved=np.where(backward, BACKWARD_MOVES, 2.0) * elements * share.bytes.activation,
        products=np.where(backward, BACKWARD_PRODUCTS, 1.0),
    )  # fmt: skip
    flop = np.where(backward, 2.0 * width + _gradient_flop(width), _flop(width))
    return launched, elements * flop


def _time_convolution_step(device: Device, share: Share) -> tuple[Launched, Floats]:
    """Time a single token: reads and writes it and the tokens before it, once each."""
    moved = 2.0 * share.elements * share.attributes["width"] * share.bytes.activation
    launched = time_short_step(device, share.device, channels=share.elements, moved=moved)
    flop: Floats = share.elements * _flop(share.attributes["width"])
    return launched, flop


CONVOLUTION = mixer_type("causal convolution", _time_convolution)
CONVOLUTION_STEP = mixer_type("causal convolution, step", _time_convolution_step, trains=False)
