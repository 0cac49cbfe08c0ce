"""Architectures of published models by their `model_type`, a file a family: each registers its types."""

from __future__ import annotations

import pkgutil
from collections.abc import Mapping
from importlib import import_module

from fastflow.physics.workload.models.transformer.config_json.architecture import Architecture

TYPES: Mapping[str, Architecture] = {
    name: architecture
    for family in sorted(module.name for module in pkgutil.iter_modules(__path__))
    for name, architecture in import_module(f"{__name__}.{family}").TYPES.items()
}
"""By `model_type`."""
