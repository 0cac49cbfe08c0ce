"""A product with weights of its own: rows x inner times inner x cols, or a group of rows each times its own.

Row-Column gathers what it reads, and the gradient of its output.
"""

from __future__ import annotations

import itertools
from bisect import bisect_left
from collections.abc import Sequence

import numpy as np

from fastflow.core.yaml_file import listed, wrong
from fastflow.physics.workload.graph import (
    DENSE,
    INPUT_GRADIENT,
    NO_GRADIENT,
    ON_ACTIVATIONS,
    ON_WEIGHTS,
    PRODUCT,
    WEIGHT_GRADIENT,
    Again,
    Dims,
    Form,
    Kernel,
    Sum,
)
from fastflow.physics.workload.network import OUTSIDE, KernelType, Network, Node
from fastflow.physics.workload.ops.elementwise import TYPE as PASS
from fastflow.physics.workload.precision import MAXIMUM_FLOP, QUANTISE_FLOP, Precision
from fastflow.physics.workload.sharding_rules import BROADCAST, COLS, GROUPS, INNER, PARTIAL, ROWS


def _inside(network: Network, i: int, kernel: Kernel, numbers: Precision) -> list[Kernel]:
    """Return the pass that quantises what it reads, where a product has one of its own."""
    node = network.nodes[i].node
    if not node.quantises_input:
        return []
    form = Form(PASS, Dims(node.dims.rows, (), node.dims.inner))
    return [_quantising(kernel._replace(form=form, cols=node.inner), numbers)]


def _quantising(kernel: Kernel, numbers: Precision) -> Kernel:
    """Return a pass that reads activations once and writes all copies of them that products read.

    Scales are those of the steps before, whose largest magnitudes are kept (Transformer Engine's delayed
    scaling), or of blocks.
    """
    return kernel._replace(
        label=f"{kernel.label} quantise", kind=ON_ACTIVATIONS, inner=1,
        bytes_per_element=numbers.activation + numbers.quantised,
        flop_per_element=MAXIMUM_FLOP + QUANTISE_FLOP,
    )  # fmt: skip


def _adding(product: Kernel, numbers: Precision) -> Kernel:
    """Return the pass that reads a weight gradient and adds it to the sum of all micro-batches."""
    return product._replace(
        label=f"{product.label} sum", kind=ON_WEIGHTS, rows=1, gradient=NO_GRADIENT,
        bytes_per_element=numbers.output + 2.0 * numbers.gradient, flop_per_element=1.0,
    )  # fmt: skip


def _forward(network: Network, i: int, kernel: Kernel, numbers: Precision) -> Kernel:
    return kernel._replace(products=network.nodes[i].node.groups)


def _backward(network: Network, i: int, kernel: Kernel, numbers: Precision) -> list[Kernel]:
    """Return the products that make the gradients of its input, where wanted, and of its weights.

    Where it has biases, their gradient comes first, a pass that sums that of its output over all rows.
    """
    placed = network.nodes[i]
    node = placed.node
    biases = kernel._replace(
        label=f"{node.name} bias gradient", kind=ON_ACTIVATIONS, inner=1, side=1, flop_per_element=1.0,
        bytes_per_element=numbers.activation,
    )  # fmt: skip
    first = [_quantising(kernel, numbers)] if node.quantises_gradient else []
    if np.any(node.vectors):
        first.append(biases)
    to_weights = kernel._replace(
        label=f"{node.name} weight gradient", kind=WEIGHT_GRADIENT, rows=node.rows * node.steps, repeat=1,
        products=node.groups, gradient=DENSE, side=1,
    )  # fmt: skip
    wanted = [read for read in placed.reads if network.wants(read)]
    last = [to_weights, _adding(to_weights, numbers)] if node.adds_apart else [to_weights]
    if not wanted:
        return [*first, *last]
    inner = node.inner
    if len(wanted) < len(placed.reads):
        inner = sum((network.nodes[read].node.output for read in wanted), 0)
    recurs = any(read >= i for read in placed.reads)  # the step before needs what this one exchanges
    adders = [(read, [i] if read == OUTSIDE else _adders(network, i, read)) for read in wanted]
    summed = [(read, every) for read, every in adders if every[0] == i]
    rest = sum((network.nodes[read].node.output for read in placed.reads if read != OUTSIDE), 0)
    cols = (node.inner - rest if read == OUTSIDE else network.nodes[read].node.output for read, _ in summed)
    product = kernel._replace(
        label=f"{node.name} input gradient", kind=INPUT_GRADIENT, inner=inner, products=node.groups,
        wait=1 if recurs else 2,
        peer_kind=network.neighbour(i, (read for read in wanted if read != OUTSIDE)),
        sums=tuple(
            Sum(network.form(read), tuple(network.nodes[at].node.form for at in every))
            for read, every in summed
        ),
        summed_cols=sum(cols, 0),
    )  # fmt: skip
    if node.gathers_again:  # hidden as the sum of the input's gradient is
        again = tuple(Again(network.form(read), node.form, lies=True) for read in placed.reads)
        product = product._replace(again=again, shared_cols=node.inner)
    return [*first, product, *last]


def _adders(network: Network, i: int, read: int) -> list[int]:
    """Return the products of a product's layer that add to a gradient, the last one in backward order first.

    What was read a step ago has its gradient summed on its own.
    """
    if read >= i:
        return [i]
    layer, readers = network.nodes[i].layer, network.readers[read]
    first = bisect_left(network.nodes, layer, key=lambda placed: placed.layer)
    inside = range(bisect_left(readers, max(first, read + 1)), len(readers))
    below = itertools.takewhile(lambda at: network.nodes[at].layer == layer, (readers[at] for at in inside))
    return [at for at in below if network.nodes[at].node.type.kind == PRODUCT]


def _check(at: str, node: Node, cols: Sequence[int | None], rows: int) -> int:
    """Check that it contracts all columns that it reads, side by side."""
    read = sum(one for one in cols if one is not None)
    unknown = sum(one is None for one in cols)
    inner = int(node.inner)
    if inner < read + unknown or (inner != read and not unknown):
        what = f"the columns of what it reads ({listed(node.reads)})"
        raise wrong(f"{at}.inner", f"{'above ' if unknown else ''}{read}, {what}", inner)
    return (inner - read) // max(unknown, 1)


TYPE = KernelType(
    name="gemm",
    title="product",
    kind=PRODUCT,
    gradient=DENSE,
    sides={ROWS: ROWS, INNER: INNER, COLS: COLS},
    reads=({ROWS: ROWS, INNER: INNER, COLS: BROADCAST, GROUPS: GROUPS},),
    makes={ROWS: ROWS, INNER: PARTIAL, COLS: COLS, GROUPS: GROUPS},
    needs=("inner", "cols"),
    takes=("rows", "steps", "groups", "reads"),
    forward=_forward,
    backward=_backward,
    inside=_inside,
    check=_check,
)
