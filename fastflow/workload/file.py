"""`model=graph`: a network that the user writes down as a YAML file (the paper's input 5; docs/graphs.md)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import yaml

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
from fastflow.workload.precision import Precision

Result = TypeVar("Result")

KEY = "model.file"
MOST = 10**12  # of a dimension, as of every count among the inputs
MOST_KERNELS = 100_000  # forward kernels, repeated layers counted

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


class _MistakeError(Exception):
    """What is wrong in a file: the node, and what is allowed there."""


def _wrong(node: str, allowed: str, value: object) -> _MistakeError:
    return _MistakeError(f"a file whose {node} is {allowed}, not {'null' if value is None else value}")


def read_network(path: str) -> Network:
    """Return the network that a file describes; a file that has not changed since is not read again.

    Raises InputError, which names the node that is wrong and what is allowed there.
    """
    return _known(_of_version, path)


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
        return function(str(Path(path).absolute()), status.st_mtime_ns, status.st_size, *more)
    except _MistakeError as mistake:
        raise InputError(KEY, path, str(mistake)) from None
    except (OSError, ValueError) as error:  # a name with a zero byte is no path
        reason = getattr(error, "strerror", None) or error
        raise InputError(KEY, path, f"a file that can be read ({reason})") from None


@lru_cache(maxsize=64)
def _of_version(path: str, changed: int, size: int) -> Network:
    return connect(_layers(_load(Path(path).read_bytes())))


@lru_cache(maxsize=64)
def _count(path: str, changed: int, size: int, training: bool) -> int:
    nothing = Precision(*[0.0] * len(Precision._fields))  # type: ignore[arg-type]
    return len(kernels(_of_version(path, changed, size), training, nothing))


@lru_cache(maxsize=64)
def _outline(path: str, changed: int, size: int) -> Outline:
    nodes = _of_version(path, changed, size).nodes
    rows = [placed.node.batch if placed.node.type == BATCHED_GEMM else placed.node.rows for placed in nodes]
    sequences = _load(Path(path).read_bytes()).get("sequences", 0)
    return Outline(nodes[-1].layer + 1, min(map(int, rows)), sequences)


class _Loader(yaml.SafeLoader):
    """YAML's safe loader, which refuses a key that is given twice."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """Return a mapping; raises ConstructorError."""
        given: set[str] = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode):
                if key.value in given:
                    said = f"{key.value} is given twice"
                    raise yaml.constructor.ConstructorError(None, None, said, key.start_mark)
                given.add(key.value)
        return super().construct_mapping(node, deep)


def _load(text: bytes) -> Any:
    try:
        return yaml.load(text, _Loader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
        raise _MistakeError(f"a YAML file ({line}{error.problem or error.context})") from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise _MistakeError(f"a YAML file ({error})") from None


class _Found(NamedTuple):
    """What the layers so far have made."""

    rows: int
    cols: dict[str, int]  # of every tensor, by "layer.kernel"


def _layers(document: Any) -> list[Layer]:
    given = _mapping("", document, ("rows", "layers"), ("name", "sequences", "source"))
    found = _Found(_whole("rows", given["rows"]), {})
    if "sequences" in given and found.rows % _whole("sequences", given["sequences"]):
        raise _wrong("sequences", f"a divisor of its {found.rows} rows", given["sequences"])
    layers: list[Layer] = []
    below: int | None = None  # columns that enter the layer, where they are known
    for number, entry in enumerate(_entries("layers", given["layers"])):
        where = f"layers.{_name(f'layers[{number}]', entry, [layer.name for layer in layers])}"
        layer = _layer(where, entry, found.rows)
        below = _check_layer(where, layer, found, below)
        layers.append(layer)
        if sum(layer.repeat * len(layer.nodes) for layer in layers) > MOST_KERNELS:
            allowed = f"so small that there are at most {MOST_KERNELS} kernels"
            raise _wrong(f"{where}.repeat", allowed, layer.repeat)
    return layers


def _layer(where: str, entry: Any, rows: int) -> Layer:
    given = _mapping(where, entry, ("name", "kernels"), ("kind", "repeat", "source"))
    kind = _choice(f"{where}.kind", given.get("kind", "hidden"), LAYER_KINDS)
    repeat = _whole(f"{where}.repeat", given.get("repeat", 1))
    nodes: list[Node] = []
    for number, one in enumerate(_entries(f"{where}.kernels", given["kernels"])):
        name = _name(f"{where}.kernels[{number}]", one, [node.name for node in nodes])
        before = nodes[-1].name if nodes else INPUT
        nodes.append(_node(f"{where}.kernels.{name}", one, rows, before))
    return Layer(given["name"], LAYER_KINDS.index(kind), tuple(nodes), repeat)


def _node(where: str, entry: Mapping[str, Any], rows: int, before: str) -> Node:
    """Return a kernel whose own numbers are right; by default it has `rows` and reads `before`."""
    if "type" not in entry:
        raise _MistakeError(f"a file that gives {where}.type, {_one_of(TYPES)}")
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
        given["name"], kind, own_rows // steps, cols, counts.get("vocabulary", counts.get("inner", 1)),
        steps, batch, () if kind == LOOKUP else _reads(f"{where}.reads", given.get("reads", before)), width,
        **amounts, **kept,
    )  # fmt: skip


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
    known = dict(found.cols)
    own = {node.name: node for node in layer.nodes}
    if below is not None:
        known[INPUT] = below
    for node in layer.nodes:
        at = f"{where}.kernels.{node.name}"
        steps = int(node.steps)
        later = [name for name, other in own.items() if name not in known and other.steps == steps > 1]
        for read in node.reads:
            if read not in known and read not in later and read != INPUT:
                here = [name for name in own if name in known or name in later]
                allowed = f"{_one_of((INPUT, *here))} (of this layer), or layer.kernel of a layer below"
                raise _wrong(f"{at}.reads", allowed, read)
        cols = {read: _output(own[read]) for read in later} | known
        entered = _check_node(at, node, [cols.get(read) for read in node.reads], found.rows)
        if INPUT in node.reads and INPUT not in known and entered:
            known[INPUT] = entered
        known[node.name] = _output(node)
    output = _output(layer.nodes[-1])
    if layer.repeat > 1 and known.get(INPUT, output) != output:
        allowed = f"1, since {known[INPUT]} columns enter the layer and {output} leave it"
        raise _wrong(f"{where}.repeat", allowed, layer.repeat)
    found.cols.update({f"{layer.name}.{name}": _output(node) for name, node in own.items()})
    return output


def _output(node: Node) -> int:
    return int(node.output)


def _check_node(at: str, node: Node, cols: Sequence[int | None], rows: int) -> int:
    """Check a kernel against the columns that it reads, None for an input that nobody has read yet.

    Returns the columns of that input, 0 where the kernel does not tell.
    """
    read = sum(one for one in cols if one is not None)
    unknown = sum(one is None for one in cols)
    what = f"the columns of what it reads ({', '.join(node.reads)})"
    if node.type == GEMM:
        inner = int(node.inner)
        if inner < read + unknown or (inner != read and not unknown):
            raise _wrong(f"{at}.inner", f"{'above ' if unknown else ''}{read}, {what}", inner)
        return (inner - read) // max(unknown, 1)
    if node.type == BATCHED_GEMM:
        if len(cols) > 2:
            raise _wrong(f"{at}.reads", "one or two kernels", ", ".join(node.reads))
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
        raise _wrong(where, said, value) if where else _MistakeError(f"a file that is {said}")
    prefix = f"{where}." if where else ""
    for key in value:
        if key not in allowed:
            raise _MistakeError(f"a file without {prefix}{key}; the keys there are {', '.join(allowed)}")
    for key in needed:
        if key not in value:
            raise _MistakeError(f"a file that gives {prefix}{key}")
    return value


def _entries(where: str, value: Any) -> list[Any]:
    if not isinstance(value, list) or not value:
        raise _wrong(where, "a list with at least one entry", value)
    return value


def _name(where: str, entry: Any, taken: Sequence[str]) -> str:
    """Return the name of an entry of a list."""
    name = entry.get("name") if isinstance(entry, dict) else None
    if not isinstance(name, str) or not name.strip() or "." in name or "\n" in name or name == INPUT:
        raise _wrong(f"{where}.name", f"a text without a dot, other than {INPUT}", name)
    if name in taken:
        raise _wrong(f"{where}.name", f"different from those before it ({', '.join(taken)})", name)
    return name


def _choice(where: str, value: Any, choices: Sequence[str]) -> str:
    if not isinstance(value, str) or value not in choices:
        raise _wrong(where, _one_of(choices), value)
    return value


def _one_of(choices: Iterable[str]) -> str:
    return "one of " + ", ".join(choices)


def _whole(where: str, value: Any, least: int = 1) -> int:
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= MOST:
        raise _wrong(where, f"a whole number from {least} to {MOST:.0e}", value)
    return value


def _amount(where: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0.0 <= value <= MOST:
        raise _wrong(where, "a number from 0", value)
    return float(value)
