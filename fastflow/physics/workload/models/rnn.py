"""`model=rnn`: a recurrent layer, forward and backward, as libraries measure and run it.

A step is a GEMM, h times the recurrent weights of all gates, and a memory-bound pass over the
gates; it waits for the step before. The weight gradient is one GEMM over all steps (Appleyard, Kočiský
and Blunsom, Optimizing Performance of Recurrent Neural Networks on GPUs, arXiv:1604.01946). The GRU applies
its reset gate after the product, as that paper's library does, so that its three products are a single GEMM.

The layer's input is as wide as h and is added to every gate: its projection, one GEMM over all steps, is
not part of the recurrence. The weight update is left out, as in `model=gemm`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fastflow.core.dedupe import map_values
from fastflow.core.field import count, text
from fastflow.core.tables import Inputs
from fastflow.physics.workload.autodiff import backward, forward
from fastflow.physics.workload.family import Family, independent_rows
from fastflow.physics.workload.graph import FORWARD, HIDDEN, INPUT_GRADIENT, WEIGHT_GRADIENT, Kernel
from fastflow.physics.workload.network import AMOUNTS, INPUT, Layer, Network, Node, PassCost, connect
from fastflow.physics.workload.ops import elementwise, gemm
from fastflow.physics.workload.precision import Precision


class Cell(NamedTuple):
    """Cost of a cell's pass, per element of h; moves count elements read and written."""

    gates: int
    moves: int
    flop: int
    backward_moves: int
    backward_flop: int
    kept: int  # elements saved for the backward pass, besides h


# Forward, read + written: products of all gates, input x and what is carried on from the step before;
# activated gates, what is kept or carried on, h. Operations: x and biases added, an activation as one, the
# new state. Backward: what was kept, the gradients of h from above and from the step after, what is
# carried; gradients of the gates, of what is carried, and of x, which is their sum.
CELLS = {
    # h = f(p + x + b)
    "rnn_relu": Cell(1, 2 + 1, 3, 3 + 2, 2, 0),
    "rnn_tanh": Cell(1, 2 + 1, 3, 3 + 2, 4, 0),
    # r, i and the candidate n = tanh(x + r (p + b)); h = (1 - i) n + i h'; r, i, n and p + b are kept
    "gru": Cell(3, 5 + 5, 3 + 3 + 4 + 4, 8 + 5, 20, 4),
    # as of `model=lstm_lm`, and x for every gate
    "lstm": Cell(4, 6 + 6, 13 + 4, 9 + 6, 24 + 3, 5),
}


PARTS = ("all", "forward", "backward_inputs", "backward_weights")


def network(points: Inputs) -> Network:
    """Return the network of each point's layer."""
    costs_of = {
        name: map_values({cell: float(costs[index]) for cell, costs in CELLS.items()}, points["model.cell"])
        for index, name in enumerate(Cell._fields)
    }
    h, batch, steps = points["model.hidden"], points["model.batch"], points["model.sequence"]
    gates, kept = costs_of["gates"].astype(np.int64), costs_of["kept"].astype(np.int64)
    recurrent = Node(
        name="recurrent product", type=gemm.TYPE, rows=batch, cols=gates * h, inner=h, steps=steps,
        reads=("gates",), keeps=0,
    )  # fmt: skip
    pointwise = Node(
        name="gates", type=elementwise.TYPE, rows=batch, cols=h, steps=steps,
        reads=("recurrent product", INPUT), keeps=kept * h,
        cost=PassCost(*(costs_of[name] for name in AMOUNTS)),
    )  # fmt: skip
    return connect([Layer("rnn", HIDDEN, (recurrent, pointwise))], needs_input_gradient=True)


def part_of(kernel: Kernel) -> str:
    """Return the part of the layer that a kernel belongs to, as `model.part` names it."""
    if kernel.phase == FORWARD:
        return "forward"
    return "backward_weights" if kernel.kind == WEIGHT_GRADIENT else "backward_inputs"


def kernels(network: Network, points: Inputs, precision: Precision) -> list[Kernel]:
    """Return the kernels of the selected part; for all parts, `model.training` adds the backward pass."""
    part, training = str(points["model.part"][0]), bool(points["model.training"][0])
    launches = forward(network, training, precision)
    if training or part != "all":
        launches += backward(network, precision)
    if part == "all":
        return launches
    # the layer's weights and their gradients are in memory, though their forward product is not run
    return [
        kernel._replace(memory=kernel.memory._replace(weights=1))
        if kernel.kind in (INPUT_GRADIENT, WEIGHT_GRADIENT)
        else kernel
        for kernel in launches
        if part_of(kernel) == part
    ]


FAMILY = Family(
    name="rnn",
    work="recurrent",
    structure=(
        text(
            "model.part",
            "timed part of a recurrent layer; all: forward, and backward if model.training; other"
            " parts: alone",
            PARTS,
        ),
    ),
    sizes=(
        text("model.cell", "recurrent cell", tuple(CELLS)),
        count("model.hidden", "hidden units of a recurrent layer"),
        count("model.batch", "sequences of the global batch"),
        count("model.sequence", "time steps per sequence"),
    ),
    network=network,
    kernels=kernels,
    rows=independent_rows("model.batch"),
    multiplied=("model.batch", "model.sequence"),
)
