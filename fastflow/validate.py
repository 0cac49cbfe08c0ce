"""`python -m fastflow.validate`: hold predictions against a CSV file of measurements.

The module is callable too, so that `fastflow.validate(...)` means the same whether or not this module
has been imported.
"""

from __future__ import annotations

import os
import sys
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fastflow.engine.measured.validated import Validation


class _Callable(ModuleType):
    """A module that is `fastflow.validate`, the function, when called."""

    def __call__(
        self,
        *overrides: str,
        output: str | os.PathLike[str] | None = None,
        config_dir: str | os.PathLike[str] | None = None,
    ) -> Validation:
        """Predict every row of a file of measurements; see `fastflow.validate`."""
        from fastflow.engine.measured.validated import validate

        return validate(*overrides, output=output, config_dir=config_dir)


sys.modules[__name__].__class__ = _Callable


def main() -> int:
    """Run the command line; returns the exit code: 0, or 2 after a user's mistake."""
    from fastflow.engine.command import run_application

    return run_application("validate")


if __name__ == "__main__":
    sys.exit(main())
