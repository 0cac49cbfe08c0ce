"""A user's YAML file as plain values: bounded size, no duplicate keys, numbers in decimal digits.

YAML 1.1 reads 0100 as 64, 1:30 as 90 and 1_000 as 1000. Here these are kept as texts, and so refused where a
number is expected. The values of an alias (*name) count every time it is used, since a few lines of
aliases can expand to more than any memory holds.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable
from pathlib import Path
from stat import S_ISDIR, S_ISREG
from typing import Any, TypeVar

import yaml

from fastflow.core.errors import InputError

Result = TypeVar("Result")

MAX_BYTES = 256 * 1024  # some seconds to read
MAX_NUMBER = 10**12  # of a number, as of every count among the inputs
MAX_VALUES = 200_000  # with aliases expanded
_SHOWN = 60  # characters of a value, in a message
_LISTED = 20  # names

_INT = re.compile(r"[-+]?(?:0|[1-9][0-9]*)")
_FLOAT = re.compile(
    r"[-+]?(?:(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?|\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))"
)


class MistakeError(Exception):
    """A mistake in a file: the node, and the allowed values."""


class OddNumber:
    """A number in a notation that YAML reads as another number."""

    def __init__(self, text: str) -> None:
        """Take the text of the number."""
        self.text = text

    def __str__(self) -> str:
        """Return the text of the number."""
        return self.text


class _Loader(yaml.SafeLoader):
    """YAML's safe loader, which refuses duplicate keys."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """Return a mapping; raises ConstructorError."""
        keys: set[str] = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode):
                if key.value in keys:
                    message = f"{shown(key.value)} is given twice"
                    raise yaml.constructor.ConstructorError(None, None, message, key.start_mark)
                keys.add(key.value)
        return super().construct_mapping(node, deep)

    def whole(self, node: yaml.ScalarNode) -> int | OddNumber:
        """Return a whole number that is written in decimal digits."""
        text = str(self.construct_scalar(node))
        return int(text) if _INT.fullmatch(text) else OddNumber(text)

    def number(self, node: yaml.ScalarNode) -> float | OddNumber:
        """Return a number that is written in decimal digits."""
        text = str(self.construct_scalar(node))
        return float(self.construct_yaml_float(node)) if _FLOAT.fullmatch(text) else OddNumber(text)


_Loader.add_constructor("tag:yaml.org,2002:int", _Loader.whole)
_Loader.add_constructor("tag:yaml.org,2002:float", _Loader.number)


def load(text: bytes) -> Any:
    """Return the values of a file; raises MistakeError."""
    if len(text) > MAX_BYTES:
        raise MistakeError(f"a file of at most {MAX_BYTES:,} bytes, not {len(text):,}")
    try:
        loader = _Loader(text)
        try:
            node = loader.get_single_node()
            if node is None:
                return None
            if _size(node, {}) > MAX_VALUES:
                raise MistakeError(f"a file of at most {MAX_VALUES:,} values, aliases written out")
            return loader.construct_document(node)
        finally:
            loader.dispose()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
        raise MistakeError(f"a YAML file ({line}{error.problem or error.context})") from None
    except RecursionError:
        raise MistakeError("a YAML file (nested too deeply)") from None
    except (yaml.YAMLError, ValueError, TypeError) as error:
        raise MistakeError(f"a YAML file ({error})") from None


def _size(node: yaml.Node, sizes: dict[int, int]) -> int:
    """Return the number of values of a node with aliases expanded; too many for a recursive alias."""
    if id(node) not in sizes:
        sizes[id(node)] = MAX_VALUES + 1
        parts: Iterable[yaml.Node] = ()
        if isinstance(node, yaml.SequenceNode):
            parts = node.value
        elif isinstance(node, yaml.MappingNode):
            parts = (part for pair in node.value for part in pair)
        sizes[id(node)] = 1 + sum(_size(part, sizes) for part in parts)
    return sizes[id(node)]


def shown(value: object) -> str:
    """Write a value for a message."""
    text = "null" if value is None else str(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


def listed(names: Iterable[object]) -> str:
    """Write names for a message, the first ones of many."""
    texts = [shown(name) for name in names]
    more = f" and {len(texts) - _LISTED:,} more" if len(texts) > _LISTED else ""
    return ", ".join(texts[:_LISTED]) + more


def read_current(key: str, function: Callable[..., Result], path: str, *more: object) -> Result:
    """Return the result of a cached function for the present version of a file; raises InputError.

    key: the input that names the file; function: of its path, time of change, size, and `more`.
    """
    try:
        status = Path(path).stat()
        if not (S_ISREG(status.st_mode) or S_ISDIR(status.st_mode)):  # reading it may have no end
            raise MistakeError("a regular file, not a device or a pipe")
        return function(str(Path(path).absolute()), status.st_mtime_ns, status.st_size, *more)
    except MistakeError as mistake:
        raise InputError(key, path, str(mistake)) from None
    except (OSError, ValueError) as error:  # a name with a zero byte is no path
        reason = getattr(error, "strerror", None) or error
        raise InputError(key, path, f"a file that can be read ({reason})") from None


def read_version(path: str, size: int) -> Any:
    """Return the values of a file of `size` bytes; raises MistakeError."""
    if size > MAX_BYTES:  # before it is read
        raise MistakeError(f"a file of at most {MAX_BYTES:,} bytes, not {size:,}")
    return load(Path(path).read_bytes())


def wrong(node: str, allowed: str, value: object) -> MistakeError:
    """Return the error for a value that is not allowed."""
    return MistakeError(f"a file whose {node} is {allowed}, not {shown(value)}")


def mapping_of(where: str, value: Any, needed: Iterable[str], more: Iterable[str]) -> dict[str, Any]:
    """Return a mapping that has all needed keys, and no key beyond `needed` and `more`."""
    needed, allowed = tuple(needed), (*needed, *more)
    if not isinstance(value, dict):
        expected = f"a mapping with {', '.join(needed)}"
        raise wrong(where, expected, value) if where else MistakeError(f"a file that is {expected}")
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


def entries_of(where: str, value: Any) -> list[Any]:
    """Return a list that is not empty."""
    if not isinstance(value, list) or not value:
        raise wrong(where, "a list with at least one entry", value)
    return value


def choice_of(where: str, value: Any, choices: Collection[str]) -> str:
    """Return a text that is one of the choices."""
    if not isinstance(value, str) or value not in choices:
        raise wrong(where, one_of(choices), value)
    return value


def one_of(choices: Iterable[str]) -> str:
    """Return the choices in words."""
    return f"one of {listed(choices)}"


def whole(where: str, value: Any, least: int = 1) -> int:
    """Return a whole number."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= MAX_NUMBER:
        raise wrong(where, f"a whole number from {least} to {MAX_NUMBER:.0e}{_plainly(value)}", value)
    return value


def amount_of(where: str, value: Any) -> float:
    """Return a number from 0."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0.0 <= value <= MAX_NUMBER:
        raise wrong(where, f"a number from 0{_plainly(value)}", value)
    return float(value)


def _plainly(value: object) -> str:
    return ", in decimal digits" if isinstance(value, OddNumber) else ""
