"""The kernels of an iteration, derived from a network's layers.

A network is described by its forward pass. Rules derive the backward pass, in reverse order; the update of
every weight; the tensors that each kernel completes and others read; the activations saved for the backward
pass; and the tensors that cross the border of a layer.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastflow.core.tables import Ints
from fastflow.physics.workload.graph import (
    BACKWARD,
    BASE,
    BASE_BYTES,
    DENSE,
    FORWARD,
    HEAD,
    HIDDEN,
    INPUT_GRADIENT,
    NO_COMM,
    ON_WEIGHTS,
    PRODUCT,
    UPDATE,
    Comm,
    Form,
    Kernel,
    Launches,
    LayerOfKernel,
    PerElement,
    RegatheredOperand,
)
from fastflow.physics.workload.network import Network, Node, Size
from fastflow.physics.workload.newton_schulz import orthogonalized
from fastflow.physics.workload.optimizers import GATHERED, MOVED, NEWTON_SCHULZ, PASSED, of_rules
from fastflow.physics.workload.precision import Precision

Elements = NDArray[Any] | float

# Square and add, a weight.
NORM_FLOP = 2.0


def kernels(network: Network, training: bool, precision: Precision) -> list[Kernel]:
    """Return the kernels of an iteration, in the order in which a device launches them."""
    launches = forward(network, training, precision)
    if training:
        launches += backward(network, precision) + update(network, precision)
    return launches


def forward(network: Network, training: bool, precision: Precision) -> list[Kernel]:
    """Return the kernels of the forward pass."""
    crossing = _border_elements(network, [True] * len(network.nodes))
    launches: list[Kernel] = []
    for i, instance in enumerate(network.nodes):
        if instance.node.type.prologue is not None:
            base = _kernel(network, i, FORWARD, instance.node.name)
            if instance.node.modules < 0:
                base = base._replace(memory=base.memory._replace(modules=instance.node.modules))
            launches += instance.node.type.prologue(network, i, base, precision)
        kernel = _forward(network, i, precision)
        if instance.node.base_bytes:
            kernel = _of_base(instance.node, kernel)
        if training:
            kernel = _save_for_backward(network, i, kernel)
        if i + 1 == len(network.nodes) or network.nodes[i + 1].layer > instance.layer:
            comm = kernel.comm._replace(sent_cols=cols_of(crossing[_border_above(network, i)], kernel))
            # only memory-bound passes read it, or nothing
            if all(form.type.kind != PRODUCT for form in kernel.readers):
                comm = comm._replace(peer_kind=network.neighbour(i, network.readers[i]))
            kernel = kernel._replace(comm=comm)
        launches.append(kernel)
    return launches


def _of_base(node: Node, kernel: Kernel) -> Kernel:
    """Return a kernel with the bytes of a weight of a base, where it reads such weights."""
    if node.weights < BASE:
        return kernel
    return kernel._replace(attributes={**kernel.attributes, BASE_BYTES: node.base_bytes})


def _kernel(network: Network, i: int, phase: int, label: str) -> Kernel:
    """Return the common part of a node's kernel, to which the kernel type adds."""
    instance = network.nodes[i]
    node = instance.node
    return Kernel(
        label=label, form=node.form, phase=phase, kind=node.type.kind,
        rows=node.rows, inner=node.inner, cols=node.cols, wide=int(node.wide),
        launches=Launches(repeat=node.steps, times=instance.times, batch=node.batch, products=1),
        layer=LayerOfKernel(instance.layer, instance.kind, node.part),
        comm=_no_comm(instance.kind),
    )  # fmt: skip


@lru_cache(maxsize=256)
def _no_comm(peer_kind: int) -> Comm[Any]:
    return NO_COMM._replace(peer_kind=peer_kind)


def _forward(network: Network, i: int, precision: Precision) -> Kernel:
    node = network.nodes[i].node
    products = [reader for reader in network.readers[i] if network.nodes[reader].node.type.kind == PRODUCT]
    readers: list[Form] = []
    shared: Elements = 0.0
    for consumer in network.readers[i]:
        reader = network.nodes[consumer].node
        if len(reader.type.reads) == 1:
            readers.append(reader.form)
            continue
        uses = [form for read, form in network.operands(consumer) if read == i]
        readers += uses
        shared = shared + _shared(reader, uses)
    if node.type.kind == PRODUCT and not readers:
        readers.append(node.form)  # the reader of the network's output reads it as a further product would
    kernel = _kernel(network, i, FORWARD, node.name)
    comm = kernel.comm._replace(
        read_cols=node.cols, summed_cols=node.cols, peer_kind=network.neighbour(i, products)
    )
    if isinstance(shared, np.ndarray) or shared:
        comm = comm._replace(shared_cols=np.minimum(cols_of(shared, kernel), node.output))
    memory = kernel.memory._replace(weights=node.weights, modules=node.modules)
    kernel = kernel._replace(readers=tuple(readers), comm=comm, memory=memory)
    return node.type.forward(network, i, kernel, precision)


def _shared(node: Node, operands: Iterable[Form]) -> Elements:
    """Return the elements of the operands of a node that all of its rows need."""
    assert node.type.shared is not None
    return sum((node.type.shared(node, form.operand) for form in operands if form.operand), 0.0)


def _save_for_backward(network: Network, i: int, kernel: Kernel) -> Kernel:
    """Save the output for the backward pass: whole where a product reads it, as Row-Column gathers it."""
    node = network.nodes[i].node
    if node.frozen and not any(network.requires_grad[user] for user in (i, *network.readers[i])):
        return kernel
    kinds = {network.nodes[reader].node.type.kind for reader in network.readers[i]}
    whole = node.cols if PRODUCT in kinds else 0
    sharded = node.cols if kinds and PRODUCT not in kinds else 0
    memory = kernel.memory._replace(
        saved_cols=sharded if node.keeps is None else node.keeps,
        saved_whole_cols=whole if node.keeps_whole is None else node.keeps_whole,
        transient_cols=node.transient,
    )
    return kernel._replace(memory=memory)


def cols_of(elements: Elements, kernel: Kernel) -> Ints:
    """Return the columns of a number of elements, laid out in the rows of a kernel's launches."""
    return np.rint(elements / (1.0 * kernel.rows * kernel.launches.repeat)).astype(np.int64)


def backward(network: Network, precision: Precision) -> list[Kernel]:
    """Return the kernels of the backward pass."""
    gathers = _gathers(network)
    crossing = _border_elements(network, network.requires_grad)
    launches: list[Kernel] = []
    start = 0
    for i in reversed(range(len(network.nodes))):
        instance = network.nodes[i]
        if instance.node.frozen and not network.requires_grad[i]:
            continue
        kernel = _kernel(network, i, BACKWARD, f"{instance.node.name} gradient")
        gradients = instance.node.type.backward(network, i, kernel, precision)
        if instance.node.frozen:
            gradients = [
                _of_base(instance.node, gradient) for gradient in gradients if not gradient.comm.side
            ]
        if gradients and len(instance.node.type.reads) > 1:
            previous, at = (launches, _last(launches)) if launches else (gradients, 0)
            previous[at] = _regather_operand(network, i, previous[at])
        if gradients and i in gathers:
            last = _last(gradients)
            gradients[last] = _gather(network, i, gathers[i], gradients[last])
        launches += gradients
        if instance.layer > 0 and network.nodes[i - 1].layer < instance.layer and len(launches) > start:
            last = start + _last(launches[start:])
            sent_cols = cols_of(crossing[instance.layer - 1], launches[last])
            comm = launches[last].comm._replace(sent_cols=sent_cols)
            if launches[last].kind != INPUT_GRADIENT:
                comm = comm._replace(peer_kind=network.nodes[i - 1].kind)
            launches[last] = launches[last]._replace(comm=comm)
            start = len(launches)
    return launches


def _regather_operand(network: Network, i: int, kernel: Kernel) -> Kernel:
    """Let the kernel before a node's gradient kernels gather the operand that all of its rows need."""
    operands = network.operands(i)
    regathered = tuple(RegatheredOperand(network.form(read), form) for read, form in operands if form.operand)
    shared = _shared(network.nodes[i].node, (form for _, form in operands))
    comm = kernel.comm._replace(shared_cols=cols_of(shared, kernel))
    return kernel._replace(regathered=regathered, comm=comm)


def _last(kernels: Sequence[Kernel]) -> int:
    """Return the last kernel whose result more than the update reads, or else the last kernel."""
    return max((i for i, kernel in enumerate(kernels) if not kernel.comm.side), default=len(kernels) - 1)


def _gathers(network: Network) -> dict[int, list[int]]:
    """Return, by node, the products whose output gradient is complete and gathered after the node's kernel.

    In backward order the node is the first reader of the output, or the product itself without a reader.
    """
    gathered: dict[int, list[int]] = {}
    for i, instance in enumerate(network.nodes):
        if instance.node.type.kind == PRODUCT:
            if instance.node.passes.shares_gradient:
                continue
            if instance.node.base_bytes and not network.requires_grad[i]:
                continue
            present = [reader for reader in network.readers[i] if reader > i]
            gathered.setdefault(min(present or network.readers[i], default=i), []).append(i)
    return gathered


def _gather(network: Network, i: int, products: Sequence[int], kernel: Kernel) -> Kernel:
    """Let a node's kernel produce the output gradients of the products, which it completes."""
    outputs = [network.nodes[product].node for product in products]
    elements: Elements = sum((_rows(node) * node.cols for node in outputs), 0.0)
    comm = kernel.comm._replace(
        read_cols=cols_of(elements, kernel), wait=1 if i in products else kernel.comm.wait
    )
    if kernel.kind != INPUT_GRADIENT:
        comm = comm._replace(peer_kind=network.neighbour(i, products))
    return kernel._replace(readers=tuple(node.form for node in outputs), comm=comm)


def update(network: Network, precision: Precision) -> list[Kernel]:
    """Return the kernels of the weight update: the norm of every gradient, then every update."""
    base = Kernel(label="", form=network.nodes[0].node.form, phase=UPDATE, kind=ON_WEIGHTS, rows=1)
    norm = base._replace(
        label="gradient norm", statistics=True, per_element=PerElement(precision.gradient, NORM_FLOP)
    )
    change = {is_matrix: _change(base, precision, is_matrix) for is_matrix in (False, True)}
    owners = [instance for instance in network.nodes if instance.node.has_weights]
    until_updates = range(len(owners), 0, -1)  # the first update needs the statistics of the norms
    return [
        pass_._replace(
            label=f"{instance.node.name} {pass_.label}",
            form=_orthogonalized(instance.node.form) if pass_.attributes else instance.node.form,
            inner=_updated_rows(instance.node), cols=instance.node.cols,
            launches=Launches(1, instance.times, instance.node.batch, instance.node.groups),
            layer=LayerOfKernel(instance.layer, instance.kind, instance.node.part),
            comm=NO_COMM._replace(peer_kind=instance.kind, wait=wait),
        )
        for is_norm, waits in ((True, until_updates), (False, [1] * len(owners)))
        for instance, wait in zip(owners, waits, strict=True)
        for pass_ in (norm if is_norm else change[is_hidden_matrix(instance.node)],)
    ]  # fmt: skip


def is_hidden_matrix(node: Node) -> bool:
    """Say whether a node's weights are matrices of hidden layers, which an optimizer may update as such."""
    return node.type.kind == PRODUCT and node.part != HEAD


def _change(base: Kernel, precision: Precision, is_matrix: bool) -> Kernel:
    """Return the update of weights; of matrices, with attributes where all of a matrix is needed."""
    traffic, flop = precision.update_traffic(is_matrix), precision.update_flop(is_matrix)
    change = base._replace(label="update", per_element=PerElement(traffic, flop))
    iterations = of_rules(precision.optimizer, is_matrix, "iterations")
    if not np.any(iterations > 0.0):
        return change
    gathered = of_rules(precision.optimizer, is_matrix, "gathered")
    attributes = {NEWTON_SCHULZ: iterations, MOVED: traffic, PASSED: flop, GATHERED: gathered}
    return change._replace(attributes=attributes)


@lru_cache
def _orthogonalized(form: Form) -> Form:
    """Return the form of an update that iterates on whole matrices."""
    return form._replace(type=orthogonalized(form.type))


def _updated_rows(node: Node) -> Size:
    """Return the weight rows that an iteration updates: of an embedding table, at most the rows looked up."""
    if node.type.gradient == DENSE:
        return node.inner
    return np.minimum(node.inner, node.rows * node.steps)


def _border_elements(network: Network, is_counted: Sequence[bool]) -> list[Elements]:
    """Return, for every layer, the elements of all tensors produced at or below it and read above it."""
    crossing: list[Elements] = [0.0] * (network.nodes[-1].layer + 1)
    for instance, readers, counts in zip(network.nodes, network.readers, is_counted, strict=True):
        highest = max((network.nodes[reader].layer for reader in readers), default=0)
        for border in range(instance.layer, highest if counts else 0):
            crossing[border] = crossing[border] + _rows(instance.node) * instance.node.cols
    return crossing


def _border_above(network: Network, i: int) -> int:
    """Return the layer below the border after a layer whose last node is `i`.

    Of a run of hidden layers it is that between two of them, which is like the border before the first: the
    tensors from below that all of them read cross it too.
    """
    instance = network.nodes[i]
    is_single = isinstance(instance.times, int) and instance.times == 1
    is_run = instance.kind == HIDDEN and not is_single and 0 < instance.layer < network.nodes[-1].layer
    return instance.layer - is_run


def _rows(node: Node) -> Elements:
    """Return the rows of all launches."""
    return 1.0 * node.rows * node.steps * (node.batch if node.is_batched else 1)
