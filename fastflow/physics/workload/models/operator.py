"""`model=operator`: a pointwise or normalisation operator over rows x cols elements, with its gradient.

An operator moves the minimum of its algorithm: a fused kernel reads each input once and writes each output
once. How often a kernel rereads a row that does not fit on chip depends on the device.
"""

from __future__ import annotations

import numpy as np

from fastflow.core.field import count, text
from fastflow.core.tables import Inputs
from fastflow.physics.workload.family import Family, independent_rows, single_operation
from fastflow.physics.workload.graph import HIDDEN
from fastflow.physics.workload.network import INPUT, Layer, Network, Node, PassCost, connect
from fastflow.physics.workload.ops.pointwise import OPERATORS


def network(points: Inputs) -> Network:
    """Return the network of each point's operator, whose inputs and outputs are in memory.

    `model.tensors`, where above 0, counts the inputs and the output; the gradient's kernel reads the output's
    gradient and the inputs, and writes a gradient for each input.
    """
    op, cols, tensors = str(points["model.op"][0]), points["model.cols"], points["model.tensors"]
    operator = OPERATORS[op]
    has_count = tensors > 0
    moved = np.where(has_count, tensors, operator.reads + operator.writes)
    node = Node(
        name=op, type=operator.base, rows=points["model.rows"], cols=cols, reads=(INPUT,), keeps=moved * cols,
        cost=PassCost(
            moves=1.0 * moved, flop=operator.flop,
            backward_moves=np.where(has_count, 2.0 * tensors - 1.0, operator.backward),
        ),
    )  # fmt: skip
    return connect([Layer("operator", HIDDEN, (node,))], needs_input_gradient=operator.backward > 0)


FAMILY = Family(
    name="operator",
    structure=(text("model.op", "pointwise or normalisation operator", tuple(OPERATORS)),),
    sizes=(
        count("model.rows", "rows of an operator's tensors"),
        count("model.cols", "columns of an operator's tensors"),
        count(
            "model.tensors",
            "number of tensors of rows x cols that an operator reads and writes; 0: the least possible",
            low=0,
        ),
    ),
    network=network,
    kernels=single_operation,
    rows=independent_rows("model.rows"),
    multiplied=("model.tensors", "model.cols"),
)
