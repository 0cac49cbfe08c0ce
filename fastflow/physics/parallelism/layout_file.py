"""`parallel.layout=FILE.yaml`: the dimensions that every axis of the mesh shards (docs/splits.md)."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, NamedTuple

from fastflow.core.yaml_file import mapping_of, read_current, read_version, wrong
from fastflow.physics.parallelism.mesh import AXES, PIPELINE
from fastflow.physics.parallelism.plans import Assignment, number_of
from fastflow.physics.workload.graph import LAYER_KINDS

KEY = "parallel.layout"
_SHARDING_AXES = tuple(axis for axis in AXES if axis != AXES[PIPELINE])


class FileLayout(NamedTuple):
    """Assignments, of plans.assignments."""

    kinds: tuple[int, ...]  # of every kind of layer
    layers: Mapping[str, int]  # of layers that differ, by name


def read_layout(path: str) -> FileLayout:
    """Return the assignments that a file gives; raises InputError."""
    return read_current(KEY, _of_version, path)


@lru_cache(maxsize=64)
def _of_version(path: str, changed: int, size: int) -> FileLayout:
    mapping = mapping_of("", read_version(path, size), ("axes",), ("name", "source", "layers", *LAYER_KINDS))
    shared, layers = _axes("axes", mapping["axes"]), mapping.get("layers", {})
    if not isinstance(layers, dict):
        raise wrong("layers", "a mapping of layers, by name, to what their axes cut", layers)
    kinds = (number_of(_assignment(shared | _axes(kind, mapping.get(kind, {})))) for kind in LAYER_KINDS)
    named = {str(name): shared | _axes(f"layers.{name}", axes) for name, axes in layers.items()}
    return FileLayout(tuple(kinds), {name: number_of(_assignment(axes)) for name, axes in named.items()})


def _axes(where: str, value: Any) -> dict[str, tuple[str, ...]]:
    mapping = mapping_of(where, value, (), _SHARDING_AXES)
    for axis, dimensions in mapping.items():
        if not isinstance(dimensions, list) or not all(isinstance(name, str) for name in dimensions):
            raise wrong(
                f"{where}.{axis}", "a list of dimensions, the first that a kernel has is cut", dimensions
            )
    return {axis: tuple(dimensions) for axis, dimensions in mapping.items()}


def _assignment(axes: Mapping[str, tuple[str, ...]]) -> Assignment:
    return tuple((axis, axes[axis]) for axis in _SHARDING_AXES if axis in axes)
