"""The type of a mixer's kernels: how they are sharded, and their gradient.

Sequences and heads are sharded. The tokens of a sequence depend on each other: where a plan shards them, the
kernel has all tokens of some heads. Its input is exchanged by an all-to-all before it, and its output after
it, as Megatron-LM's MambaContextParallel does (NVIDIA/Megatron-LM@00caa53,
megatron/core/ssm/mamba_context_parallel.py). The alternative, to pass states from device to device, moves
less and computes the states twice (fla-org/flash-linear-attention@29282a3, fla/ops/cp/README.md).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from fastflow.core.tables import Floats
from fastflow.physics.timing.device import Device
from fastflow.physics.timing.library.thread_blocks import Launched
from fastflow.physics.workload.graph import Kernel, PerElement
from fastflow.physics.workload.network import KernelType, Network, forward_with_attributes, no_gradient
from fastflow.physics.workload.ops.elementwise import TYPE as PASS
from fastflow.physics.workload.precision import Precision, wide_type
from fastflow.physics.workload.sharding_rules import COLS, OUTPUT, ROWS, Share

SEQUENCE = "sequence"
"""The dimension of a sequence's tokens, as context and sequence parallelism name it."""
TOKENS_TO_HEADS = {SEQUENCE: COLS}
"""Of `sides`: where tokens are sharded, heads are."""


def mixer_type(
    title: str,
    time: Callable[[Device, Share], tuple[Launched, Floats]],
    trains: bool = True,
    launches: int = 1,
) -> KernelType:
    """Return the type of a mixer's kernel.

    time: of its forward pass, and backward (`Share.is_backward`) if it trains; steps of serving do not;
    launches: kernels of its forward pass.
    """
    return replace(
        PASS,
        name=title.replace(", ", "_").replace(" ", "_"),
        title=title,
        sides={ROWS: ROWS, COLS: COLS} | TOKENS_TO_HEADS,
        reads=(OUTPUT,),
        forward=partial(forward_with_attributes, PASS),
        backward=_backward if trains else no_gradient,
        time=time,
        times_backward=trains,
        launches=launches,
        dtype=wide_type,
    )


def _backward(network: Network, i: int, kernel: Kernel, precision: Precision) -> list[Kernel]:
    """Return the gradient's kernels as one, which completes the gradients of the columns that it reads."""
    node = network.nodes[i].node
    trained_reads = [read for read in network.nodes[i].reads if network.needs_gradient(read)]
    if not trained_reads:
        return []
    read_cols: Any = sum((network.share(i, read) for read in trained_reads), 0)
    own_cols = np.ceil(np.asarray(node.attributes["read_cols"])).astype(np.int64)
    assert node.cost.backward_flop is not None
    return [
        kernel._replace(
            per_element=PerElement(bytes=0.0, flop=node.cost.backward_flop),
            sums=network.sums(network.operands(i)),
            comm=kernel.comm._replace(summed_cols=np.minimum(read_cols, own_cols)),
            attributes={**node.attributes, "backward": 1.0},
        )
    ]


def local_sequences(share: Share) -> Floats:
    """Return the sequences of a device, all tokens of each, (kernels,): at least one."""
    shards = 1.0 * share.row_shards * share.num_microbatches
    sequences: Floats = np.ceil(share.rows / share.attributes["tokens"] / shards)
    return sequences
