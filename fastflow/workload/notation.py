"""A user's YAML file as plain values: of bounded size, every key once, numbers as they look.

YAML 1.1 reads 0100 as 64, 1:30 as 90 and 1_000 as 1000. Such a number is kept as it is written, so that it
is refused wherever a number belongs. What aliases (*name) stand for counts as often as it is used, since a
few lines of them can stand for more than any memory holds.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import yaml

MOST_BYTES = 256 * 1024  # some seconds to read
MOST_VALUES = 200_000  # what aliases stand for counted each time
_SHOWN = 60  # characters of a value, in a message
_LISTED = 20  # names

_INT = re.compile(r"[-+]?(?:0|[1-9][0-9]*)")
_FLOAT = re.compile(
    r"[-+]?(?:(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?|\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))"
)


class MistakeError(Exception):
    """What is wrong in a file: the node, and what is allowed there."""


class OddNumber:
    """A number in a notation that does not look like what YAML makes of it."""

    def __init__(self, text: str) -> None:
        """Take it as it is written."""
        self.text = text

    def __str__(self) -> str:
        """Return it as it is written."""
        return self.text


class _Loader(yaml.SafeLoader):
    """YAML's safe loader, which refuses a key that is given twice."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """Return a mapping; raises ConstructorError."""
        given: set[str] = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode):
                if key.value in given:
                    said = f"{shown(key.value)} is given twice"
                    raise yaml.constructor.ConstructorError(None, None, said, key.start_mark)
                given.add(key.value)
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
    """Return what a file says; raises MistakeError."""
    if len(text) > MOST_BYTES:
        raise MistakeError(f"a file of at most {MOST_BYTES:,} bytes, not {len(text):,}")
    try:
        loader = _Loader(text)
        try:
            node = loader.get_single_node()
            if node is None:
                return None
            if _size(node, {}) > MOST_VALUES:
                raise MistakeError(f"a file of at most {MOST_VALUES:,} values, aliases written out")
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


def _size(node: yaml.Node, known: dict[int, int]) -> int:
    """Return how many values a node stands for, aliases written out; too many of one within itself."""
    if id(node) not in known:
        known[id(node)] = MOST_VALUES + 1
        parts: Iterable[yaml.Node] = ()
        if isinstance(node, yaml.SequenceNode):
            parts = node.value
        elif isinstance(node, yaml.MappingNode):
            parts = (part for pair in node.value for part in pair)
        known[id(node)] = 1 + sum(_size(part, known) for part in parts)
    return known[id(node)]


def shown(value: object) -> str:
    """Write a value for a message."""
    text = "null" if value is None else str(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


def listed(names: Iterable[object]) -> str:
    """Write names for a message, the first ones of many."""
    every = [shown(name) for name in names]
    more = f" and {len(every) - _LISTED:,} more" if len(every) > _LISTED else ""
    return ", ".join(every[:_LISTED]) + more
