"""Independent products of two activations, rows x inner times inner x cols each.

The products are distributed, or the rows of the left operand are sharded: all devices need the whole right
operand then (attention's keys and values).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fastflow.core.yaml_file import MAX_NUMBER, listed, wrong
from fastflow.physics.workload.graph import BATCHED, NO_GRADIENT, Dims, Kernel
from fastflow.physics.workload.network import Amount, KernelType, Network, Node, Side, Size
from fastflow.physics.workload.precision import Precision
from fastflow.physics.workload.sharding_rules import COLS, GROUPS, INNER, REPLICATE, ROWS


def _resized(kernel: Kernel, node: Node, rows: Size, inner: Size, cols: Size) -> Kernel:
    launches = kernel.launches._replace(batch=1, products=node.batch)
    return kernel._replace(rows=node.batch * rows, inner=inner, cols=cols, launches=launches)


def _forward(network: Network, i: int, kernel: Kernel, precision: Precision) -> Kernel:
    node = network.nodes[i].node
    return _resized(kernel, node, node.rows, node.inner, node.cols)


def _backward(network: Network, i: int, kernel: Kernel, precision: Precision) -> list[Kernel]:
    node = network.nodes[i].node
    if not any(map(network.needs_gradient, network.nodes[i].reads)):
        return []
    gradients = []
    for (read, form), name in zip(network.operands(i), ("left", "right"), strict=True):
        sides = (node.inner, node.rows, node.cols) if form.operand else (node.rows, node.cols, node.inner)
        gradients.append(
            _resized(kernel, node, *sides)._replace(
                label=f"{node.name} {name} gradient", form=form, sums=network.sums([(read, form)]),
                comm=kernel.comm._replace(summed_cols=sides[-1]),
            )
        )  # fmt: skip
    return gradients


def _shared_elements(node: Node, operand: int) -> Amount:
    elements: Any = 1.0 * node.batch * node.inner * node.cols
    return elements  # type: ignore[no-any-return]


def _from_file(
    where: str, node: Node, sides: Mapping[str, Side], model: Side, fields: Mapping[str, Any]
) -> Node:
    """Distribute its products: over groups of the model's rows, and of columns."""
    batch, rows = int(node.batch), int(node.rows)
    if batch * max(rows, int(node.inner)) > MAX_NUMBER:
        raise wrong(f"{where}.batch", f"so small that no side times batch exceeds {MAX_NUMBER:.0e}", batch)
    width, rest = divmod(batch * rows * int(node.cols), model.size)
    if rest or width > MAX_NUMBER:
        allowed = f"such that batch x rows x cols is a multiple of the {model.size} rows of the model"
        raise wrong(f"{where}.batch", allowed, batch)
    batch_names = sides["batch"].names
    rows_of_product = tuple(name for name in sides["rows"].names if name in model.names)
    groups = tuple(name for name in batch_names if name in model.names)
    of_cols = tuple(name for name in batch_names if name not in model.names)
    return node._replace(width=width, dims=Dims(rows_of_product, (), of_cols, groups))


def _check(at: str, node: Node, cols: Sequence[int | None], rows: int) -> int:
    """Check that its input has enough elements; it may read a part of them: columns are unknown."""
    if len(cols) > 2:
        raise wrong(f"{at}.reads", "one or two kernels", listed(node.reads))
    elements = int(node.batch) * int(node.rows) * int(node.inner)
    if cols[0] is not None and elements > cols[0] * rows:
        allowed = f"so small that batch x rows x inner is at most the {cols[0] * rows} elements it reads"
        raise wrong(f"{at}.inner", allowed, node.inner)
    return 0


TYPE = KernelType(
    name="batched_gemm",
    title="batched product",
    kind=BATCHED,
    gradient=NO_GRADIENT,
    sides={ROWS: GROUPS, INNER: COLS, COLS: COLS},
    reads=(
        {ROWS: ROWS, COLS: COLS, GROUPS: ROWS},
        {ROWS: REPLICATE, COLS: COLS, GROUPS: ROWS},
    ),
    makes={ROWS: ROWS, COLS: COLS, GROUPS: ROWS},
    required=("batch", "rows", "inner", "cols"),
    optional=("reads",),
    forward=_forward,
    backward=_backward,
    check=_check,
    from_file=_from_file,
    shared=_shared_elements,
)
