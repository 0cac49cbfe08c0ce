"""`model=linear_attention`: a kernel of a linear-time mixer, such as a gated delta net or Mamba-2.

Kernels of prompts have a backward pass when training.
"""

from __future__ import annotations

import numpy as np

from fastflow.core.dedupe import map_values
from fastflow.core.field import count, text
from fastflow.core.tables import Bools, Inputs
from fastflow.physics.workload.family import Family, independent_rows, single_operation
from fastflow.physics.workload.graph import HIDDEN
from fastflow.physics.workload.network import Layer, Network, Node, connect
from fastflow.physics.workload.ops.recurrence import (
    RULES,
    RecurrenceSizes,
    convolution,
    convolution_step,
    recurrence,
    recurrence_step,
)

CONVOLUTION, CONVOLUTION_STEP = "convolution", "convolution_step"
CHUNKS = {f"{rule}_chunks": rule for rule in RULES}
STEPS = {f"{rule}_step": rule for rule in RULES}
KERNELS = (CONVOLUTION, CONVOLUTION_STEP, *CHUNKS, *STEPS)
KERNEL = text(
    "model.kernel",
    "kernel of a linear-time mixer: of prompts (chunks), or of a token a sequence (step)",
    KERNELS,
)
STATE_BYTES = {"fp32": 4.0, "bf16": 2.0, "fp16": 2.0}
STATE = text("model.state_dtype", "data type in which states are kept", tuple(STATE_BYTES))


def network(points: Inputs) -> Network:
    """Return the network of each point's kernel."""
    return connect([Layer("mixer", HIDDEN, (_node(points),))], needs_input_gradient=True)


def _node(points: Inputs) -> Node:
    kernel, sequences = str(points[KERNEL.name][0]), points["model.batch"]
    channels, width = points["model.channels"], points["model.conv_width"]
    if kernel == CONVOLUTION:
        return convolution(kernel, sequences, points["model.tokens"], channels, width)
    if kernel == CONVOLUTION_STEP:
        return convolution_step(kernel, sequences, channels, width)
    tokens = points["model.tokens"] if kernel in CHUNKS else 1
    sizes = RecurrenceSizes(
        sequences, tokens, points["model.key_heads"], points["model.key_dim"], points["model.value_heads"],
        points["model.value_dim"], map_values(STATE_BYTES, points[STATE.name]),
    )  # fmt: skip
    if kernel in CHUNKS:
        return recurrence(kernel, CHUNKS[kernel], sizes)
    return recurrence_step(kernel, STEPS[kernel], sizes)


def _invalid_sizes(inputs: Inputs) -> list[tuple[Bools, str, str, str]]:
    heads, key_heads = inputs["model.value_heads"], inputs["model.key_heads"]
    steps = np.isin(inputs[KERNEL.name], (CONVOLUTION_STEP, *STEPS))
    return [
        (heads % key_heads > 0, "model.key_heads", "model.value_heads", "a divisor of model.value_heads, {}"),
        (
            steps & inputs["model.training"], KERNEL.name, "model.training",
            "a kernel of prompts where model.training=true",
        ),
    ]  # fmt: skip


FAMILY = Family(
    name="linear_attention",
    work="attention",
    structure=(KERNEL,),
    sizes=(
        count("model.batch", "sequences of the global batch"),
        count("model.tokens", "tokens of a sequence, of kernels of prompts"),
        count("model.channels", "channels of a convolution"),
        count(
            "model.conv_width",
            "tokens that a convolution reads, the current one included; 0: no convolution",
            high=1e6,
        ),
        count("model.key_heads", "heads of queries and keys, each shared by the same number of value heads"),
        count("model.key_dim", "columns of a head's key, rows of its state"),
        count("model.value_heads", "heads of values, each with a state"),
        count("model.value_dim", "columns of a head's value and state"),
        STATE,
    ),
    network=network,
    kernels=single_operation,
    rows=independent_rows("model.batch"),
    invalid_sizes=_invalid_sizes,
    multiplied=("model.batch", "model.tokens"),
)
