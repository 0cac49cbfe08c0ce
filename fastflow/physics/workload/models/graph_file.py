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
from fastflow.physics.workload.network import AMOUNTS, INPUT, Layer, Network, Node, Side, connect
from fastflow.physics.workload.ops import TYPES
from fastflow.physics.workload.precision import UNSIZED

KEY = "model.file"
# with repeated layers counted as often as they are repeated
MOST_BORDERS = 5_000_000  # borders of layers that tensors cross
_MOST = {  # and what is said of that: forward kernels, tensors that they read, what integers count
    "kernels": (100_000, "100000"),
    "reads": (1_000_000, "1000000"),
    "elements of outputs": (4 * 10**18, "4e+18"),
}

_RESERVED = ("rows", "inner", "cols")  # what every kernel has is named by its side
_KEPT = ("keeps", "keeps_whole")
_SAME = {"kv_heads": "heads"}  # groups of heads that share keys are cut wherever heads are


def read_network(path: str) -> Network:
    """Return the network that a file describes; a file that has not changed since is not read again.

    Raises InputError, which names the node that is wrong and what is allowed there.
    """
    return read_current(KEY, _of_version, path).network


def outline(path: str) -> tuple[int, int, int]:
    """Return layers, rows and sequences of a file's network; raises InputError."""
    return read_current(KEY, _of_version, path)[1:]


class _Version(NamedTuple):
    """What a version of a file says: its network, and what strategies ask of that."""

    network: Network
    layers: int  # that a pipeline can cut between
    rows: int  # of a launch of the forward kernel that has fewest; of products dealt out whole, their number
    sequences: int  # groups of rows that no cut may split; 0 where rows are independent


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
    rows = [placed.node.batch if placed.node.deals else placed.node.rows for placed in nodes]
    sequences = document.get("sequences", 0)
    return _Version(network, nodes[-1].layer + 1, min(map(int, rows)), sequences)


@lru_cache(maxsize=64)
def _count(path: str, changed: int, size: int, training: bool) -> int:
    return len(kernels(_of_version(path, changed, size).network, training, UNSIZED))


class _Found(NamedTuple):
    """What is known so far."""

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
    named = [isinstance(part, str) and part.isidentifier() and bool(dimensions) for part in parts]
    names = tuple(
        _SAME.get(choice_of(where, part, tuple(dimensions)), part)
        for part, is_name in zip(parts, named, strict=True)
        if is_name
    )
    sizes = [
        dimensions[part] if is_name else whole(where, part)
        for part, is_name in zip(parts, named, strict=True)
    ]
    return Side(whole(where, prod(sizes)), names)


def _layers(document: Any) -> list[Layer]:
    given = mapping_of("", document, ("rows", "layers"), ("name", "dimensions", "sequences", "source"))
    dimensions = _dimensions(given.get("dimensions", {}))
    found = _Found(_side("rows", given["rows"], dimensions), dimensions, {})
    if "sequences" in given and found.rows.size % whole("sequences", given["sequences"]):
        raise wrong("sequences", f"a divisor of its {found.rows.size} rows", given["sequences"])
    layers: dict[str, Layer] = {}
    below: int | None = None  # columns that enter the layer, where they are known
    total: tuple[int, ...] = (0, 0, 0)
    for number, entry in enumerate(entries_of("layers", given["layers"])):
        where = f"layers.{_name(f'layers[{number}]', entry, layers)}"
        layer = _layer(where, entry, found)
        total = _add(where, total, layer)
        below = _check_layer(where, layer, found, below)
        layers[layer.name] = layer
    return list(layers.values())


def _add(where: str, total: Iterable[int], layer: Layer) -> tuple[int, ...]:
    """Add a layer to the total of what _MOST bounds; raises MistakeError where that is too much."""
    nodes = layer.nodes
    reads = sum(len(node.reads) for node in nodes)
    elements = sum(int(node.rows) * int(node.steps) * int(node.cols) * int(node.batch) for node in nodes)
    own = (len(nodes), reads, elements)
    after = tuple(so_far + layer.repeat * one for so_far, one in zip(total, own, strict=True))
    for amount, (what, (bound, many)) in zip(after, _MOST.items(), strict=True):
        if amount > bound:
            raise wrong(f"{where}.repeat", f"so small that there are at most {many} {what}", layer.repeat)
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
    given = mapping_of(where, entry, ("name", "type", *kind.needs), (*kind.takes, *_KEPT, "source"))
    sides_of = {"rows", "groups", *kind.needs, *kind.sizes} - {*kind.texts}
    named = [key for key in given if key in sides_of]
    sides = {key: _side(f"{where}.{key}", given[key], found.dimensions) for key in named}
    more: Any = {key: whole(f"{where}.{key}", given[key], least=0) for key in _KEPT if key in given}
    more |= {key: amount_of(f"{where}.{key}", given[key]) for key in AMOUNTS if key in given}
    rows, one = sides.get("rows", found.rows), Side(1)
    inner, cols = sides.get("vocabulary", sides.get("inner", one)), sides.get("cols", one)
    groups = sides.get("groups", one)
    steps = whole(f"{where}.steps", given.get("steps", 1))
    if rows.size % steps:
        raise wrong(f"{where}.steps", f"a divisor of its {rows.size} rows", steps)
    if (
        groups.size > rows.size // steps and kind.time is None
    ):  # who deals rows out by chance times it himself
        raise wrong(f"{where}.groups", f"at most its {rows.size // steps} rows", groups.size)
    node = Node(
        name=given["name"],
        type=kind,
        rows=rows.size // steps,
        cols=cols.size,
        inner=inner.size,
        steps=steps,
        batch=sides.get("batch", one).size,
        groups=groups.size,
        reads=_reads(f"{where}.reads", given.get("reads", before)) if "reads" in kind.takes else (),
        dims=Dims(rows.names, inner.names, cols.names, groups.names),
        **more,
    )
    return kind.of_file(where, node, sides, found.rows, given) if kind.of_file else node


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
        entered = node.type.check(at, node, cols, found.rows.size)
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
    files, place = factorize(inputs[KEY])
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
    quick_count=lambda points: read_current(
        KEY, _count, str(points[KEY][0]), bool(points["model.training"][0])
    ),
)
