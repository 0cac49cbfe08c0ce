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
    """Return a Numba type that `write_type` wrote."""
    if isinstance(written, str):
        name, _, shape = written.partition(" ")
        scalar = types.UnicodeCharSeq(int(name[1:])) if name[0] == "U" else getattr(types, name)
        return types.Array(scalar, int(shape[0]), shape[1], readonly="r" in shape) if shape else scalar
    name, *parts = written
    module, _, cls = name.partition(":")
    cls_object = getattr(importlib.import_module(module), cls) if cls else None
    return types.BaseTuple.from_types(tuple(map(read_type, parts)), cls_object)


def write_type(numba_type: Any) -> Any:
    """Write a Numba type as texts and lists; raises ValueError for a type that kernels do not take."""
    if isinstance(numba_type, types.Array):
        flags = f"{numba_type.ndim}{numba_type.layout}{'' if numba_type.mutable else 'r'}"
        return f"{write_type(numba_type.dtype)} {flags}"
    if isinstance(numba_type, types.BaseNamedTuple):
        cls = numba_type.instance_class
        return [f"{cls.__module__}:{cls.__qualname__}", *map(write_type, numba_type.types)]
    if isinstance(numba_type, types.BaseAnonymousTuple):
        return ["tuple", *map(write_type, numba_type.types)]
    if isinstance(numba_type, types.Number | types.Boolean):
        return str(numba_type) if str(numba_type) != "bool" else "boolean"
    if isinstance(numba_type, types.UnicodeCharSeq):
        return f"U{numba_type.count}"
    raise ValueError(f"{numba_type}: no type of a kernel's argument")
