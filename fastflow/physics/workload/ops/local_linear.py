"""Local linear attention (Zuo et al., arXiv:2510.01450): every query fits a line through the values it sees.

The weights of its keys are those of softmax attention; the line needs the inverse of a matrix of a head's
columns for each query, times a vector. FlashLLA never makes the matrix: conjugate gradients apply it, and
each iteration goes through all keys once more (section 4; 32 iterations at most, the default of
Yifei-Zuo/FlashLLA, and no more than the matrix has columns). So a kernel takes as long as passes of attention
over the same keys:

- sums of weights and of weighted keys: a product with keys, and one that adds keys up;
- an iteration: the weights once more, the product of a direction with keys, and one that adds keys up;
- the output: the weights, the product of the solution with keys, and one that adds values up.

The backward pass solves for the gradient as often, and has the gradients of the output's pass. A kernel is
launched once. None was measured.
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
from fastflow.physics.workload.graph import PRODUCTS, Kernel
from fastflow.physics.workload.network import KernelType, Network, Node, PassCost
from fastflow.physics.workload.ops import attention
from fastflow.physics.workload.precision import Precision
from fastflow.physics.workload.sharding_rules import Share

MOST_ITERATIONS = 32
ITERATION_PRODUCTS, FIXED_PRODUCTS = 3.0, 4.0
"""Products of a query with the columns of a key: of an iteration; of sums and output together."""
GRADIENT_PRODUCTS, GRADIENT_VALUES = 6.0, 2.0
"""Products of the gradients of the output's pass, beside the solver's: with keys, and with values."""


def local_linear(node: Node, decodes: bool = False) -> Node:
    """Return a kernel of causal attention with the core of local linear attention.

    decodes: it is a kernel of few queries over a cache.
    """
    head, value = (1.0 * np.asarray(node.attributes[name]) for name in ("head_dim", "value_dim"))
    visible = np.asarray(node.cost.flop) * value / (2.0 * (head + value))
    solver = ITERATION_PRODUCTS * iterations(head) * head
    forward = 2.0 * visible * (solver + FIXED_PRODUCTS * head + value) / value
    backward = 2.0 * visible * (solver + GRADIENT_PRODUCTS * head + GRADIENT_VALUES * value) / value
    cost = PassCost(flop=_plain(forward), backward_flop=_plain(backward))
    return node._replace(type=DECODING if decodes else TYPE, cost=cost)


def iterations(head_dim: Floats) -> Floats:
    """Return the iterations of the solver, for heads of some columns."""
    return np.minimum(head_dim, float(MOST_ITERATIONS))


def _plain(values: Floats) -> Any:
    return values if np.ndim(values) else float(values)


def _backward(network: Network, i: int, kernel: Kernel, precision: Precision) -> list[Kernel]:
    """Return the kernels of attention's gradients, the main one with its own operations."""
    flop = network.nodes[i].node.cost.backward_flop
    assert flop is not None
    return [
        gradient._replace(per_element=gradient.per_element._replace(flop=flop))
        if gradient.kind in PRODUCTS
        else gradient
        for gradient in attention.TYPE.backward(network, i, kernel, precision)
    ]


def _time(base: KernelType, decodes: bool, device: Device, share: Share) -> tuple[Launched, Floats]:
    """Time passes of attention over the same keys, in one launch."""
    head, value = (share.attributes[name] for name in ("head_dim", "value_dim"))
    forward = {**share.attributes, "backward": np.zeros(share.m.size)}
    # two scores, and a sum of keys: keys are read once, as values
    sums, iteration = (head, head), (head, 2.0 * head) if decodes else (2.0 * head, head)
    timed = [
        (np.ones(share.m.size), forward, sums, 1.0),
        (iterations(head), forward, iteration, 1.0),
        (np.ones(share.m.size), share.attributes, (2.0 * head, value), 0.0),
    ]
    assert base.time is not None
    times: Callable[[Device, Share], tuple[Launched, Floats]] = base.time
    passes, operations = [], np.zeros(share.m.size)
    for number, attributes, (of_key, of_value), shared in timed:
        sized = {"head_dim": of_key, "value_dim": of_value, "shared": np.full(share.m.size, shared)}
        launched, flop = times(device, share._replace(attributes={**attributes, **sized}))
        passes.append((number, launched))
        operations = operations + number * flop
    return _together(passes, device.library.launch[share.device]), operations


def _together(passes: list[tuple[Floats, Launched]], launch: Floats) -> Launched:
    """Return passes, each so many times, as a kernel that is launched once; tiles are those of the last."""
    total = sum((number * launched.time for number, launched in passes), np.zeros(launch.size))
    again = (sum((number for number, _ in passes), np.zeros(launch.size)) - 1.0) * launch
    _, last = passes[-1]
    times = sum((number[:, None] * launched.times for number, launched in passes), np.zeros_like(last.times))
    times[:, -1] -= again
    moved = sum((number[:, None] * launched.bytes for number, launched in passes), np.zeros_like(last.bytes))
    return last._replace(time=total - again, times=times, bytes=moved)


def _type(base: KernelType, title: str, decodes: bool) -> KernelType:
    return replace(
        base, name="local_linear", title=title, backward=_backward, time=partial(_time, base, decodes)
    )  # fmt: skip


TYPE = _type(attention.TYPE, "local linear attention", decodes=False)
DECODING = _type(attention.DECODING, "local linear attention, decoding", decodes=True)
