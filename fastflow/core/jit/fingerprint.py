"""What the machine code of a kernel follows from: its own code, and all that it takes from elsewhere.

A kernel has the code of the kernels that it calls in it, the constants of modules, and the fields of named
tuples. The fingerprint covers them all, wherever they were written, and nothing else: after an edit of one
kernel, those that have it in them are compiled anew; after an edit of a comment, none is.
"""

from __future__ import annotations

import hashlib
from types import CodeType, FunctionType, ModuleType
from typing import Any

import numpy as np
from numba.core.dispatcher import Dispatcher

_PACKAGE = __name__.partition(".")[0]
_made: dict[FunctionType, str] = {}


def fingerprint(function: Any) -> str:
    """Return a hash of all that the code of a function follows from.

    Raises TypeError where it takes something from elsewhere of which is not known what it follows from.
    """
    known = _made.get(function)
    if known is None:
        _made[function] = function.__qualname__  # for functions that call each other
        digest = hashlib.sha256("\0".join(_of_function(function)).encode())
        known = _made[function] = digest.hexdigest()
    return known


def _of_function(function: Any) -> list[str]:
    names: set[str] = set()
    found = [function.__module__, function.__qualname__]
    found += _of_code(function.__code__, function.__doc__, names)
    found += [_of_value(value, names) for value in function.__defaults__ or ()]
    found += [_of_value(cell.cell_contents, names) for cell in function.__closure__ or ()]
    for name in sorted(names & function.__globals__.keys()):
        found += [name, _of_value(function.__globals__[name], names)]
    return found


def _of_code(code: CodeType, documentation: str | None, names: set[str]) -> list[str]:
    """Return what a code object follows from, and add the names that it uses to `names`."""
    names.update(code.co_names)
    found = [code.co_code.hex(), *code.co_names, *code.co_varnames, *code.co_freevars, str(code.co_argcount)]
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            found += _of_code(constant, None, names)
        else:  # a function without documentation has None in its place
            found.append(_of_value(None if constant == documentation else constant, names))
    return found


def _of_value(value: Any, names: set[str]) -> str:
    """Return a text for a value that code uses; names: what it may ask a module for."""
    if isinstance(value, Dispatcher):
        return f"{value.targetoptions['_nrt']} {fingerprint(value.py_func)}"
    if isinstance(value, FunctionType) and value.__module__.startswith(_PACKAGE):
        return fingerprint(value)
    if isinstance(value, ModuleType):
        ours = sorted(names & vars(value).keys()) if value.__name__.startswith(_PACKAGE) else ()
        return f"{value.__name__} {[_of_value(vars(value)[name], names) for name in ours]}"
    if isinstance(value, np.ndarray):
        return f"{value.dtype} {value.shape} {value.tobytes().hex()}"
    if isinstance(value, tuple | list):
        return f"{type(value).__name__} {[_of_value(one, names) for one in value]}"
    if value is None or isinstance(value, bool | int | float | str | bytes | np.generic):
        return f"{type(value).__name__} {value!r}"
    if isinstance(value, type):
        return f"{value.__module__}.{value.__qualname__} {getattr(value, '_fields', ())}"
    if isinstance(getattr(value, "__name__", None), str):  # of NumPy, or built in
        return f"{getattr(value, '__module__', '')}.{value.__name__}"
    raise TypeError(f"{value!r}: a kernel takes it from elsewhere, and what it follows from is not known")
