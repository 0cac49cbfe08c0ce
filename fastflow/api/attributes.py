"""Attributes of `fastflow` that are no functions, each loaded when it is named."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

_RESULTS = "fastflow.api.notebook.results"
_FRAMES = "fastflow.api.notebook.frames"
_CLASSES = {
    "Backtest": _RESULTS, "Calibration": _RESULTS, "Chances": _FRAMES, "FleetSearch": _RESULTS,
    "InputError": "fastflow.core.errors",
    "Points": _FRAMES, "Search": _RESULTS, "Sensitivity": _RESULTS, "ServerCalibration": _RESULTS,
    "Validation": _RESULTS,
}  # fmt: skip
"""Modules of public classes."""


def attribute(name: str, functions: Mapping[str, Any]) -> Any:
    """Return a public class, the version, or a function by its old name; raises AttributeError.

    functions: those of the package by their names.
    """
    if name == "__version__":
        from fastflow.core.version import version

        return version()
    if name in _CLASSES:
        return getattr(import_module(_CLASSES[name]), name)
    from fastflow.schema.renamed import FUNCTIONS

    if name in FUNCTIONS:
        import warnings

        new = FUNCTIONS[name]
        warnings.warn(f"fastflow.{name} is now fastflow.{new}", FutureWarning, stacklevel=3)
        return functions[new]
    raise AttributeError(f"module 'fastflow' has no attribute {name!r}")
