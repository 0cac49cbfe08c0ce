"""Pointwise and normalisation operators by name: passes with known operations and tensors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

from fastflow.physics.workload.network import KernelType, Node, Side
from fastflow.physics.workload.ops import elementwise, rowwise


class Operator(NamedTuple):
    """Cost of an operator per element of its output; an elementary function counts 1 operation."""

    base: KernelType  # elementwise or rowwise
    reads: int  # tensors
    writes: int
    flop: float
    backward: int  # tensors that its gradient's kernel reads and writes; 0: no gradient kernel


# A gradient's kernel reads the output's gradient and saved tensors, and writes every input's gradient, as the
# derivatives need. The operations are those of the definitions: GELU with the error function (Hendrycks and
# Gimpel, arXiv:1606.08415), SiLU x / (1 + exp(-x)), softmax against the row's maximum (Milakov and
# Gimelshein, arXiv:1805.02867), layer norm with gain and bias (Ba et al., arXiv:1607.06450), RMS norm with a
# gain (Zhang and Sennrich, NeurIPS 2019). A row's statistics and weights are small against the row. Gated
# units take gate and values (Shazeer, arXiv:2002.05202), rotary embedding turns pairs of columns by an angle
# that the position gives (Su et al., arXiv:2104.09864), a norm with residual writes the sum too, and sampling
# draws a column by the softmax of a row over a temperature.
OPERATORS = {
    "elementwise": Operator(elementwise.TYPE, 1, 1, 1.0, 3),
    "add": Operator(elementwise.TYPE, 2, 1, 1.0, 0),  # both gradients equal the output's
    "sub": Operator(
        elementwise.TYPE, 2, 1, 1.0, 2
    ),  # one gradient equals the output's, the other is its negative
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
    "rmsnorm_residual": Operator(rowwise.TYPE, 2, 2, 5.0, 4),
    "rotary": Operator(elementwise.TYPE, 1, 1, 3.0, 2),
    "swiglu": Operator(elementwise.TYPE, 2, 1, 4.0, 5),
    "geglu": Operator(elementwise.TYPE, 2, 1, 6.0, 5),
    "sampling": Operator(rowwise.TYPE, 1, 0, 8.0, 0),
}


def _from_file(
    operator: Operator,
    where: str,
    node: Node,
    sides: Mapping[str, Side],
    model: Side,
    fields: Mapping[str, Any],
) -> Node:
    """Return an operator of a graph file, with defaults for the fields that the file omits."""
    defaults = {
        "flop": operator.flop,
        "moves": float(operator.reads + operator.writes),
        "backward_moves": float(operator.backward),
    }
    cost = node.cost._replace(**{key: value for key, value in defaults.items() if key not in fields})
    return node._replace(cost=cost, width=None if operator.writes else 1)


TYPES = {
    name: replace(operator.base, name=name, title=name, from_file=partial(_from_file, operator))
    for name, operator in OPERATORS.items()
    if name != operator.base.name
}
"""A type of kernel for each operator."""
