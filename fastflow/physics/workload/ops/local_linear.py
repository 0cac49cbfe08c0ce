"""Local linear attention: each query fits a linear model to the values of all keys before it (Zuo et al.,
arXiv:2510.01450), with the weights of softmax attention. It has a cache of keys and values, and work that is
quadratic in the tokens.

The fit solves a system as large as a key by conjugate gradients; each step goes over all keys once more. Its
kernels are those of fused attention with more products, and are sharded alike: nothing of them was measured.
Products and passes over keys are counted in Yifei-Zuo/FlashLLA@d104afa, flashlla/ops/forward.py, cg.py and
backward.py, whose scores never leave the chip and are recomputed in each pass.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from fastflow.core.tables import Bools, Floats
from fastflow.physics.timing.device import Device
from fastflow.physics.timing.library.thread_blocks import Launched
from fastflow.physics.workload.graph import Kernel, PerElement
from fastflow.physics.workload.network import KernelType, Network, Node, PassCost
from fastflow.physics.workload.ops.attention import DECODING, AttentionSizes, attention
from fastflow.physics.workload.ops.attention import TYPE as ATTENTION
from fastflow.physics.workload.precision import Precision
from fastflow.physics.workload.sharding_rules import Share

ITERATIONS = 32
"""Steps of the solver: `cg_max_iters` of `lla_attention`, all of which the kernels run."""
SAVED_NUMBERS = 6
"""Columns of 2 bytes that a query saves beside its solution: a maximum, a sum and a denominator in fp32."""
_FORWARD, _KEYS, _QUERIES = 0.0, 1.0, 2.0  # of the attribute "backward"


class PairWork(NamedTuple):
    """What a kernel does for a query and a key: columns of a key and of a value, of products and of loads."""

    keys: float
    values: float
    key_loads: float
    value_loads: float


# Forward: scores; their product with keys; each step, scores, keys times the direction, and their product
# with keys; scores, keys times the solution, and values. The gradient of queries solves once more.
_BASE_KERNELS = {_FORWARD: PairWork(1, 1, 1, 1), _KEYS: PairWork(3, 2, 1, 1), _QUERIES: PairWork(1, 1, 1, 1)}
"""Of fused attention, whose kernels have the loops of these."""
KERNELS = {
    _FORWARD: (PairWork(4, 1, 2, 1), PairWork(3, 0, 1, 0)),
    _KEYS: (PairWork(10, 2, 3, 1), PairWork(0, 0, 0, 0)),
    _QUERIES: (PairWork(10, 1, 2, 1), PairWork(3, 0, 1, 0)),
}
"""Of local linear attention: at all, and for each step of the solver."""
FORWARD_FLOP, BACKWARD_FLOP = (3.0, 2.0, 1.0), (11.0, 2.0, 2.0)
"""Products of the model with columns of a key, with those for each step, and with columns of a value: scores,
and what the backward pass recomputes, count once."""


def local_linear_attention(
    name: str, reads: tuple[str, ...], sizes: AttentionSizes, causal: Bools | bool, *,
    decodes: bool = False, iterations: float = ITERATIONS, **options: Any,
) -> Node:  # fmt: skip
    """Return a kernel of local linear attention.

    iterations: steps of the solver; options: as of `ops.attention.attention`, or further fields of the node.
    Each query saves its solution, as wide as a key, for the backward pass.
    """
    node = attention(
        name, reads, sizes, causal, decodes=decodes,
        **{"keeps": sizes.head_dim + SAVED_NUMBERS} | options,
    )  # fmt: skip
    head_dim, value_dim = sizes.head_dim, sizes.value_dim
    of_a_product = node.cost.flop / (head_dim + value_dim)  # of an element, for a column of each key

    def flop(keys: float, of_a_step: float, values: float) -> Any:
        return of_a_product * ((keys + of_a_step * iterations) * head_dim + values * value_dim)

    return node._replace(
        type=DECODING_TYPE if decodes else TYPE,
        cost=PassCost(flop=flop(*FORWARD_FLOP), backward_flop=flop(*BACKWARD_FLOP)),
        attributes={**node.attributes, "iterations": float(iterations)},
    )


def _backward(network: Network, i: int, kernel: Kernel, precision: Precision) -> list[Kernel]:
    """Return the gradients of keys and values, then that of queries: half the operations each."""
    gradients = ATTENTION.backward(network, i, kernel, precision)
    if not gradients:
        return []
    _, keys, queries = gradients
    flop = network.nodes[i].node.cost.backward_flop
    assert flop is not None
    keys = keys._replace(per_element=PerElement(bytes=0.0, flop=flop / 2.0))
    return [
        keys,
        keys._replace(
            label=queries.label, sums=queries.sums, comm=queries.comm,
            # heads of keys are exchanged after the first kernel only
            attributes={**keys.attributes, "backward": _QUERIES, "expanded": 0.0},
        ),
    ]  # fmt: skip


def _time(base: KernelType, decodes: bool, device: Device, share: Share) -> tuple[Launched, Floats]:
    """Time kernels as those of attention, with more products and more loads for each pair of tiles.

    Main memory serves the keys of each pass where they are of a cache, and once where L2 holds them.
    """
    assert base.time is not None
    size = share.attributes
    kind = size.get("backward", np.zeros(share.m.size))
    if not decodes:
        share = share._replace(attributes={**size, "backward": np.where(kind == _KEYS, 1.0, 0.0)})
    launched, flop = base.time(device, share)
    products, loads = np.ones(kind.size), np.ones(kind.size)
    for which, (at_all, of_a_step) in KERNELS.items():
        of_base, rows = _BASE_KERNELS[which], kind == which
        work = [fixed + size["iterations"] * more for fixed, more in zip(at_all, of_a_step, strict=True)]
        keys, values = size["head_dim"], size["value_dim"]
        more_products = (work[0] * keys + work[1] * values) / (of_base.keys * keys + of_base.values * values)
        products = np.where(rows, more_products, products)
        loads = np.where(rows, (work[2] * keys + work[3] * values) / (keys + values), loads)
    return _scaled(launched, products, loads, loads if decodes else np.ones(kind.size)), flop * products


def _scaled(launched: Launched, products: Floats, loads: Floats, from_memory: Floats) -> Launched:
    """Return kernels with multiples of the products, and of the bytes on chip and from main memory."""
    times, served = launched.times.copy(), launched.bytes.copy()
    times[:, 0] *= products
    for table, first in ((times, 1), (served, 0)):
        last = first + served.shape[1] - 1  # main memory
        table[:, first:last] *= loads[:, None]
        table[:, last] *= from_memory
    longest, before = times[:, :-1].max(axis=1), launched.times[:, :-1].max(axis=1)
    running = (launched.time - times[:, -1]) * longest / before
    return launched._replace(time=times[:, -1] + running, times=times, bytes=served)


TYPE = replace(
    ATTENTION, name="local_linear", title="local linear attention", backward=_backward,
    time=partial(_time, ATTENTION, False),
)  # fmt: skip
DECODING_TYPE = replace(
    DECODING, name="local_linear", title="local linear attention, decoding", backward=_backward,
    time=partial(_time, DECODING, True),
)  # fmt: skip
