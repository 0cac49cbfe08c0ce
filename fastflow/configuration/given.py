"""What a Python call was given, checked before anything is made of it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from fastflow.errors import InputError

if TYPE_CHECKING:
    from numpy.typing import NDArray

_LONG = 100  # characters of a value that a line shows


def check_call(overrides: Sequence[Any], output: Any = None, config_dir: Any = None) -> None:
    """Refuse overrides that are no texts, and paths that are none; raises InputError."""
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


def numbers_of(given: dict[str, Any]) -> dict[str, NDArray[Any]]:
    """Return numbers, and arrays of them, as arrays of one shape; raises InputError for anything else."""
    columns: dict[str, NDArray[Any]] = {}
    for key, value in given.items():
        try:
            columns[key] = np.asarray(value)
        except (ValueError, TypeError) as error:
            raise InputError(key, type(value).__name__, f"numbers ({error})") from None
        if columns[key].dtype.kind not in "iuf" and columns[key].size:
            raise InputError(key, repr(value)[:_LONG], "a number, or an array of numbers")
    try:
        shaped = np.broadcast_arrays(*columns.values())
    except ValueError:
        shapes = " and ".join(str(column.shape) for column in columns.values())
        raise InputError(" and ".join(given), shapes, "numbers, or arrays of one shape") from None
    return dict(zip(given, shaped, strict=True))
