"""The kinds of measurement, a file each: what lies here registers itself, and no list names it."""

from __future__ import annotations

import pkgutil
from importlib import import_module

for _module in sorted(found.name for found in pkgutil.iter_modules(__path__)):
    import_module(f"{__name__}.{_module}")
