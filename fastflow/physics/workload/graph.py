"""Compute graphs: tables of kernels in the order in which a device launches them.

The graph is of the whole, unsharded model. Each kernel holds the dimensions of its layer's distributed GEMM
(rows of the batch, inner and column dimension of the weights), and the tensors that it completes, so that
`physics.parallelism.sharding.propagation` can shard it by any assignment.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache, partial
from types import MappingProxyType
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from fastflow.core.jit import kernel
from fastflow.core.tables import Floats, Ints, Texts, concat_tables, map_columns, take
from fastflow.physics.workload.sharding_rules import ShardingRule

# phases
FORWARD, BACKWARD, UPDATE = 0, 1, 2
PHASES = ("forward", "backward", "update")

# kinds of kernel. The first three are the GEMMs of a layer Y[rows, cols] = X[rows, inner] W[inner, cols]:
PRODUCT = 0  # Y = X W
INPUT_GRADIENT = 1  # dX = dY W^T
WEIGHT_GRADIENT = 2  # dW = X^T dY
ON_ACTIVATIONS = 3  # a memory-bound pass over rows x cols
ON_WEIGHTS = 4  # a memory-bound pass over inner x cols
BATCHED = 5  # `products` products of two activations, rows / products x inner times inner x cols each
PRODUCTS = (PRODUCT, INPUT_GRADIENT, WEIGHT_GRADIENT, BATCHED)

# collectives
NO_EXCHANGE, ALL_GATHER, REDUCE_SCATTER, ALL_REDUCE, ALL_TO_ALL, POINT_TO_POINT, BROADCAST = range(7)
COLLECTIVES = (
    "", "all-gather", "reduce-scatter", "all-reduce", "all-to-all", "point-to-point", "broadcast",
)  # fmt: skip

# kinds of layer: each may have a separate kernel parallelism
EMBEDDING, HIDDEN, SOFTMAX = 0, 1, 2
LAYER_KINDS = ("embedding", "hidden", "softmax")

# the part of a layer that a kernel belongs to
OTHER, ATTENTION, FEED_FORWARD, EXPERTS, HEAD = range(5)
PARTS = ("other", "attention", "feed_forward", "experts", "lm_head")
BESIDE = 5
"""Part of a server's shared experts, which run beside the routed ones (`serving.passes.kernel_sums`)."""

# weights that a kernel owns: frozen ones have no gradient and no optimizer state; those of a base are frozen
# beside trained weights, and ZeRO shards them; another kernel may own them
NO_WEIGHTS, TRAINED, FROZEN, BASE, OTHERS_BASE = 0, 1, 2, 3, 4
BASE_BYTES = "base_bytes"
"""Attribute of a kernel that reads weights of a base: the bytes of one, as it is stored."""

# how a kernel's result becomes a weight gradient
NO_GRADIENT, DENSE, SPARSE = 0, 1, 2


class Dims(NamedTuple):
    """Names of the dimensions that multiply to the sides of a kernel, such as ("batch", "sequence")."""

    rows: tuple[str, ...] = ()
    inner: tuple[str, ...] = ()
    cols: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()


class Form(NamedTuple):
    """What decides how a forward kernel can be sharded, and the placements of its inputs and outputs."""

    type: ShardingRule
    dims: Dims = Dims()
    operand: int = 0  # index of the operand that it reads, or whose gradient it produces
    # whether a later kernel sums its partial sums, where all devices need the sum
    defers_sum: bool = False


class Sum(NamedTuple):
    """A gradient sum that a backward kernel completes, as the last kernel of its layer to add to it."""

    producer: Form | None  # of the tensor; None outside the network
    contributors: tuple[Form, ...]  # kernels of the layer that add to the sum, this kernel included


class RegatheredOperand(NamedTuple):
    """An operand of a later backward kernel, saved sharded and gathered once more."""

    producer: Form | None
    reader: Form
    even_unshared: bool = False  # even where devices do not share it: saved with its maker's placement


class KernelSignature(NamedTuple):
    """What decides the collectives after a kernel, whatever its sizes."""

    phase: int
    kind: int
    form: Form  # of its forward kernel
    readers: tuple[Form, ...]  # readers of its output; backward: products whose output gradient it completes
    sums: tuple[Sum, ...]
    regathered: tuple[RegatheredOperand, ...]  # operands that all devices that share them gather once more
    statistics: bool  # whether it needs every row's maximum, sum or sum of squares
    gradient: int


Attributes = Mapping[str, Floats | Ints | float]
"""Attributes of a kernel that its type needs to time it, in addition to the sides."""
NO_ATTRIBUTES: Attributes = MappingProxyType({})


Count = Ints | int
Number = TypeVar("Number")
"""In a kernel: a number, or a column of shape (points,); in a graph: a column of shape (kernels,)."""


class Launches(NamedTuple, Generic[Number]):
    """Launches of a kernel, and the GEMMs of a launch."""

    repeat: Number  # sequential launches
    times: Number  # layers that have this kernel, which the graph holds once
    batch: Number  # independent GEMMs in a launch, each sharded
    products: Number  # GEMMs that share its rows in a launch, each on a single shard


class PerElement(NamedTuple, Generic[Number]):
    """Cost of an element of a memory-bound pass."""

    bytes: Number  # moved
    flop: Number  # of a product too; 0: 2 inner


class Comm(NamedTuple, Generic[Number]):
    """Columns of the tensors that a kernel's communication moves, and which kernel waits for it."""

    read_cols: Number  # columns that its readers read, or differentiate
    shared_cols: Number  # of these, columns that every row needs, or that are in `regathered`
    summed_cols: Number  # columns of the gradients that it completes
    sent_cols: Number  # columns that a pipeline split at the layer's border sends after this kernel
    peer_kind: Number  # layer kind at the other end
    wait: Number  # rows until the kernel that needs the result of the collective
    side: Number  # 1 where only the update reads the result: weight gradients


NO_COMM: Comm[Count] = Comm(0, 0, 0, 0, peer_kind=HIDDEN, wait=1, side=0)
"""Of a kernel whose output no other kernel reads."""


class Memory(NamedTuple, Generic[Number]):
    """Weights and saved activations of a kernel."""

    # TRAINED, FROZEN or BASE on the kernel that owns them, OTHERS_BASE on another one that reads a base;
    # inner x cols for each of its products
    weights: Number
    saved_cols: Number  # columns saved for the backward pass, sharded with the layer
    saved_whole_cols: Number  # saved whole under Row-Column, since the product reads them whole
    modules: Number  # bits of `recompute_modules`: parts of a layer that are recomputed for themselves
    transient_cols: Number  # columns that a device has during a launch, or its gradient's, as saved ones


class LayerOfKernel(NamedTuple, Generic[Number]):
    """The layer of a kernel."""

    number: Number  # in the model, repeated layers counted
    kind: Number  # of LAYER_KINDS, or index of the described layer: a column of layouts
    part: Number  # of PARTS


class Kernel(NamedTuple):
    """A kernel of a compute graph; values are scalars, or columns of shape (points,).

    Dimensions are those of the whole, unsharded model. A flat row, since models name the fields that differ
    from the defaults: a nested record would have to be built for each of them.
    """

    label: str
    form: Form
    phase: int
    kind: int
    rows: Count
    inner: Count = 1
    cols: Count = 1
    launches: Launches[Count] = Launches(1, 1, 1, 1)
    per_element: PerElement[Floats | float] = PerElement(0.0, 0.0)
    readers: tuple[Form, ...] = ()
    sums: tuple[Sum, ...] = ()
    regathered: tuple[RegatheredOperand, ...] = ()
    statistics: bool = False
    gradient: int = NO_GRADIENT
    comm: Comm[Count] = NO_COMM
    memory: Memory[Count] = Memory(0, 0, 0, 0, 0)
    layer: LayerOfKernel[Count] = LayerOfKernel(0, HIDDEN, OTHER)
    wide: int = 0  # 1: the product computes in the data type of activations
    attributes: Attributes = NO_ATTRIBUTES


Structure = tuple[KernelSignature, ...]
"""The kernels of a point, without their sizes."""
_NO_NAMES: Any = np.zeros(0, dtype=np.int64)
_NO_ATTRIBUTE_COLUMNS: Any = ()


class Graph(NamedTuple):
    """Kernels of all points as flat columns: those of point p are rows offset[p] to offset[p+1].

    The columns from `phase` on are the fields of `Kernel` with these names. Each array but `offset`, `names`
    and `structure` has an entry a kernel. A flat table, as `Kernel` is a flat row.
    """

    offset: Ints  # (points + 1,)
    names: Texts  # the labels
    structures: tuple[Structure, ...]
    structure: Ints  # index into structures, (points,)
    point: Ints
    label: Ints  # index into names
    phase: Ints
    kind: Ints
    rows: Ints
    inner: Ints
    cols: Ints
    launches: Launches[Ints]
    per_element: PerElement[Floats]
    gradient: Ints
    comm: Comm[Ints]
    memory: Memory[Ints]
    layer: LayerOfKernel[Ints]
    wide: Ints
    attributes: Mapping[str, Floats]  # by name; 0 where a kernel lacks it

    @property
    def numbers(self) -> Graph:
        """The graph without texts, structures and `attributes`, for whose length Numba would compile anew."""
        return self._replace(names=_NO_NAMES, structures=(), attributes=_NO_ATTRIBUTE_COLUMNS)


_COLUMNS = tuple(field for field in Graph._fields[Graph._fields.index("phase") :] if field != "attributes")
"""Columns, and records of columns, that are fields of `Kernel` too."""


def stack(kernels: list[Kernel], points: int) -> Graph:
    """Return a list of kernels, whose values are scalars or columns of shape (points,), as a graph."""

    def flatten(*values: Any, dtype: Any) -> NDArray[Any]:
        if np.ndarray not in map(type, values):
            return _tile_row(np.dtype(dtype).str, np.array(values, dtype=dtype).tobytes(), points)
        table = np.empty((points, len(values)), dtype=dtype)
        for position, value in enumerate(values):
            table[:, position] = value
        return table.reshape(-1)

    fields = dict(zip(Kernel._fields, zip(*kernels, strict=True), strict=True))
    names, label = np.unique(fields["label"], return_inverse=True)
    count = len(kernels)
    columns = {
        field: map_columns(
            partial(flatten, dtype=np.float64 if field == "per_element" else np.int64), *fields[field]
        )
        for field in _COLUMNS
    }
    return Graph(
        offset=np.arange(points + 1, dtype=np.int64) * count,
        names=names,
        structures=(tuple(map(KernelSignature, *map(fields.__getitem__, KernelSignature._fields))),),
        structure=np.zeros(points, dtype=np.int64),
        point=np.repeat(np.arange(points, dtype=np.int64), count),
        label=np.tile(label.astype(np.int64), points),
        attributes=_stack_attributes(kernels, points),
        **columns,
    )


def _stack_attributes(kernels: list[Kernel], points: int) -> dict[str, Floats]:
    """Return the attributes of the kernels as flat columns, as `stack` does."""
    columns: dict[str, Floats] = {}
    for position, entry in enumerate(kernels):
        for name, value in entry.attributes.items():
            if name not in columns:
                columns[name] = np.zeros((points, len(kernels)))
            columns[name][:, position] = value
    return {name: column.reshape(-1) for name, column in columns.items()}


def join(graphs: list[Graph], members: list[Ints]) -> Graph:
    """Join graphs of disjoint sets of points, in the order of the points.

    members: for each graph, the indices of its points in the joined graph.
    """
    if len(graphs) == 1:
        return graphs[0]
    names = np.unique(np.concatenate([graph.names for graph in graphs]))
    point = np.concatenate([rows[graph.point] for graph, rows in zip(graphs, members, strict=True)])
    order = np.argsort(point, kind="stable")
    columns = concat_tables([{field: getattr(graph, field) for field in _COLUMNS} for graph in graphs])
    attributes = {
        name: np.concatenate([graph.attributes.get(name, np.zeros(graph.point.size)) for graph in graphs])
        for name in dict.fromkeys(name for graph in graphs for name in graph.attributes)
    }
    label = np.concatenate([np.searchsorted(names, graph.names)[graph.label] for graph in graphs])
    count = np.bincount(point, minlength=sum(rows.size for rows in members))
    offset = np.concatenate([[0], np.cumsum(count)]).astype(np.int64)
    structure = np.empty(offset.size - 1, dtype=np.int64)
    before = np.cumsum([0, *(len(graph.structures) for graph in graphs)])
    for graph, rows, first in zip(graphs, members, before[:-1], strict=True):
        structure[rows] = graph.structure + first
    return Graph(
        offset=offset,
        names=names,
        structures=tuple(structure for graph in graphs for structure in graph.structures),
        structure=structure,
        point=point[order],
        label=label[order],
        attributes=take(attributes, order),
        **take(columns, order),
    )


def take_points(graph: Graph, index: Ints) -> Graph:
    """Return the graph of the points `index`, which may repeat, of a graph; index: (points,)."""
    columns: dict[str, Any] = {field: getattr(graph, field) for field in ("label", *_COLUMNS, "attributes")}
    kernels = np.diff(graph.offset)
    count = kernels[index]
    offset = np.concatenate([[0], np.cumsum(count)])
    point = np.repeat(np.arange(index.size), count)
    if kernels.size and (kernels == kernels[0]).all():  # whole rows of a table are copied faster

        def copy(column: NDArray[Any]) -> NDArray[Any]:
            return _take_rows(column.reshape(kernels.size, -1), index)

        columns = map_columns(copy, columns)
    else:
        columns = take(columns, np.arange(point.size) + np.repeat(graph.offset[index] - offset[:-1], count))
    return Graph(offset, graph.names, graph.structures, graph.structure[index], point, **columns)


def _take_rows(table: NDArray[Any], index: Ints) -> NDArray[Any]:
    """Return rows of a table, flattened; a table of equal rows, as of a structure, is cached."""
    if index.size and (table == table[0]).all():
        return _tile_row(table.dtype.str, table[0].tobytes(), index.size)
    rows: NDArray[Any] = table[index].reshape(-1)
    return rows


@lru_cache(maxsize=32)
def _tile_row(dtype: str, row: bytes, times: int) -> NDArray[Any]:
    """Return a row tiled `times` times, cached across chunks: columns of a graph are read-only."""
    return np.tile(np.frombuffer(row, dtype), times)


def sum_by_point(graph: Graph, values: Floats) -> Floats:
    """Return the sum of a quantity over the kernels of each point, shape (points,)."""
    total: Floats = np.bincount(graph.point, values, graph.offset.size - 1).astype(np.float64, copy=False)
    return total


@kernel
def sum_by_kind(offset: Ints, kind: Ints, values: Floats, kinds: int) -> Floats:
    """Return the sum of a quantity over the kernels of each point by kernel kind, (points, kinds)."""
    total = np.zeros((offset.size - 1, kinds))
    for p in range(offset.size - 1):
        for row in range(offset[p], offset[p + 1]):
            total[p, kind[row]] += values[row]
    return total


def max_by_point(graph: Graph, values: Floats) -> Floats:
    """Return the maximum of a quantity over the kernels of each point, at least 0, shape (points,)."""
    return _most_by_point(graph.offset, values)


@kernel
def _most_by_point(offset: Ints, values: Floats) -> Floats:
    most = np.zeros(offset.size - 1)
    for p in range(most.size):
        for row in range(offset[p], offset[p + 1]):
            most[p] = max(most[p], values[row])
    return most


def model_flop(graph: Graph) -> Floats:
    """Return the operations of an iteration of the whole model [flop], shape (points,).

    A GEMM counts 2 m k n however it is sharded, any other kernel its operations an element.
    """
    return _model_flop(graph.numbers)


@kernel
def _model_flop(graph: Graph) -> Floats:
    total = np.zeros(graph.offset.size - 1)
    for row in range(graph.point.size):
        is_product = graph.kind[row] <= WEIGHT_GRADIENT or graph.kind[row] == BATCHED
        if is_product and graph.per_element.flop[row] == 0.0:
            flop = 2.0 * graph.rows[row] * graph.inner[row] * graph.cols[row]
        else:
            # `inner` of a lookup is of its table, which the kernel does not pass over
            passed = graph.rows[row]
            if graph.kind[row] == ON_WEIGHTS:
                passed = graph.inner[row] * graph.launches.products[row]
            flop = graph.per_element.flop[row] * (passed * 1.0 * graph.cols[row])
        launches = graph.launches.times[row] * graph.launches.repeat[row] * graph.launches.batch[row]
        total[graph.point[row]] += launches * flop
    return total
