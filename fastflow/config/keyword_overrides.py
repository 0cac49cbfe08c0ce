"""Keyword arguments of a Python call, checked and turned into overrides."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from fastflow.config.catalog import SWEEPS
from fastflow.config.messages import written
from fastflow.config.renamed_keys import renamed_overrides
from fastflow.core.errors import InputError

if TYPE_CHECKING:
    from numpy.typing import NDArray

_LONG = 100  # characters of a value that a line shows
_BARE = re.compile(r"[\w /+.%*@?|-]*", re.ASCII)  # what an element of an override may have without quotes
_ENDING = re.compile(r"(\\*)('|$)")


def as_overrides(
    overrides: Sequence[Any], choices: Mapping[str, Any], output: Any = None, config_dir: Any = None
) -> tuple[str, ...]:
    """Return the arguments of a call as overrides of a command line; raises InputError.

    choices: keywords, such as `tech=["n7", "n5"]`. Two underscores stand for a dot: `chip__tdp="300 W"`; so
    does a mapping, `model={"batch": 512}`. A list, a range or an array is an axis of a grid. Old names
    of keys become those of today.
    """
    check_call(overrides, output, config_dir)
    return tuple(renamed_overrides((*overrides, *_overrides_of(choices, ""))))


def _overrides_of(choices: Mapping[Any, Any], prefix: str) -> Iterator[str]:
    """Yield the overrides of keywords, or of a mapping in one; raises InputError."""
    for name, value in choices.items():
        key = f"{prefix}{name}".replace("__", ".")
        if isinstance(value, Mapping):
            yield from _overrides_of(value, f"{key}.")
            continue
        values = value.tolist() if isinstance(value, np.ndarray) else value
        if isinstance(values, str):
            text = values
        elif isinstance(values, Iterable) and not isinstance(values, bytes):
            text = ",".join(_element(key, element) for element in values)
            if not text:
                raise InputError(key, repr(value)[:_LONG], "at least one value")
        else:
            text = _written(key, values)
        yield f"{'+' if key == SWEEPS else ''}{key}={text}"


def _element(key: str, value: Any) -> str:
    """Write a value of an axis, quoted where the grammar needs it."""
    text = value if isinstance(value, str) else _written(key, value)
    if _BARE.fullmatch(text):
        return text
    # Hydra unescapes backslashes only before a quote, or at the end
    escaped = _ENDING.sub(lambda match: 2 * match[1] + ("\\'" if match[2] else ""), text)
    return f"'{escaped}'"


def _written(key: str, value: Any) -> str:
    """Write a value that is no text as a configuration does; raises InputError."""
    plain = value.item() if isinstance(value, np.generic) else value
    if plain is None or isinstance(plain, str | bool | int | float):
        return written(plain)
    raise InputError(key, repr(value)[:_LONG], "a text, a number, true, false, None, or a list of these")


def check_call(overrides: Sequence[Any], output: Any = None, config_dir: Any = None) -> None:
    """Refuse overrides that are no strings, and invalid paths; raises InputError."""
    for override in overrides:
        if not isinstance(override, str):
            raise InputError("override", repr(override)[:_LONG], 'a text, as "tech=n7"', "the overrides")
    for key, path in (("output", output), ("config_dir", config_dir)):
        if path is None:
            continue
        written = os.fspath(path) if isinstance(path, str | os.PathLike) else path
        if not isinstance(written, str) or not written.strip() or "\0" in written:
            raise InputError(key, repr(path), "a path, as a text or a pathlib.Path")


def text_of(key: str, value: Any) -> str:
    """Return a text that a function takes; raises InputError for anything else."""
    if not isinstance(value, str):
        raise InputError(key, repr(value), "a text")
    return value


def numbers_of(arguments: dict[str, Any]) -> dict[str, NDArray[Any]]:
    """Return numbers, and arrays of them, as arrays of one shape; raises InputError for anything else."""
    columns: dict[str, NDArray[Any]] = {}
    for key, value in arguments.items():
        try:
            columns[key] = np.asarray(value)
        except (ValueError, TypeError) as error:
            raise InputError(key, type(value).__name__, f"numbers ({error})") from None
        if columns[key].dtype.kind not in "iuf" and columns[key].size:
            raise InputError(key, repr(value)[:_LONG], "a number, or an array of numbers")
    try:
        arrays = np.broadcast_arrays(*columns.values())
    except ValueError:
        shapes = " and ".join(str(column.shape) for column in columns.values())
        raise InputError(" and ".join(arguments), shapes, "numbers, or arrays of one shape") from None
    return dict(zip(arguments, arrays, strict=True))
