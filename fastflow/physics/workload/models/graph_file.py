"""`model=graph`: a network that the user writes down as a YAML file (the paper's input 5; docs/graphs.md)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from math import prod
from typing import Any, NamedTuple

import numpy as np

from fastflow.core.dedupe import factorize
from fastflow.core.field import text
from fastflow.core.tables import Bools, Inputs, Ints
from fastflow.core.yaml_file import (
    MistakeError,
    amount_of,
    choice_of,
    entries_of,
    listed,
    mapping_of,
    one_of,
    read_current,
    read_version,
    whole,
    wrong,
)
from fastflow.physics.workload.autodiff import kernels
from fastflow.physics.workload.family import Family
from fastflow.physics.workload.graph import LAYER_KINDS, Dims
from fastflow.physics.workload.network import AMOUNTS, INPUT, Layer, Network, Node, PassCost, Side, connect
from fastflow.physics.workload.ops import TYPES
from fastflow.physics.workload.precision import UNSIZED

KEY = "model.file"
# repeated layers count once per repetition
MAX_BORDERS = 5_000_000  # borders of layers that tensors cross
_MAX_TOTALS = {  # and the limit's text: forward kernels, tensors that they read, elements
    "kernels": (100_000, "100000"),
    "reads": (1_000_000, "1000000"),
    "elements of outputs": (4 * 10**18, "4e+18"),
}

_RESERVED = ("rows", "inner", "cols")  # names of the sides of every kernel
_KEEPS = ("keeps", "keeps_whole")
_ALIASES = {"kv_heads": "heads"}  # groups of heads that share keys are sharded as heads are


def read_network(path: str) -> Network:
    """Return the network that a file describes; an unchanged file is cached.

    Raises InputError, which names the invalid node and the allowed values.
    """
    return read_current(KEY, _parse_version, path).network


def outline(path: str) -> tuple[int, int, int]:
    """Return layers, rows and sequences of a file's network; raises InputError."""
    return read_current(KEY, _parse_version, path)[1:]


class _Version(NamedTuple):
    """The network of a version of a file, and the sizes that strategies need."""

    network: Network
    layers: int  # that a pipeline can split between
    rows: int  # of a launch of the forward kernel with the fewest rows; of batched products, their number
    sequences: int  # groups of rows that sharding may not split; 0 where rows are independent


@lru_cache(maxsize=64)
def _parse_version(path: str, changed: int, size: int) -> _Version:
    document = read_version(path, size)
    network = connect(_layers(document))
    nodes = network.nodes
    crossed = sum(
        nodes[readers[-1]].layer - instance.layer
        for instance, readers in zip(nodes, network.readers, strict=True)
        if readers
    )
    if crossed > MAX_BORDERS:
        raise MistakeError(f"a file whose tensors cross at most {MAX_BORDERS:,} borders of layers in all")
    rows = [instance.node.batch if instance.node.is_batched else instance.node.rows for instance in nodes]
    sequences = document.get("sequences", 0)
    return _Version(network, nodes[-1].layer + 1, min(map(int, rows)), sequences)


@lru_cache(maxsize=64)
def _count(path: str, changed: int, size: int, training: bool) -> int:
    return len(kernels(_parse_version(path, changed, size).network, training, UNSIZED))


class _Context(NamedTuple):
    """The model's rows and dimensions, and the tensors read so far."""

    rows: Side
    dimensions: Mapping[str, int]
    cols: dict[str, int]  # of every tensor, by "layer.kernel"


def _dimensions(value: Any) -> dict[str, int]:
    """Return the dimensions that a file names, with their sizes."""
    if not isinstance(value, dict):
        raise wrong("dimensions", "a mapping of names to whole numbers", value)
    for name in value:
        if not isinstance(name, str) or not name.isidentifier() or name in _RESERVED:
            allowed = f"named by letters, digits and _, other than {listed(_RESERVED)}"
            raise wrong("dimensions", allowed, name)
    return {name: whole(f"dimensions.{name}", size) for name, size in value.items()}


def _side(where: str, value: Any, dimensions: Mapping[str, int]) -> Side:
    """Return a side: a number, a dimension's name, or a list of them, which multiply."""
    parts = value if isinstance(value, list) and value else [value]
    is_dimension = [isinstance(part, str) and part.isidentifier() and bool(dimensions) for part in parts]
    names = tuple(
        _ALIASES.get(choice_of(where, part, tuple(dimensions)), part)
        for part, is_name in zip(parts, is_dimension, strict=True)
        if is_name
    )
    sizes = [
        dimensions[part] if is_name else whole(where, part)
        for part, is_name in zip(parts, is_dimension, strict=True)
    ]
    return Side(whole(where, prod(sizes)), names)


def _layers(document: Any) -> list[Layer]:
    fields = mapping_of("", document, ("rows", "layers"), ("name", "dimensions", "sequences", "source"))
    dimensions = _dimensions(fields.get("dimensions", {}))
    context = _Context(_side("rows", fields["rows"], dimensions), dimensions, {})
    if "sequences" in fields and context.rows.size % whole("sequences", fields["sequences"]):
        raise wrong("sequences", f"a divisor of its {context.rows.size} rows", fields["sequences"])
    layers: dict[str, Layer] = {}
    below: int | None = None  # columns that enter the layer, where they are known
    total: tuple[int, ...] = (0, 0, 0)
    for number, entry in enumerate(entries_of("layers", fields["layers"])):
        where = f"layers.{_name(f'layers[{number}]', entry, layers)}"
        layer = _layer(where, entry, context)
        total = _add(where, total, layer)
        below = _check_layer(where, layer, context, below)
        layers[layer.name] = layer
    return list(layers.values())


def _add(where: str, total: Iterable[int], layer: Layer) -> tuple[int, ...]:
    """Add a layer to the totals that _MAX_TOTALS bounds; raises MistakeError where a total is too large."""
    nodes = layer.nodes
    reads = sum(len(node.reads) for node in nodes)
    elements = sum(int(node.rows) * int(node.steps) * int(node.cols) * int(node.batch) for node in nodes)
    of_layer = (len(nodes), reads, elements)
    totals = tuple(so_far + layer.repeat * added for so_far, added in zip(total, of_layer, strict=True))
    for amount, (quantity, (bound, bound_text)) in zip(totals, _MAX_TOTALS.items(), strict=True):
        if amount > bound:
            raise wrong(
                f"{where}.repeat", f"so small that there are at most {bound_text} {quantity}", layer.repeat
            )
    return totals


def _layer(where: str, entry: Any, context: _Context) -> Layer:
    fields = mapping_of(where, entry, ("name", "kernels"), ("kind", "repeat", "source"))
    kind = choice_of(f"{where}.kind", fields.get("kind", "hidden"), LAYER_KINDS)
    repeat = whole(f"{where}.repeat", fields.get("repeat", 1))
    nodes: dict[str, Node] = {}
    before = INPUT
    for number, kernel in enumerate(entries_of(f"{where}.kernels", fields["kernels"])):
        name = _name(f"{where}.kernels[{number}]", kernel, nodes)
        nodes[name] = _node(f"{where}.kernels.{name}", kernel, context, before)
        before = name
    return Layer(
        name=fields["name"], kind=LAYER_KINDS.index(kind), nodes=tuple(nodes.values()), repeat=repeat
    )


def _node(where: str, entry: Mapping[str, Any], context: _Context, before: str) -> Node:
    """Return a kernel with valid sizes; by default it has the model's rows and reads `before`."""
    if "type" not in entry:
        raise MistakeError(f"a file that gives {where}.type, {one_of(TYPES)}")
    kind = TYPES[choice_of(f"{where}.type", entry["type"], TYPES)]
    fields = mapping_of(where, entry, ("name", "type", *kind.required), (*kind.optional, *_KEEPS, "source"))
    side_names = {"rows", "groups", *kind.required, *kind.optional_sides} - {*kind.required_strings}
    side_keys = [key for key in fields if key in side_names]
    sides = {key: _side(f"{where}.{key}", fields[key], context.dimensions) for key in side_keys}
    options: Any = {key: whole(f"{where}.{key}", fields[key], least=0) for key in _KEEPS if key in fields}
    amounts = {key: amount_of(f"{where}.{key}", fields[key]) for key in AMOUNTS if key in fields}
    rows, unit = sides.get("rows", context.rows), Side(1)
    inner, cols = sides.get("vocabulary", sides.get("inner", unit)), sides.get("cols", unit)
    groups = sides.get("groups", unit)
    steps = whole(f"{where}.steps", fields.get("steps", 1))
    if rows.size % steps:
        raise wrong(f"{where}.steps", f"a divisor of its {rows.size} rows", steps)
    # types that route rows randomly have a timing function
    if groups.size > rows.size // steps and kind.time is None:
        raise wrong(f"{where}.groups", f"at most its {rows.size // steps} rows", groups.size)
    node = Node(
        name=fields["name"],
        type=kind,
        rows=rows.size // steps,
        cols=cols.size,
        inner=inner.size,
        steps=steps,
        batch=sides.get("batch", unit).size,
        groups=groups.size,
        reads=_reads(f"{where}.reads", fields.get("reads", before)) if "reads" in kind.optional else (),
        dims=Dims(rows.names, inner.names, cols.names, groups.names),
        cost=PassCost(**amounts),
        **options,
    )
    return kind.from_file(where, node, sides, context.rows, fields) if kind.from_file else node


def _reads(where: str, written: Any) -> tuple[str, ...]:
    names = [written] if isinstance(written, str) else written
    if not isinstance(names, list) or not names or not all(isinstance(name, str) for name in names):
        raise wrong(where, "the name of a kernel, or a list of them", written)
    return tuple(names)


def _check_layer(where: str, layer: Layer, context: _Context, below: int | None) -> int:
    """Check the inputs of every kernel, add the layer to the context, and return its output's columns.

    below: the columns that enter the layer; None for the network's input, whose columns follow from
    its first reader.
    """
    by_name = {node.name: node for node in layer.nodes}
    known_cols = {} if below is None else {INPUT: below}  # columns, of this layer's kernels so far
    for node in layer.nodes:
        at = f"{where}.kernels.{node.name}"
        cols: list[int | None] = []
        for read in node.reads:
            if read in known_cols or read in context.cols:
                cols.append(known_cols[read] if read in known_cols else context.cols[read])
            elif _recurs(node, by_name.get(read)):
                cols.append(_output(by_name[read]))
            elif read == INPUT:
                cols.append(None)
            else:
                readable = [
                    name for name, other in by_name.items() if name in known_cols or _recurs(node, other)
                ]
                allowed = f"{one_of((INPUT, *readable))} (of this layer), or layer.kernel of a layer below"
                raise wrong(f"{at}.reads", allowed, read)
        input_cols = node.type.check(at, node, cols, context.rows.size)
        if INPUT in node.reads and INPUT not in known_cols and input_cols:
            known_cols[INPUT] = input_cols
        known_cols[node.name] = _output(node)
    output = _output(layer.nodes[-1])
    if layer.repeat > 1 and known_cols.get(INPUT, output) != output:
        allowed = f"1, since {known_cols[INPUT]} columns enter the layer and {output} leave it"
        raise wrong(f"{where}.repeat", allowed, layer.repeat)
    context.cols.update({f"{layer.name}.{name}": _output(node) for name, node in by_name.items()})
    return output


def _recurs(node: Node, other: Node | None) -> bool:
    """Say whether a kernel may read the output of another kernel, or its output, of the step before."""
    return other is not None and int(other.steps) == int(node.steps) > 1


def _output(node: Node) -> int:
    return int(node.output)


def _name(where: str, entry: Any, taken: Iterable[str]) -> str:
    """Return the name of an entry of a list."""
    name = entry.get("name") if isinstance(entry, dict) else None
    if not isinstance(name, str) or not name.strip() or "." in name or "\n" in name or name == INPUT:
        raise wrong(f"{where}.name", f"a text without a dot, other than {INPUT}", name)
    if name in taken:
        raise wrong(f"{where}.name", f"different from those before it ({listed(taken)})", name)
    return name


def _outlines(inputs: Inputs) -> Ints:
    """Return layers, rows and sequences of every point's file, shape (points, 3)."""
    files, inverse = factorize(inputs[KEY])
    return np.array([outline(file) for file in files], dtype=np.int64)[inverse]


def _rows(inputs: Inputs) -> tuple[Ints, Bools]:
    _, rows, sequences = _outlines(inputs).T
    return np.where(sequences > 0, np.minimum(rows, sequences), rows), sequences > 0


FAMILY = Family(
    name="graph",
    structure=(
        text(KEY, "YAML file of the network, relative to the working directory; there is no default"),
    ),
    network=lambda points: read_network(str(points[KEY][0])),
    rows=_rows,
    layers=lambda inputs: _outlines(inputs)[:, 0],
    quick_count=lambda points: read_current(
        KEY, _count, str(points[KEY][0]), bool(points["model.training"][0])
    ),
)
