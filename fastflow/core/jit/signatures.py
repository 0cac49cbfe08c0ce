"""The types of kernels' arguments, written as texts and lists."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any

from numba.core import types


def compile_for(function: Any, signature: Sequence[Any]) -> None:
    """Compile a kernel for arguments of some types, each as `write_type` writes it, before any call."""
    function.compile(tuple(map(read_type, signature)))


def read_type(written: Any) -> Any:
    """Return a Numba type from how `write_type` writes it."""
    if isinstance(written, str):
        name, _, shape = written.partition(" ")
        scalar = types.UnicodeCharSeq(int(name[1:])) if name[0] == "U" else getattr(types, name)
        return types.Array(scalar, int(shape[0]), shape[1], readonly="r" in shape) if shape else scalar
    name, *parts = written
    module, _, cls = name.partition(":")
    made = getattr(importlib.import_module(module), cls) if cls else None
    return types.BaseTuple.from_types(tuple(map(read_type, parts)), made)


def write_type(given: Any) -> Any:
    """Write a Numba type as texts and lists; raises ValueError for one that kernels do not take."""
    if isinstance(given, types.Array):
        flags = f"{given.ndim}{given.layout}{'' if given.mutable else 'r'}"
        return f"{write_type(given.dtype)} {flags}"
    if isinstance(given, types.BaseNamedTuple):
        cls = given.instance_class
        return [f"{cls.__module__}:{cls.__qualname__}", *map(write_type, given.types)]
    if isinstance(given, types.BaseAnonymousTuple):
        return ["tuple", *map(write_type, given.types)]
    if isinstance(given, types.Number | types.Boolean):
        return str(given) if str(given) != "bool" else "boolean"
    if isinstance(given, types.UnicodeCharSeq):
        return f"U{given.count}"
    raise ValueError(f"{given}: no type of a kernel's argument")
