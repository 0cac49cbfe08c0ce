"""`model=graph`: a network that the user writes down as a YAML file (the paper's input 5; docs/graphs.md)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from stat import S_ISDIR, S_ISREG
from typing import Any, NamedTuple, TypeVar

from fastflow.errors import InputError
from fastflow.workload.graph import LAYER_KINDS, Graph, stack
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
from fastflow.workload.notation import MOST_BYTES, MistakeError, OddNumber, listed, load, shown
from fastflow.workload.precision import Precision

Result = TypeVar("Result")

KEY = "model.file"
MOST = 10**12  # of a dimension, as of every count among the inputs
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
_COUNTS = ("rows", "steps", "inner", "cols", "batch", "vocabulary")
_KEPT = ("keeps", "keeps_whole")
_AMOUNTS = ("moves", "flop", "backward_moves", "backward_flop")
_OPTIONS = {
    GEMM: ("rows", "steps", "reads", *_KEPT),
    BATCHED_GEMM: ("reads", *_KEPT),
    LOOKUP: ("rows", *_AMOUNTS, *_KEPT),
    ELEMENTWISE: ("rows", "steps", "reads", *_AMOUNTS, *_KEPT),
    ROWWISE: ("rows", "steps", "reads", *_AMOUNTS, *_KEPT),
}


def _wrong(node: str, allowed: str, value: object) -> MistakeError:
    return MistakeError(f"a file whose {node} is {allowed}, not {shown(value)}")


def read_network(path: str) -> Network:
    """Return the network that a file describes; a file that has not changed since is not read again.

    Raises InputError, which names the node that is wrong and what is allowed there.
    """
    return _known(_of_version, path).network


def check_file(path: str) -> None:
    """Raise InputError where a file describes no network."""
    read_network(path)


def build(path: str, training: bool, precision: Precision) -> Graph:
    """Return the compute graph of the points that share a file; raises InputError."""
    return stack(kernels(read_network(path), training, precision), precision.operand.size)


def count(path: str, training: bool) -> int:
    """Return how many kernels the graph of a file has; raises InputError."""
    return _known(_count, path, training)


class Outline(NamedTuple):
    """What strategies ask of a network."""

    layers: int  # that a pipeline can cut between
    rows: int  # of a launch of the forward kernel that has fewest; of batched products, their number
    sequences: int  # groups of rows that no cut may split; 0 where rows are independent


def outline(path: str) -> Outline:
    """Return the layers of a file's network, and the rows of the forward kernel that has fewest.

    Of products of activations, which are dealt out whole, their number. Raises InputError.
    """
    return _known(_outline, path)


def _known(function: Callable[..., Result], path: str, *more: object) -> Result:
    """Return what a cached function makes of a file in its present version; raises InputError."""
    try:
        status = Path(path).stat()
        if not (S_ISREG(status.st_mode) or S_ISDIR(status.st_mode)):  # reading it may have no end
            raise MistakeError("a regular file, not a device or a pipe")
        return function(str(Path(path).absolute()), status.st_mtime_ns, status.st_size, *more)
    except MistakeError as mistake:
        raise InputError(KEY, path, str(mistake)) from None
    except (OSError, ValueError) as error:  # a name with a zero byte is no path
        reason = getattr(error, "strerror", None) or error
        raise InputError(KEY, path, f"a file that can be read ({reason})") from None


class _Version(NamedTuple):
    """What a version of a file says."""

    network: Network
    sequences: int  # groups of rows that no cut may split; 0 where rows are independent


@lru_cache(maxsize=64)
def _of_version(path: str, changed: int, size: int) -> _Version:
    if size > MOST_BYTES:  # before it is read
        raise MistakeError(f"a file of at most {MOST_BYTES:,} bytes, not {size:,}")
    document = load(Path(path).read_bytes())
    network = connect(_layers(document))
    nodes = network.nodes
    crossed = sum(
        nodes[readers[-1]].layer - placed.layer
        for placed, readers in zip(nodes, network.readers, strict=True)
        if readers
    )
    if crossed > MOST_BORDERS:
        raise MistakeError(f"a file whose tensors cross at most {MOST_BORDERS:,} borders of layers in all")
    return _Version(network, document.get("sequences", 0))


@lru_cache(maxsize=64)
def _count(path: str, changed: int, size: int, training: bool) -> int:
    nothing = Precision(*[0.0] * len(Precision._fields))  # type: ignore[arg-type]
    return len(kernels(_of_version(path, changed, size).network, training, nothing))


@lru_cache(maxsize=64)
def _outline(path: str, changed: int, size: int) -> Outline:
    network, sequences = _of_version(path, changed, size)
    nodes = network.nodes
    rows = [placed.node.batch if placed.node.type == BATCHED_GEMM else placed.node.rows for placed in nodes]
    return Outline(nodes[-1].layer + 1, min(map(int, rows)), sequences)


class _Found(NamedTuple):
    """What the layers so far have made."""

    rows: int
    cols: dict[str, int]  # of every tensor, by "layer.kernel"


def _layers(document: Any) -> list[Layer]:
    given = _mapping("", document, ("rows", "layers"), ("name", "sequences", "source"))
    found = _Found(_whole("rows", given["rows"]), {})
    if "sequences" in given and found.rows % _whole("sequences", given["sequences"]):
        raise _wrong("sequences", f"a divisor of its {found.rows} rows", given["sequences"])
    layers: dict[str, Layer] = {}
    below: int | None = None  # columns that enter the layer, where they are known
    total = _Total(0, 0, 0)
    for number, entry in enumerate(_entries("layers", given["layers"])):
        where = f"layers.{_name(f'layers[{number}]', entry, layers)}"
        layer = _layer(where, entry, found.rows)
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
            raise _wrong(f"{where}.repeat", allowed, layer.repeat)
    return after


def _layer(where: str, entry: Any, rows: int) -> Layer:
    given = _mapping(where, entry, ("name", "kernels"), ("kind", "repeat", "source"))
    kind = _choice(f"{where}.kind", given.get("kind", "hidden"), LAYER_KINDS)
    repeat = _whole(f"{where}.repeat", given.get("repeat", 1))
    nodes: dict[str, Node] = {}
    before = INPUT
    for number, one in enumerate(_entries(f"{where}.kernels", given["kernels"])):
        name = _name(f"{where}.kernels[{number}]", one, nodes)
        nodes[name] = _node(f"{where}.kernels.{name}", one, rows, before)
        before = name
    return Layer(name=given["name"], kind=LAYER_KINDS.index(kind), nodes=tuple(nodes.values()), repeat=repeat)


def _node(where: str, entry: Mapping[str, Any], rows: int, before: str) -> Node:
    """Return a kernel whose own numbers are right; by default it has `rows` and reads `before`."""
    if "type" not in entry:
        raise MistakeError(f"a file that gives {where}.type, {_one_of(TYPES)}")
    kind = TYPES[_choice(f"{where}.type", entry["type"], tuple(TYPES))]
    given = _mapping(where, entry, ("name", "type", *_DIMENSIONS[kind]), (*_OPTIONS[kind], "source"))
    counts = {key: _whole(f"{where}.{key}", given[key]) for key in _COUNTS if key in given}
    kept: dict[str, Any] = {
        key: _whole(f"{where}.{key}", given[key], least=0) for key in _KEPT if key in given
    }
    amounts: dict[str, Any] = {key: _amount(f"{where}.{key}", given[key]) for key in _AMOUNTS if key in given}
    own_rows, steps, batch = counts.get("rows", rows), counts.get("steps", 1), counts.get("batch", 1)
    if own_rows % steps:
        raise _wrong(f"{where}.steps", f"a divisor of its {own_rows} rows", steps)
    cols, width = counts["cols"], None
    if kind == BATCHED_GEMM:
        if batch * max(own_rows, counts["inner"]) > MOST:
            raise _wrong(f"{where}.batch", f"so small that no side times batch exceeds {MOST:.0e}", batch)
        width, rest = divmod(batch * own_rows * cols, rows)
        if rest or width > MOST:
            allowed = f"such that batch x rows x cols is a multiple of the {rows} rows of the model"
            raise _wrong(f"{where}.batch", allowed, batch)
    return Node(
        name=given["name"],
        type=kind,
        rows=own_rows // steps,
        cols=cols,
        inner=counts.get("vocabulary", counts.get("inner", 1)),
        steps=steps,
        batch=batch,
        reads=() if kind == LOOKUP else _reads(f"{where}.reads", given.get("reads", before)),
        width=width,
        **amounts,
        **kept,
    )


def _reads(where: str, written: Any) -> tuple[str, ...]:
    names = [written] if isinstance(written, str) else written
    if not isinstance(names, list) or not names or not all(isinstance(name, str) for name in names):
        raise _wrong(where, "the name of a kernel, or a list of them", written)
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
                allowed = f"{_one_of((INPUT, *here))} (of this layer), or layer.kernel of a layer below"
                raise _wrong(f"{at}.reads", allowed, read)
        entered = _check_node(at, node, cols, found.rows)
        if INPUT in node.reads and INPUT not in made and entered:
            made[INPUT] = entered
        made[node.name] = _output(node)
    output = _output(layer.nodes[-1])
    if layer.repeat > 1 and made.get(INPUT, output) != output:
        allowed = f"1, since {made[INPUT]} columns enter the layer and {output} leave it"
        raise _wrong(f"{where}.repeat", allowed, layer.repeat)
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
            raise _wrong(f"{at}.inner", f"{'above ' if unknown else ''}{read}, {what}", inner)
        return (inner - read) // max(unknown, 1)
    if node.type == BATCHED_GEMM:
        if len(cols) > 2:
            raise _wrong(f"{at}.reads", "one or two kernels", listed(node.reads))
        elements = int(node.batch) * int(node.rows) * int(node.inner)
        if cols[0] is not None and elements > cols[0] * rows:
            allowed = f"so small that batch x rows x inner is at most the {cols[0] * rows} elements it reads"
            raise _wrong(f"{at}.inner", allowed, node.inner)
        return 0  # it may read a part
    own = int(node.cols)
    for name, one in zip(node.reads, cols, strict=True):
        if one is not None and one % own:
            raise _wrong(f"{at}.cols", f"a divisor of the {one} columns that it reads ({name})", own)
    return own


def _mapping(where: str, value: Any, needed: Iterable[str], more: Iterable[str]) -> dict[str, Any]:
    """Return a mapping that has the keys it needs, and no others than it may have."""
    needed, allowed = tuple(needed), (*needed, *more)
    if not isinstance(value, dict):
        said = f"a mapping with {', '.join(needed)}"
        raise _wrong(where, said, value) if where else MistakeError(f"a file that is {said}")
    prefix = f"{where}." if where else ""
    for key in value:
        if key not in allowed:
            raise MistakeError(
                f"a file without {prefix}{shown(key)}; the keys there are {', '.join(allowed)}"
            )
    for key in needed:
        if key not in value:
            raise MistakeError(f"a file that gives {prefix}{key}")
    return value


def _entries(where: str, value: Any) -> list[Any]:
    if not isinstance(value, list) or not value:
        raise _wrong(where, "a list with at least one entry", value)
    return value


def _name(where: str, entry: Any, taken: Iterable[str]) -> str:
    """Return the name of an entry of a list."""
    name = entry.get("name") if isinstance(entry, dict) else None
    if not isinstance(name, str) or not name.strip() or "." in name or "\n" in name or name == INPUT:
        raise _wrong(f"{where}.name", f"a text without a dot, other than {INPUT}", name)
    if name in taken:
        raise _wrong(f"{where}.name", f"different from those before it ({listed(taken)})", name)
    return name


def _choice(where: str, value: Any, choices: Sequence[str]) -> str:
    if not isinstance(value, str) or value not in choices:
        raise _wrong(where, _one_of(choices), value)
    return value


def _one_of(choices: Iterable[str]) -> str:
    return f"one of {listed(choices)}"


def _whole(where: str, value: Any, least: int = 1) -> int:
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= MOST:
        raise _wrong(where, f"a whole number from {least} to {MOST:.0e}{_plainly(value)}", value)
    return value


def _amount(where: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0.0 <= value <= MOST:
        raise _wrong(where, f"a number from 0{_plainly(value)}", value)
    return float(value)


def _plainly(value: object) -> str:
    return ", in decimal digits" if isinstance(value, OddNumber) else ""
