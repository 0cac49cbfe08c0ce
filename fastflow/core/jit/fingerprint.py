"""A hash of all that the machine code of a kernel depends on: its source, and the globals that it uses.

A kernel contains the code of the kernels that it calls, constants of modules, and fields of named tuples. The
fingerprint covers all of them and nothing else: after an edit of a kernel, the kernels that call it are
compiled anew; after an edit of a comment, none is.
"""

from __future__ import annotations

import hashlib
from types import CodeType, FunctionType, ModuleType
from typing import Any

import numpy as np
from numba.core.dispatcher import Dispatcher

_PACKAGE = __name__.partition(".")[0]
_fingerprints: dict[FunctionType, str] = {}


def fingerprint(function: Any) -> str:
    """Return a hash of all that the machine code of a function depends on.

    Raises TypeError for a global of unknown type.
    """
    digest_text = _fingerprints.get(function)
    if digest_text is None:
        _fingerprints[function] = function.__qualname__  # for functions that call each other
        digest = hashlib.sha256("\0".join(_describe_function(function)).encode())
        digest_text = _fingerprints[function] = digest.hexdigest()
    return digest_text


def _describe_function(function: Any) -> list[str]:
    names: set[str] = set()
    parts = [function.__module__, function.__qualname__]
    parts += _describe_code(function.__code__, function.__doc__, names)
    parts += [_describe_value(value, names) for value in function.__defaults__ or ()]
    parts += [_describe_value(cell.cell_contents, names) for cell in function.__closure__ or ()]
    for name in sorted(names & function.__globals__.keys()):
        parts += [name, _describe_value(function.__globals__[name], names)]
    return parts


def _describe_code(code: CodeType, documentation: str | None, names: set[str]) -> list[str]:
    """Return what a code object depends on, and add the names that it uses to `names`."""
    names.update(code.co_names)
    parts = [code.co_code.hex(), *code.co_names, *code.co_varnames, *code.co_freevars, str(code.co_argcount)]
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            parts += _describe_code(constant, None, names)
        else:  # a function without documentation has None in its place
            parts.append(_describe_value(None if constant == documentation else constant, names))
    return parts


def _describe_value(value: Any, names: set[str]) -> str:
    """Return a text for a value that code uses; names: the attributes of modules that it may read."""
    if isinstance(value, Dispatcher):
        options = [value.targetoptions[name] for name in ("_nrt", "forceinline")]
        return f"{options} {fingerprint(value.py_func)}"
    if isinstance(value, FunctionType) and value.__module__.startswith(_PACKAGE):
        return fingerprint(value)
    if isinstance(value, ModuleType):
        used = sorted(names & vars(value).keys()) if value.__name__.startswith(_PACKAGE) else ()
        return f"{value.__name__} {[_describe_value(vars(value)[name], names) for name in used]}"
    if isinstance(value, np.ndarray):
        return f"{value.dtype} {value.shape} {value.tobytes().hex()}"
    if isinstance(value, tuple | list):
        return f"{type(value).__name__} {[_describe_value(item, names) for item in value]}"
    if value is None or isinstance(value, bool | int | float | str | bytes | np.generic):
        return f"{type(value).__name__} {value!r}"
    if isinstance(value, type):
        return f"{value.__module__}.{value.__qualname__} {getattr(value, '_fields', ())}"
    if isinstance(getattr(value, "__name__", None), str):  # of NumPy, or built in
        return f"{getattr(value, '__module__', '')}.{value.__name__}"
    raise TypeError(f"{value!r}: a kernel takes it from elsewhere, and what it follows from is not known")
