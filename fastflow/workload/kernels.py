"""The kernels of one iteration that follow from a network's layers.

Whoever describes a network writes down its forward pass. By rule follow the backward pass, in reverse
order; the update of every weight; which tensors each kernel completes, that others read; what is kept for
the backward pass; and what crosses the border of a layer.
"""

from __future__ import annotations

import itertools
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastflow.tables import Ints
from fastflow.workload.graph import (
    BACKWARD,
    BATCHED,
    DENSE,
    FORWARD,
    INPUT_GRADIENT,
    ON_ACTIVATIONS,
    ON_WEIGHTS,
    PRODUCT,
    SPARSE,
    UPDATE,
    WEIGHT_GRADIENT,
    Form,
    Kernel,
    Sum,
)
from fastflow.workload.layers import (
    BATCHED_GEMM,
    GEMM,
    LOOKUP,
    OUTSIDE,
    ROWWISE,
    Amount,
    Network,
    Node,
    Placed,
    Size,
)
from fastflow.workload.precision import Precision

Elements = NDArray[Any] | float

# Elements that are read and written, per element looked up: a row in, a row out; its gradient, a row of the
# table's in, out.
LOOKUP_MOVES, SCATTER_MOVES, SCATTER_FLOP = 2.0, 3.0, 1.0
# Square and add, a weight.
NORM_FLOP = 2.0


def kernels(network: Network, training: bool, precision: Precision) -> list[Kernel]:
    """Return the kernels of one iteration, in the order in which a device launches them."""
    found = forward(network, training, precision.operand)
    if training:
        found += backward(network, precision.operand) + update(network, precision)
    return found


def forward(network: Network, training: bool, size: Amount) -> list[Kernel]:
    """Return the kernels of the forward pass; size: bytes of an element, (points,)."""
    crossing = _crossing(network, [True] * len(network.nodes))
    found = []
    for i, placed in enumerate(network.nodes):
        kernel = _forward(network, i, size)
        if training:
            kernel = _keep(network, i, kernel)
        if i + 1 == len(network.nodes) or network.nodes[i + 1].layer > placed.layer:
            kernel = kernel._replace(sends_cols=_cols(crossing[placed.layer], kernel))
            if all(form.type != GEMM for form in kernel.readers):  # passes read it, if anything does
                kernel = kernel._replace(peer_kind=_neighbour(network, placed, network.readers[i]))
        found.append(kernel)
    return found


def _on_activations(placed: Placed, phase: int, label: str) -> Kernel:
    """Return a kernel over the elements of a node's output."""
    node = placed.node
    return Kernel(
        label=label,
        form=node.form,
        phase=phase,
        kind=ON_ACTIVATIONS,
        rows=node.rows,
        cols=node.cols,
        repeat=node.steps,
        layer=placed.layer,
        layer_kind=placed.kind,
        peer_kind=placed.kind,
    )


def _forward(network: Network, i: int, size: Amount) -> Kernel:
    placed = network.nodes[i]
    node = placed.node
    kernel = _on_activations(placed, FORWARD, node.name)
    products = [reader for reader in network.readers[i] if network.nodes[reader].node.type == GEMM]
    readers = tuple(network.nodes[reader].node.form for reader in network.readers[i])
    if node.type == GEMM and not readers:
        readers = (node.form,)  # whoever takes the network's output reads it as one more product would
    kernel = kernel._replace(
        readers=readers, read_cols=node.cols, peer_kind=_neighbour(network, placed, products)
    )
    if node.type == GEMM:
        return kernel._replace(
            kind=PRODUCT, inner=node.inner, batch=node.batch, weights=1, summed_cols=node.cols
        )
    if node.type == BATCHED_GEMM:
        return _batched(kernel, node, node.rows, node.inner, node.cols)
    if node.type == LOOKUP:
        moves = LOOKUP_MOVES if node.moves is None else node.moves
        return kernel._replace(
            inner=node.inner, weights=1, summed_cols=node.cols,
            bytes_per_element=moves * size, flop_per_element=node.flop,
        )  # fmt: skip
    moves = _tensors(network, i, 1) if node.moves is None else node.moves
    return kernel._replace(
        bytes_per_element=moves * size, flop_per_element=node.flop, statistics=node.type == ROWWISE
    )


def _neighbour(network: Network, placed: Placed, others: Iterable[int]) -> int:
    """Return the kind of the first of some nodes that is in another layer; of this one where none is."""
    kinds = (network.nodes[other].kind for other in others if network.nodes[other].layer != placed.layer)
    return next(kinds, placed.kind)


def _batched(kernel: Kernel, node: Node, rows: Size, inner: Size, cols: Size) -> Kernel:
    """Make a kernel one of independent products, rows x inner times inner x cols each."""
    return kernel._replace(kind=BATCHED, rows=node.batch * rows, inner=inner, cols=cols, products=node.batch)


def _tensors(network: Network, i: int, passes: int) -> Amount:
    """Return the elements of the output, and so many times those read, per element of the output."""
    node = network.nodes[i].node
    read: Amount = 0.0
    for place in network.nodes[i].reads:
        read = read + (1.0 if place == OUTSIDE else network.nodes[place].node.output / node.output)
    return 1.0 + passes * read


def _keep(network: Network, i: int, kernel: Kernel) -> Kernel:
    """Keep what the backward pass reads: whole where a product reads it, since Row-Column gathers that."""
    node = network.nodes[i].node
    types = {network.nodes[reader].node.type for reader in network.readers[i]}
    whole = node.cols if GEMM in types else 0
    kept = node.cols if types and GEMM not in types else 0
    return kernel._replace(
        kept_cols=kept if node.keeps is None else node.keeps,
        kept_whole_cols=whole if node.keeps_whole is None else node.keeps_whole,
    )


def _cols(elements: Elements, kernel: Kernel) -> Ints:
    """Return the columns of so many elements, laid out in the rows of a kernel's launches."""
    return np.rint(elements / (1.0 * kernel.rows * kernel.repeat)).astype(np.int64)


def backward(network: Network, size: Amount) -> list[Kernel]:
    """Return the kernels of the backward pass; size: bytes of an element, (points,)."""
    gathers = _gathers(network)
    crossing = _crossing(network, network.trained)
    found: list[Kernel] = []
    start = 0
    for i in reversed(range(len(network.nodes))):
        layer = network.nodes[i].layer
        found += _backward(network, i, size, gathers.get(i, []))
        if layer > 0 and network.nodes[i - 1].layer < layer and len(found) > start:
            # the last kernel whose result others than the update read; any where there is none
            main = [row for row in range(start, len(found)) if not found[row].side]
            last = main[-1] if main else len(found) - 1
            found[last] = found[last]._replace(sends_cols=_cols(crossing[layer - 1], found[last]))
            if found[last].kind != INPUT_GRADIENT:
                found[last] = found[last]._replace(peer_kind=network.nodes[i - 1].kind)
            start = len(found)
    return found


def _gathers(network: Network) -> dict[int, list[int]]:
    """Return the products whose output's gradient is complete, and gathered, after a node's kernel.

    In backward order that is the first node that reads the output, or the product itself where none does.
    """
    found: dict[int, list[int]] = {}
    for i, placed in enumerate(network.nodes):
        if placed.node.type == GEMM:
            present = [reader for reader in network.readers[i] if reader > i]
            found.setdefault(min(present or network.readers[i], default=i), []).append(i)
    return found


def _backward(network: Network, i: int, size: Amount, gathers: Sequence[int]) -> list[Kernel]:
    placed = network.nodes[i]
    node = placed.node
    kernel = _on_activations(placed, BACKWARD, f"{node.name} gradient")
    if node.type == GEMM:
        return _backward_gemm(network, i, kernel, gathers)
    if node.type == LOOKUP:
        moves = SCATTER_MOVES if node.backward_moves is None else node.backward_moves
        flop = SCATTER_FLOP if node.backward_flop is None else node.backward_flop
        return [
            kernel._replace(
                inner=node.inner, bytes_per_element=moves * size, flop_per_element=flop,
                gradient=SPARSE, side=1,
            )
        ]  # fmt: skip
    if not any(network.wants(read) for read in placed.reads):
        return []
    if node.type == BATCHED_GEMM:
        left = _batched(kernel, node, node.rows, node.cols, node.inner)
        right = _batched(kernel, node, node.inner, node.rows, node.cols)
        if len(placed.reads) > 1:
            left = _add(network, placed, placed.reads[:1], left, node.inner)
            right = _add(network, placed, placed.reads[1:], right, node.cols)
        else:  # parts of one tensor, which is complete after the second
            right = _add(network, placed, placed.reads, right, node.rows + node.cols)
        return [
            left._replace(label=f"{node.name} left gradient"),
            _gather(network, placed, gathers, right._replace(label=f"{node.name} right gradient")),
        ]
    wanted = [read for read in placed.reads if network.wants(read)]
    outputs = (node.output if read == OUTSIDE else network.nodes[read].node.output for read in wanted)
    kernel = _add(network, placed, wanted, kernel, sum(outputs, 0))
    moves = _tensors(network, i, 2) if node.backward_moves is None else node.backward_moves
    flop = node.flop if node.backward_flop is None else node.backward_flop
    kernel = kernel._replace(bytes_per_element=moves * size, flop_per_element=flop)
    # the gradient of a loss needs no more than the forward pass has exchanged
    statistics = node.type == ROWWISE and bool(network.readers[i])
    return [_gather(network, placed, gathers, kernel)._replace(statistics=statistics)]


def _add(network: Network, placed: Placed, reads: Sequence[int], kernel: Kernel, cols: Size) -> Kernel:
    """Let a kernel add to the gradients of some tensors that its node reads, of so many columns in all."""
    form = placed.node.form
    sums = tuple(Sum(_maker(network, read), (form,)) for read in reads if network.wants(read))
    return kernel._replace(sums=sums, summed_cols=cols if sums else 0)


def _maker(network: Network, read: int) -> Form | None:
    return None if read == OUTSIDE else network.nodes[read].node.form


def _gather(network: Network, placed: Placed, products: Sequence[int], kernel: Kernel) -> Kernel:
    """Let a kernel make the gradients of the outputs of some products, which it completes."""
    if not products:
        return kernel
    made: Elements = sum((_rows(network.nodes[i].node) * network.nodes[i].node.cols for i in products), 0.0)
    peer = _neighbour(network, placed, products)
    readers = tuple(network.nodes[i].node.form for i in products)
    return kernel._replace(readers=readers, read_cols=_cols(made, kernel), peer_kind=peer)


def _backward_gemm(network: Network, i: int, kernel: Kernel, gathers: Sequence[int]) -> list[Kernel]:
    """Return the products that make the gradients of a product's input, where wanted, and of its weights."""
    placed = network.nodes[i]
    node = placed.node
    to_weights = kernel._replace(
        label=f"{node.name} weight gradient", kind=WEIGHT_GRADIENT, rows=node.rows * node.steps, repeat=1,
        inner=node.inner, batch=node.batch, gradient=DENSE, side=1,
    )  # fmt: skip
    wanted = [read for read in placed.reads if network.wants(read)]
    if not wanted:
        return [_gather(network, placed, gathers, to_weights)]
    inner = node.inner
    if len(wanted) < len(placed.reads):
        inner = sum((network.nodes[read].node.output for read in wanted), 0)
    peer = _neighbour(network, placed, (read for read in wanted if read != OUTSIDE))
    recurs = any(read >= i for read in placed.reads)  # the step before needs what this one exchanges
    product = _gather(network, placed, gathers, kernel)._replace(
        label=f"{node.name} input gradient", kind=INPUT_GRADIENT, inner=inner, batch=node.batch,
        wait=1 if i in gathers or recurs else 2, peer_kind=peer,
    )  # fmt: skip
    adders = [(read, [i] if read == OUTSIDE else _adders(network, i, read)) for read in wanted]
    summed = [(read, every) for read, every in adders if every[0] == i]
    rest = sum((network.nodes[read].node.output for read in placed.reads if read != OUTSIDE), 0)
    cols = (node.inner - rest if read == OUTSIDE else network.nodes[read].node.output for read, _ in summed)
    sums = tuple(
        Sum(_maker(network, read), tuple(network.nodes[at].node.form for at in every))
        for read, every in summed
    )
    return [product._replace(sums=sums, summed_cols=sum(cols, 0)), to_weights]


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
    return [at for at in below if network.nodes[at].node.type == GEMM]


def update(network: Network, precision: Precision) -> list[Kernel]:
    """Return the kernels of the weight update: the norm of every gradient, then every update."""
    change = Kernel(
        label="update", form=Form(GEMM), phase=UPDATE, kind=ON_WEIGHTS, rows=1,
        bytes_per_element=precision.update_traffic, flop_per_element=precision.update_flop,
    )  # fmt: skip
    norm = change._replace(
        label="gradient norm", statistics=True,
        bytes_per_element=precision.operand, flop_per_element=NORM_FLOP,
    )  # fmt: skip
    owners = [placed for placed in network.nodes if placed.node.has_weights]
    until_updates = range(len(owners), 0, -1)  # the first one is what needs the norms' statistics
    return [
        pass_._replace(
            label=f"{placed.node.name} {pass_.label}", form=placed.node.form,
            inner=_touched(placed.node), cols=placed.node.cols,
            batch=placed.node.batch, layer=placed.layer, layer_kind=placed.kind, peer_kind=placed.kind,
            wait=wait,
        )
        for pass_, waits in ((norm, until_updates), (change, [1] * len(owners)))
        for placed, wait in zip(owners, waits, strict=True)
    ]  # fmt: skip


def _touched(node: Node) -> Size:
    """Return the rows of the weights that an iteration updates: of a table, at most one a row looked up."""
    if node.type == GEMM:
        return node.inner
    return np.minimum(node.inner, node.rows * node.steps)


def _crossing(network: Network, counted: Sequence[bool]) -> list[Elements]:
    """Return the elements of all tensors made at or below a layer and read above it, for every layer."""
    crossing: list[Elements] = [0.0] * (network.nodes[-1].layer + 1)
    for placed, readers, counts in zip(network.nodes, network.readers, counted, strict=True):
        highest = max((network.nodes[reader].layer for reader in readers), default=0)
        for border in range(placed.layer, highest if counts else 0):
            crossing[border] = crossing[border] + _rows(placed.node) * placed.node.cols
    return crossing


def _rows(node: Node) -> Elements:
    """Return the rows of all launches."""
    return 1.0 * node.rows * node.steps * (node.batch if node.type == BATCHED_GEMM else 1)
