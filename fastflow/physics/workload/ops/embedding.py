"""Look-ups of rows of a table of inner x cols, its weights."""

from __future__ import annotations

from fastflow.physics.workload.graph import ON_ACTIVATIONS, SPARSE, Kernel, PerElement
from fastflow.physics.workload.network import AMOUNTS, KernelType, Network
from fastflow.physics.workload.precision import Precision
from fastflow.physics.workload.sharding_rules import COLS, INNER, PARTIAL, REPLICATE, ROWS

# Elements read and written per element looked up. Forward: a row in, a row out. Gradient: a row in, the
# table's gradient row in and out.
LOOKUP_MOVES, SCATTER_MOVES, SCATTER_FLOP = 2.0, 3.0, 1.0


def _forward(network: Network, i: int, kernel: Kernel, precision: Precision) -> Kernel:
    node = network.nodes[i].node
    moves = LOOKUP_MOVES if node.cost.moves is None else node.cost.moves
    return kernel._replace(per_element=PerElement(moves * precision.activation, node.cost.flop))


def _backward(network: Network, i: int, kernel: Kernel, precision: Precision) -> list[Kernel]:
    node = network.nodes[i].node
    moves = SCATTER_MOVES if node.cost.backward_moves is None else node.cost.backward_moves
    flop = SCATTER_FLOP if node.cost.backward_flop is None else node.cost.backward_flop
    return [
        kernel._replace(
            per_element=PerElement(moves * precision.activation, flop),
            gradient=node.type.gradient,
            comm=kernel.comm._replace(side=1),
        )
    ]


TYPE = KernelType(
    name="lookup",
    title="lookup",
    kind=ON_ACTIVATIONS,
    gradient=SPARSE,
    sides={ROWS: ROWS, COLS: COLS},  # the table is sharded by the name of its rows only
    reads=({ROWS: ROWS, INNER: INNER, COLS: REPLICATE},),
    makes={ROWS: ROWS, INNER: PARTIAL, COLS: COLS},
    required=("vocabulary", "cols"),
    optional=("rows", *AMOUNTS),
    forward=_forward,
    backward=_backward,
    check=lambda at, node, cols, rows: 0,  # it reads nothing
)
