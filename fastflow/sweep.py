"""`python -m fastflow.sweep`: predict one point, or a grid of points (`-m`).

The module is callable too, so that `fastflow.sweep(...)` means the same whether or not this module
has been imported.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from types import ModuleType


class _Callable(ModuleType):
    """A module that is `fastflow.sweep`, the function, when called."""

    def __call__(
        self,
        *overrides: str,
        output: str | os.PathLike[str] | None = None,
        config_dir: str | os.PathLike[str] | None = None,
    ) -> Path | str:
        """Predict every point that the overrides span into a Parquet dataset; returns its folder."""
        from fastflow.engine.api import sweep

        return sweep(*overrides, output=output, config_dir=config_dir)


sys.modules[__name__].__class__ = _Callable


def main() -> int:
    """Run the command line; returns the exit code: 0, or 2 after a user's mistake."""
    from fastflow.engine.command import run_application

    return run_application()


if __name__ == "__main__":
    sys.exit(main())
