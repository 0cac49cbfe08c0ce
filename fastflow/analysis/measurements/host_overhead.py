"""Overhead of the host on top of the device's time: calls of a framework, and a library's launches.

A training run queues its kernels ahead of the device, so that this overhead is hidden in an iteration's
time. It is part of a time that was measured call by call, on an idle device.

A *call* is timed between two events. A matrix product's library chooses a kernel before it launches it, so
that the overhead C of the call comes before the kernel. A pointwise or normalisation operator is launched
half way through the call, its launch included, and runs while the second event is recorded: the call takes
the longer of C, and of C / 2 and the operator.

A *recurrent layer* is one call of its library, which launches the kernels of every step. While the library
falls behind, the device waits in each step: a *gap*.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fastflow.core.tables import Floats, Ints, Texts
from fastflow.physics.workload.ops.pointwise import OPERATORS

# The overhead of an operator's call, relative to an operator that reads two tensors. Calibrated: NeuSight's
# operators on the hosts of an A100 and a V100 (sitar-lab/NeuSight@6945927), which agree within 5%. An
# operator without a name may be any of those of one input.
_OF_ONE_INPUT = 1.17
_OF_OPERATOR = {"softmax": 1.25, "log_softmax": 1.25, "layernorm": 1.78}


def product_call(time: Floats, overhead: Floats) -> Floats:
    """Return the time of a call that runs a matrix product, or anything whose kernel comes last [s].

    time: of the device [s]; overhead: of a call [s]; all of shape (rows,).
    """
    return time + overhead


def operator_call(time: Floats, overhead: Floats, launch: Floats, op: Texts, tensors: Ints) -> Floats:
    """Return the time of a call that runs a pointwise or normalisation operator [s].

    time: of the device, its launch included [s]; overhead: of a call that reads two tensors [s]; launch:
    overhead of a launch [s]; op: one of `pointwise.OPERATORS`; tensors: that the operator reads and
    writes, 0 where its name says how many. All of shape (rows,).
    """
    factor = np.where(tensors > 2, 1.0, _OF_ONE_INPUT)
    binary = [name for name, operator in OPERATORS.items() if operator.reads > 1]
    for name, share in {**dict.fromkeys(binary, 1.0), **_OF_OPERATOR}.items():
        factor = np.where(op == name, share, factor)
    call_overhead = overhead * factor
    return np.maximum(call_overhead, 0.5 * call_overhead + (time - launch))


# The host's time of a kernel that Python launches, and further time of a product whose operands are rounded
# (scales to make and to lay out, a library's own choice of a kernel). Calibrated: prefills of up to 256
# tokens of vLLM 0.24's sparse attention, on the hosts of an H100 and a B200
# (ai-dynamo/aiconfigurator@095f58a), which agree within 8%
EAGER_KERNEL = 40e-6
_EAGER_PRODUCT = {"fp8_block": 33e-6, "nvfp4": 187e-6}


def eager_module(time: Floats, kernels: Floats, products: Floats, dtype: Texts) -> Floats:
    """Return the time of a module whose kernels Python launches one by one [s].

    The host launches ahead of the device, so that the slower of the two decides. time: of the device [s];
    kernels: of the module; products: of these, products in `dtype`; all of shape (rows,).
    """
    further = np.zeros(time.size)
    for name, overhead in _EAGER_PRODUCT.items():
        further = np.where(dtype == name, overhead, further)
    return np.maximum(time, kernels * EAGER_KERNEL + products * further)


class LayerHost(NamedTuple):
    """A host and its library, as recurrent layers see them."""

    call: float = 0.0  # overhead of a layer's call [s]
    gap: float = 0.0  # wait of the device in a step [s]
    gap_steps: int = 0  # number of first steps of a pass with a gap


def layer_call(host: LayerHost, time: Floats, part: Texts, steps: Ints) -> Floats:
    """Return the time of a call that runs a part of a recurrent layer [s].

    time: of the device [s]; part: as `model.part`; steps: of the sequence. All of shape (rows,). The weight
    gradient is one product over all steps, without gaps.
    """
    gaps = np.where(part == "backward_weights", 0, np.minimum(steps, host.gap_steps))
    return time + (host.call + host.gap * gaps)
