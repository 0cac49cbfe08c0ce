"""The formats of benchmarks' outputs, a module each: modules in this folder register themselves."""

from __future__ import annotations

import pkgutil
from importlib import import_module

for _module in sorted(module.name for module in pkgutil.iter_modules(__path__)):
    import_module(f"{__name__}.{_module}")
