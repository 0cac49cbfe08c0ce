"""An elementwise pass: each element of rows x cols from the elements at the same index."""

from __future__ import annotations

from collections.abc import Sequence

from fastflow.core.yaml_file import wrong
from fastflow.physics.workload.graph import NO_GRADIENT, ON_ACTIVATIONS, Kernel, PerElement
from fastflow.physics.workload.network import AMOUNTS, Amount, KernelType, Network, Node
from fastflow.physics.workload.precision import Precision
from fastflow.physics.workload.sharding_rules import COLS, OUTPUT, ROWS


def _tensors(network: Network, i: int, passes: int) -> Amount:
    """Return elements moved per element of the output: the output, and `passes` times the inputs."""
    instance = network.nodes[i]
    read = sum((network.read_cols(i, source) / instance.node.output for source in instance.reads), 0.0)
    return 1.0 + passes * read


def _forward(network: Network, i: int, kernel: Kernel, precision: Precision) -> Kernel:
    node = network.nodes[i].node
    moves = _tensors(network, i, 1) if node.cost.moves is None else node.cost.moves
    return kernel._replace(per_element=PerElement(moves * precision.activation, node.cost.flop))


def _backward(network: Network, i: int, kernel: Kernel, precision: Precision) -> list[Kernel]:
    node = network.nodes[i].node
    trained_reads = [read for read in network.nodes[i].reads if network.needs_gradient(read)]
    if not trained_reads:
        return []
    moves = _tensors(network, i, 2) if node.cost.backward_moves is None else node.cost.backward_moves
    flop = node.cost.flop if node.cost.backward_flop is None else node.cost.backward_flop
    summed_cols = sum((network.share(i, read) for read in trained_reads), 0)
    return [
        kernel._replace(
            per_element=PerElement(moves * precision.activation, flop),
            sums=network.sums(network.operands(i)),
            comm=kernel.comm._replace(summed_cols=summed_cols),
        )
    ]


def _check(at: str, node: Node, cols: Sequence[int | None], rows: int) -> int:
    """Check that its columns divide the columns of each input."""
    out_cols = int(node.cols)
    for name, width in zip(node.reads, cols, strict=True):
        if width is not None and width % out_cols:
            raise wrong(f"{at}.cols", f"a divisor of the {width} columns that it reads ({name})", out_cols)
    return out_cols


TYPE = KernelType(
    name="elementwise",
    title="elementwise",
    kind=ON_ACTIVATIONS,
    gradient=NO_GRADIENT,
    sides={ROWS: ROWS, COLS: COLS},
    reads=(OUTPUT,),
    makes=OUTPUT,
    required=("cols",),
    optional=("rows", "steps", "groups", "reads", *AMOUNTS),
    forward=_forward,
    backward=_backward,
    check=_check,
)
