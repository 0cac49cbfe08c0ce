"""Python's collector of reference cycles, paused where it finds little."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def paused_collector() -> Iterator[None]:
    """Collect no reference cycles within: to look for them takes time each time objects have become more.

    Objects without cycles are freed as ever. The collector goes on behind, if it was on before.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
