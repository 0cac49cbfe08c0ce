"""`model=operator`: one pointwise or normalisation operator over rows x cols elements, with its gradient.

What an operator moves is what its algorithm must: each input read once and each output written once, as one
fused kernel does. How often a kernel reads a row again that it could not keep is the device's affair.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fastflow.column import count, text
from fastflow.tables import Inputs
from fastflow.workload.family import Family, alone, independent
from fastflow.workload.graph import HIDDEN
from fastflow.workload.layers import INPUT, KernelType, Layer, Network, Node, connect
from fastflow.workload.types import elementwise, rowwise


class Operator(NamedTuple):
    """What an operator does for an element of its output; an elementary function counts one operation."""

    type: KernelType  # elementwise or rowwise
    reads: int  # tensors
    writes: int
    flop: float
    backward: int  # tensors that its gradient's kernel reads and writes; 0 where there is no such kernel


# Of a gradient's kernel: the output's gradient and what was kept in, every input's gradient out, as the
# derivatives ask. The operations are those of the definitions: GELU with the error function (Hendrycks and
# Gimpel, arXiv:1606.08415), SiLU x / (1 + exp(-x)), softmax against the row's maximum (Milakov and
# Gimelshein, arXiv:1805.02867), layer norm with gain and bias (Ba et al., arXiv:1607.06450), RMS norm with a
# gain (Zhang and Sennrich, NeurIPS 2019). A row's statistics and weights are small beside the row.
OPERATORS = {
    "elementwise": Operator(elementwise.TYPE, 1, 1, 1.0, 3),
    "add": Operator(elementwise.TYPE, 2, 1, 1.0, 0),  # both gradients are the output's
    "sub": Operator(elementwise.TYPE, 2, 1, 1.0, 2),  # one is, the other its negative
    "mul": Operator(elementwise.TYPE, 2, 1, 1.0, 5),
    "div": Operator(elementwise.TYPE, 2, 1, 1.0, 5),
    "pow": Operator(elementwise.TYPE, 2, 1, 1.0, 5),
    "exp": Operator(elementwise.TYPE, 1, 1, 1.0, 3),
    "relu": Operator(elementwise.TYPE, 1, 1, 1.0, 3),
    "tanh": Operator(elementwise.TYPE, 1, 1, 1.0, 3),
    "sigmoid": Operator(elementwise.TYPE, 1, 1, 3.0, 3),
    "silu": Operator(elementwise.TYPE, 1, 1, 3.0, 3),
    "gelu": Operator(elementwise.TYPE, 1, 1, 5.0, 3),
    "softmax": Operator(rowwise.TYPE, 1, 1, 5.0, 3),
    "log_softmax": Operator(rowwise.TYPE, 1, 1, 5.0, 3),
    "layernorm": Operator(rowwise.TYPE, 1, 1, 7.0, 3),
    "rmsnorm": Operator(rowwise.TYPE, 1, 1, 4.0, 3),
}


def network(points: Inputs) -> Network:
    """Return the network of each point's operator, whose inputs and outputs lie in memory.

    Where a number of tensors is given, all but one are inputs, and the gradient's kernel reads the output's
    gradient and these, and writes as many.
    """
    op, cols, tensors = str(points["model.op"][0]), points["model.cols"], points["model.tensors"]
    one = OPERATORS[op]
    given = tensors > 0
    moved = np.where(given, tensors, one.reads + one.writes)
    node = Node(
        name=op, type=one.type, rows=points["model.rows"], cols=cols, reads=(INPUT,), keeps=moved * cols,
        moves=1.0 * moved, flop=one.flop,
        backward_moves=np.where(given, 2.0 * tensors - 1.0, one.backward),
    )  # fmt: skip
    return connect([Layer("operator", HIDDEN, (node,))], asks_input_gradient=one.backward > 0)


FAMILY = Family(
    name="operator",
    structure=(text("model.op", "pointwise or normalisation operator", tuple(OPERATORS)),),
    sizes=(
        count("model.rows", "rows of an operator's tensors"),
        count("model.cols", "columns of an operator's tensors"),
        count("model.tensors", "tensors that an operator reads and writes; 0: the least possible", low=0),
    ),
    network=network,
    kernels=alone,
    rows=independent("model.rows"),
    multiplied=("model.tensors", "model.cols"),
)
