"""`model=graph`: a network that the user writes down as a YAML file (the paper's input 5; docs/graphs.md)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from math import prod
from typing import Any, NamedTuple

import numpy as np

from fastflow.column import text
from fastflow.distinct import vocabulary
from fastflow.tables import Bools, Inputs, Ints
from fastflow.workload.family import Family
from fastflow.workload.graph import LAYER_KINDS, Dims
from fastflow.workload.kernels import kernels
from fastflow.workload.layers import (
    BATCHED_GEMM,
    ELEMENTWISE,
    GEMM,
    INPUT,
    LOOKUP,
    ROWWISE,
    Layer,
    Network,
    Node,
    connect,
)
from fastflow.workload.precision import Precision
from fastflow.yaml_file import (
    MOST,
    MistakeError,
    amount_of,
    choice_of,
    entries_of,
    listed,
    mapping_of,
    of_present,
    one_of,
    read_version,
    whole,
    wrong,
)

KEY = "model.file"
# with repeated layers counted as often as they are repeated
MOST_KERNELS = 100_000  # forward kernels
MOST_READS = 1_000_000  # tensors that they read
MOST_BORDERS = 5_000_000  # borders of layers that tensors cross
MOST_ELEMENTS = 4 * 10**18  # of all their outputs, that integers count

TYPES = {
    "gemm": GEMM,
    "batched_gemm": BATCHED_GEMM,
    "lookup": LOOKUP,
    "elementwise": ELEMENTWISE,
    "rowwise": ROWWISE,
}
_DIMENSIONS = {  # those that a kernel must have, as the file names them
    GEMM: ("inner", "cols"),
    BATCHED_GEMM: ("batch", "rows", "inner", "cols"),
    LOOKUP: ("vocabulary", "cols"),
    ELEMENTWISE: ("cols",),
    ROWWISE: ("cols",),
}
_SIDES = ("rows", "inner", "cols", "batch", "vocabulary")
_RESERVED = ("rows", "inner", "cols")  # what every kernel has is named by its side
_KEPT = ("keeps", "keeps_whole")
_AMOUNTS = ("moves", "flop", "backward_moves", "backward_flop")
_OPTIONS = {
    GEMM: ("rows", "steps", "reads", *_KEPT),
    BATCHED_GEMM: ("reads", *_KEPT),
    LOOKUP: ("rows", *_AMOUNTS, *_KEPT),
    ELEMENTWISE: ("rows", "steps", "reads", *_AMOUNTS, *_KEPT),
    ROWWISE: ("rows", "steps", "reads", *_AMOUNTS, *_KEPT),
}


def read_network(path: str) -> Network:
    """Return the network that a file describes; a file that has not changed since is not read again.

    Raises InputError, which names the node that is wrong and what is allowed there.
    """
    return of_present(KEY, _of_version, path).network


class Outline(NamedTuple):
    """What strategies ask of a network."""

    layers: int  # that a pipeline can cut between
    rows: int  # of a launch of the forward kernel that has fewest; of products dealt out whole, their number
    sequences: int  # groups of rows that no cut may split; 0 where rows are independent


def outline(path: str) -> Outline:
    """Return what strategies ask of a file's network; raises InputError."""
    return of_present(KEY, _of_version, path).outline


class _Version(NamedTuple):
    """What a version of a file says."""

    network: Network
    outline: Outline


@lru_cache(maxsize=64)
def _of_version(path: str, changed: int, size: int) -> _Version:
    document = read_version(path, size)
    network = connect(_layers(document))
    nodes = network.nodes
    crossed = sum(
        nodes[readers[-1]].layer - placed.layer
        for placed, readers in zip(nodes, network.readers, strict=True)
        if readers
    )
    if crossed > MOST_BORDERS:
        raise MistakeError(f"a file whose tensors cross at most {MOST_BORDERS:,} borders of layers in all")
    rows = [placed.node.batch if placed.node.type == BATCHED_GEMM else placed.node.rows for placed in nodes]
    sequences = document.get("sequences", 0)
    return _Version(network, Outline(nodes[-1].layer + 1, min(map(int, rows)), sequences))


@lru_cache(maxsize=64)
def _count(path: str, changed: int, size: int, training: bool) -> int:
    nothing = Precision(*[0.0] * len(Precision._fields))  # type: ignore[arg-type]
    return len(kernels(_of_version(path, changed, size).network, training, nothing))


class _Side(NamedTuple):
    """A side of a kernel, and the dimensions with a name that it is made of."""

    size: int
    names: tuple[str, ...] = ()


class _Found(NamedTuple):
    """What is known so far."""

    rows: int
    row_names: tuple[str, ...]
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


def _side(where: str, value: Any, dimensions: Mapping[str, int]) -> _Side:
    """Return a side: a number, a dimension's name, or a list of them, which multiply."""
    parts = value if isinstance(value, list) and value else [value]
    named = [isinstance(part, str) and part.isidentifier() and bool(dimensions) for part in parts]
    names = tuple(
        choice_of(where, part, tuple(dimensions))
        for part, is_name in zip(parts, named, strict=True)
        if is_name
    )
    sizes = [dimensions[part] if part in names else whole(where, part) for part in parts]
    return _Side(whole(where, prod(sizes)), names)


def _layers(document: Any) -> list[Layer]:
    given = mapping_of("", document, ("rows", "layers"), ("name", "dimensions", "sequences", "source"))
    dimensions = _dimensions(given.get("dimensions", {}))
    found = _Found(*_side("rows", given["rows"], dimensions), dimensions, {})
    if "sequences" in given and found.rows % whole("sequences", given["sequences"]):
        raise wrong("sequences", f"a divisor of its {found.rows} rows", given["sequences"])
    layers: dict[str, Layer] = {}
    below: int | None = None  # columns that enter the layer, where they are known
    total = _Total(0, 0, 0)
    for number, entry in enumerate(entries_of("layers", given["layers"])):
        where = f"layers.{_name(f'layers[{number}]', entry, layers)}"
        layer = _layer(where, entry, found)
        total = _add(where, total, layer)
        below = _check_layer(where, layer, found, below)
        layers[layer.name] = layer
    return list(layers.values())


class _Total(NamedTuple):
    """What all layers so far have, repeated ones as often as they are repeated."""

    kernels: int
    reads: int
    elements: int


def _add(where: str, total: _Total, layer: Layer) -> _Total:
    """Add a layer to the total; raises MistakeError where that is too much."""
    own = _Total(
        len(layer.nodes),
        sum(len(node.reads) for node in layer.nodes),
        sum(int(node.rows) * int(node.steps) * int(node.cols) * int(node.batch) for node in layer.nodes),
    )
    after = _Total(*(so_far + layer.repeat * one for so_far, one in zip(total, own, strict=True)))
    most = _Total(MOST_KERNELS, MOST_READS, MOST_ELEMENTS)
    for name, amount, bound in zip(_Total._fields, after, most, strict=True):
        if amount > bound:
            what = {"elements": "elements of outputs"}.get(name, name)
            many = f"{bound:.0e}" if name == "elements" else str(bound)
            allowed = f"so small that there are at most {many} {what}"
            raise wrong(f"{where}.repeat", allowed, layer.repeat)
    return after


def _layer(where: str, entry: Any, found: _Found) -> Layer:
    given = mapping_of(where, entry, ("name", "kernels"), ("kind", "repeat", "source"))
    kind = choice_of(f"{where}.kind", given.get("kind", "hidden"), LAYER_KINDS)
    repeat = whole(f"{where}.repeat", given.get("repeat", 1))
    nodes: dict[str, Node] = {}
    before = INPUT
    for number, one in enumerate(entries_of(f"{where}.kernels", given["kernels"])):
        name = _name(f"{where}.kernels[{number}]", one, nodes)
        nodes[name] = _node(f"{where}.kernels.{name}", one, found, before)
        before = name
    return Layer(name=given["name"], kind=LAYER_KINDS.index(kind), nodes=tuple(nodes.values()), repeat=repeat)


def _node(where: str, entry: Mapping[str, Any], found: _Found, before: str) -> Node:
    """Return a kernel whose own numbers are right; by default it has the model's rows and reads `before`."""
    if "type" not in entry:
        raise MistakeError(f"a file that gives {where}.type, {one_of(TYPES)}")
    kind = TYPES[choice_of(f"{where}.type", entry["type"], tuple(TYPES))]
    given = mapping_of(where, entry, ("name", "type", *_DIMENSIONS[kind]), (*_OPTIONS[kind], "source"))
    sides = {key: _side(f"{where}.{key}", given[key], found.dimensions) for key in _SIDES if key in given}
    kept: dict[str, Any] = {
        key: whole(f"{where}.{key}", given[key], least=0) for key in _KEPT if key in given
    }
    amounts: dict[str, Any] = {
        key: amount_of(f"{where}.{key}", given[key]) for key in _AMOUNTS if key in given
    }
    rows, (own_rows, row_names) = found.rows, sides.get("rows", found[:2])
    steps, batch = whole(f"{where}.steps", given.get("steps", 1)), sides.get("batch", _Side(1)).size
    inner = sides.get("vocabulary", sides.get("inner", _Side(1)))
    if own_rows % steps:
        raise wrong(f"{where}.steps", f"a divisor of its {own_rows} rows", steps)
    (cols, col_names), width = sides["cols"], None
    if kind == BATCHED_GEMM:
        # its products are dealt out: groups of the model's rows, and of columns
        of_rows = set(found.row_names)
        row_names = tuple(name for name in sides["batch"].names if name in of_rows)
        col_names = tuple(name for name in sides["batch"].names if name not in of_rows)
        if batch * max(own_rows, inner.size) > MOST:
            raise wrong(f"{where}.batch", f"so small that no side times batch exceeds {MOST:.0e}", batch)
        width, rest = divmod(batch * own_rows * cols, rows)
        if rest or width > MOST:
            allowed = f"such that batch x rows x cols is a multiple of the {rows} rows of the model"
            raise wrong(f"{where}.batch", allowed, batch)
    return Node(
        name=given["name"],
        type=kind,
        rows=own_rows // steps,
        cols=cols,
        inner=inner.size,
        steps=steps,
        batch=batch,
        reads=() if kind == LOOKUP else _reads(f"{where}.reads", given.get("reads", before)),
        width=width,
        dims=Dims(row_names, () if kind == BATCHED_GEMM else inner.names, col_names),
        **amounts,
        **kept,
    )


def _reads(where: str, written: Any) -> tuple[str, ...]:
    names = [written] if isinstance(written, str) else written
    if not isinstance(names, list) or not names or not all(isinstance(name, str) for name in names):
        raise wrong(where, "the name of a kernel, or a list of them", written)
    return tuple(names)


def _check_layer(where: str, layer: Layer, found: _Found, below: int | None) -> int:
    """Check what every kernel reads, add the layer to what is found, and return its output's columns.

    below: the columns that enter the layer; None where that is the network's input, which has as many as
    the first kernel that reads it says.
    """
    own = {node.name: node for node in layer.nodes}
    made = {} if below is None else {INPUT: below}  # columns, of this layer's kernels so far
    for node in layer.nodes:
        at = f"{where}.kernels.{node.name}"
        cols: list[int | None] = []
        for read in node.reads:
            if read in made or read in found.cols:
                cols.append(made[read] if read in made else found.cols[read])
            elif _recurs(node, own.get(read)):
                cols.append(_output(own[read]))
            elif read == INPUT:
                cols.append(None)
            else:
                here = [name for name, other in own.items() if name in made or _recurs(node, other)]
                allowed = f"{one_of((INPUT, *here))} (of this layer), or layer.kernel of a layer below"
                raise wrong(f"{at}.reads", allowed, read)
        entered = _check_node(at, node, cols, found.rows)
        if INPUT in node.reads and INPUT not in made and entered:
            made[INPUT] = entered
        made[node.name] = _output(node)
    output = _output(layer.nodes[-1])
    if layer.repeat > 1 and made.get(INPUT, output) != output:
        allowed = f"1, since {made[INPUT]} columns enter the layer and {output} leave it"
        raise wrong(f"{where}.repeat", allowed, layer.repeat)
    found.cols.update({f"{layer.name}.{name}": _output(node) for name, node in own.items()})
    return output


def _recurs(node: Node, other: Node | None) -> bool:
    """Say whether a kernel may read another one, or itself, of the step before."""
    return other is not None and int(other.steps) == int(node.steps) > 1


def _output(node: Node) -> int:
    return int(node.output)


def _check_node(at: str, node: Node, cols: Sequence[int | None], rows: int) -> int:
    """Check a kernel against the columns that it reads, None for an input that nobody has read yet.

    Returns the columns of that input, 0 where the kernel does not tell.
    """
    read = sum(one for one in cols if one is not None)
    unknown = sum(one is None for one in cols)
    what = f"the columns of what it reads ({listed(node.reads)})"
    if node.type == GEMM:
        inner = int(node.inner)
        if inner < read + unknown or (inner != read and not unknown):
            raise wrong(f"{at}.inner", f"{'above ' if unknown else ''}{read}, {what}", inner)
        return (inner - read) // max(unknown, 1)
    if node.type == BATCHED_GEMM:
        if len(cols) > 2:
            raise wrong(f"{at}.reads", "one or two kernels", listed(node.reads))
        elements = int(node.batch) * int(node.rows) * int(node.inner)
        if cols[0] is not None and elements > cols[0] * rows:
            allowed = f"so small that batch x rows x inner is at most the {cols[0] * rows} elements it reads"
            raise wrong(f"{at}.inner", allowed, node.inner)
        return 0  # it may read a part
    own = int(node.cols)
    for name, one in zip(node.reads, cols, strict=True):
        if one is not None and one % own:
            raise wrong(f"{at}.cols", f"a divisor of the {one} columns that it reads ({name})", own)
    return own


def _name(where: str, entry: Any, taken: Iterable[str]) -> str:
    """Return the name of an entry of a list."""
    name = entry.get("name") if isinstance(entry, dict) else None
    if not isinstance(name, str) or not name.strip() or "." in name or "\n" in name or name == INPUT:
        raise wrong(f"{where}.name", f"a text without a dot, other than {INPUT}", name)
    if name in taken:
        raise wrong(f"{where}.name", f"different from those before it ({listed(taken)})", name)
    return name


def _outlines(inputs: Inputs) -> Ints:
    """Return the outline of every point's file, shape (points, 3)."""
    files, place = vocabulary(inputs[KEY])
    return np.array([outline(one) for one in files], dtype=np.int64)[place]


def _rows(inputs: Inputs) -> tuple[Ints, Bools]:
    _, rows, sequences = _outlines(inputs).T
    return np.where(sequences > 0, np.minimum(rows, sequences), rows), sequences > 0


FAMILY = Family(
    name="graph",
    structure=(text(KEY, "YAML file of the network, relative to the working directory"),),
    network=lambda points: read_network(str(points[KEY][0])),
    rows=_rows,
    layers=lambda inputs: _outlines(inputs)[:, 0],
    quick_count=lambda points: of_present(
        KEY, _count, str(points[KEY][0]), bool(points["model.training"][0])
    ),
)
