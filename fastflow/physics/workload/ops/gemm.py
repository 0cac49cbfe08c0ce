"""A product with weights: rows x inner times inner x cols, or each group of rows times separate weights.

Row-Column gathers its input, and the gradient of its output.
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
    Dims,
    Form,
    Kernel,
    PerElement,
    RegatheredOperand,
    Sum,
)
from fastflow.physics.workload.network import OUTSIDE, KernelType, Network, Node, Size
from fastflow.physics.workload.ops.elementwise import TYPE as PASS
from fastflow.physics.workload.precision import Precision
from fastflow.physics.workload.sharding_rules import COLS, GROUPS, INNER, PARTIAL, REPLICATE, ROWS


def _prologue(network: Network, i: int, kernel: Kernel, precision: Precision) -> list[Kernel]:
    """Return the passes that convert its weights, and quantise its input, where the product has them."""
    node = network.nodes[i].node
    kernels = [_conversion_pass(node, kernel, precision)] if node.passes.conversion else []
    if not node.passes.quantises_input:
        return kernels
    form = Form(PASS, Dims(node.dims.rows, (), node.dims.inner))
    return [*kernels, _quantize_pass(kernel._replace(form=form, cols=node.inner), precision)]


def _conversion_pass(node: Node, kernel: Kernel, precision: Precision) -> Kernel:
    """Return the pass that converts stored weights to the operands' type, once for all steps."""
    return kernel._replace(
        label=f"{kernel.label} dequantise", kind=ON_WEIGHTS, rows=1,
        launches=kernel.launches._replace(repeat=1, products=node.groups),
        per_element=PerElement(node.base_bytes + precision.operand, node.passes.conversion),
    )  # fmt: skip


def _quantize_pass(kernel: Kernel, precision: Precision) -> Kernel:
    """Return a pass that reads activations once and writes all quantised copies that products read.

    Scales are from the largest magnitudes of earlier steps (Transformer Engine's delayed scaling), or of
    blocks.
    """
    return kernel._replace(
        label=f"{kernel.label} quantise", kind=ON_ACTIVATIONS, inner=1,
        per_element=PerElement(precision.activation + precision.quantised, precision.quantising),
    )  # fmt: skip


def _gradient_add_pass(product: Kernel, precision: Precision) -> Kernel:
    """Return the pass that adds a weight gradient to the sum over micro-batches."""
    return product._replace(
        label=f"{product.label} sum", kind=ON_WEIGHTS, rows=1, gradient=NO_GRADIENT,
        per_element=PerElement(bytes=precision.output + 2.0 * precision.gradient, flop=1.0),
    )  # fmt: skip


def _forward(network: Network, i: int, kernel: Kernel, precision: Precision) -> Kernel:
    return kernel._replace(launches=kernel.launches._replace(products=network.nodes[i].node.groups))


def _backward(network: Network, i: int, kernel: Kernel, precision: Precision) -> list[Kernel]:
    """Return the products for the gradients of its input, where needed, and of its weights.

    A pass for the gradient of biases comes first: it sums the output's gradient over all rows.
    """
    node = network.nodes[i].node
    kernels = [_quantize_pass(kernel, precision)] if node.passes.quantises_gradient else []
    if node.passes.conversion:
        kernels.append(_conversion_pass(node, kernel, precision))
    if np.any(node.vectors):
        kernels.append(_bias_gradient(node, kernel, precision))
    trained_reads = [read for read in network.nodes[i].reads if network.needs_gradient(read)]
    if trained_reads:
        kernels.append(_input_gradient(network, i, kernel, trained_reads))
    weights = _weight_gradient(node, kernel)
    return (
        [*kernels, weights, _gradient_add_pass(weights, precision)]
        if node.passes.adds_gradient
        else [*kernels, weights]
    )


def _bias_gradient(node: Node, kernel: Kernel, precision: Precision) -> Kernel:
    """Return the pass that sums the gradient of the output over all rows."""
    return kernel._replace(
        label=f"{node.name} bias gradient", kind=ON_ACTIVATIONS, inner=1,
        per_element=PerElement(bytes=precision.activation, flop=1.0), comm=kernel.comm._replace(side=1),
    )  # fmt: skip


def _weight_gradient(node: Node, kernel: Kernel) -> Kernel:
    """Return the product for the gradient of the weights, of all steps at once."""
    return kernel._replace(
        label=f"{node.name} weight gradient", kind=WEIGHT_GRADIENT, rows=node.rows * node.steps,
        launches=kernel.launches._replace(repeat=1, products=node.groups), gradient=DENSE,
        comm=kernel.comm._replace(side=1),
    )  # fmt: skip


def _input_gradient(network: Network, i: int, kernel: Kernel, trained_reads: Sequence[int]) -> Kernel:
    """Return the product for the gradient of its inputs; trained_reads: those that need one."""
    instance = network.nodes[i]
    node = instance.node
    # the step before needs the result of this kernel's collective
    recurs = any(read >= i for read in instance.reads)
    sums = _input_sums(network, i, trained_reads)
    comm = kernel.comm._replace(
        wait=1 if recurs else 2,
        peer_kind=network.neighbour(i, (read for read in trained_reads if read != OUTSIDE)),
        summed_cols=sum((_read_cols(network, i, read) for read, _ in sums), 0),
    )
    product = kernel._replace(
        label=f"{node.name} input gradient", kind=INPUT_GRADIENT,
        inner=node.inner if len(trained_reads) == len(instance.reads) else _cols_of(network, trained_reads),
        launches=kernel.launches._replace(products=node.groups),
        sums=tuple(total for _, total in sums), comm=comm,
    )  # fmt: skip
    if not node.passes.regathers_input:
        return product
    # overlapped, as the sum of the input's gradient is
    regathered = tuple(
        RegatheredOperand(network.form(read), node.form, even_unshared=True) for read in instance.reads
    )
    return product._replace(regathered=regathered, comm=comm._replace(shared_cols=node.inner))


def _input_sums(network: Network, i: int, trained_reads: Sequence[int]) -> list[tuple[int, Sum]]:
    """Return the inputs whose gradient sum this product completes, each with the sum."""
    contributors = [
        (read, [i] if read == OUTSIDE else _contributors(network, i, read)) for read in trained_reads
    ]
    return [
        (read, Sum(network.form(read), tuple(network.nodes[product].node.form for product in products)))
        for read, products in contributors
        if products[0] == i
    ]


def _read_cols(network: Network, i: int, read: int) -> Size:
    """Return the columns that a product reads of an input; of the network's input, all other columns."""
    if read != OUTSIDE:
        return network.nodes[read].node.output
    instance = network.nodes[i]
    return instance.node.inner - _cols_of(network, [other for other in instance.reads if other != OUTSIDE])


def _cols_of(network: Network, reads: Sequence[int]) -> Size:
    """Return the columns of several kernels side by side."""
    return sum((network.nodes[read].node.output for read in reads), 0)


def _contributors(network: Network, i: int, read: int) -> list[int]:
    """Return the products of a product's layer that add to a gradient, the last in backward order first.

    An input of the step before has a separate gradient sum.
    """
    if read >= i:
        return [i]
    layer, readers = network.nodes[i].layer, network.readers[read]
    first = bisect_left(network.nodes, layer, key=lambda instance: instance.layer)
    in_layer = range(bisect_left(readers, max(first, read + 1)), len(readers))
    below = itertools.takewhile(
        lambda reader: network.nodes[reader].layer == layer, (readers[reader] for reader in in_layer)
    )
    return [reader for reader in below if network.nodes[reader].node.type.kind == PRODUCT]


def _check(at: str, node: Node, cols: Sequence[int | None], rows: int) -> int:
    """Check that it contracts all columns of its inputs, concatenated."""
    read = sum(width for width in cols if width is not None)
    unknown = sum(width is None for width in cols)
    inner = int(node.inner)
    if inner < read + unknown or (inner != read and not unknown):
        inputs = f"the columns of what it reads ({listed(node.reads)})"
        raise wrong(f"{at}.inner", f"{'above ' if unknown else ''}{read}, {inputs}", inner)
    return (inner - read) // max(unknown, 1)


TYPE = KernelType(
    name="gemm",
    title="product",
    kind=PRODUCT,
    gradient=DENSE,
    sides={ROWS: ROWS, INNER: INNER, COLS: COLS},
    reads=({ROWS: ROWS, INNER: INNER, COLS: REPLICATE, GROUPS: GROUPS},),
    makes={ROWS: ROWS, INNER: PARTIAL, COLS: COLS, GROUPS: GROUPS},
    required=("inner", "cols"),
    optional=("rows", "steps", "groups", "reads"),
    forward=_forward,
    backward=_backward,
    prologue=_prologue,
    check=_check,
)
