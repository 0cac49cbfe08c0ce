"""`python -m fastflow.calibrate`: fit the physical scalars of a chip to a CSV file of measurements.

The module is callable too, so that `fastflow.calibrate(...)` means the same whether or not this module
has been imported.
"""

from __future__ import annotations

import os
import sys
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fastflow.engine.measured.calibrated import Calibration


class _Callable(ModuleType):
    """A module that is `fastflow.calibrate`, the function, when called."""

    def __call__(
        self,
        *overrides: str,
        output: str | os.PathLike[str] | None = None,
        config_dir: str | os.PathLike[str] | None = None,
    ) -> Calibration:
        """Fit the physical scalars of a chip to measurements; see `fastflow.calibrate`."""
        from fastflow.engine.measured.calibrated import calibrate

        return calibrate(*overrides, output=output, config_dir=config_dir)


sys.modules[__name__].__class__ = _Callable


def main() -> int:
    """Run the command line; returns the exit code: 0, or 2 after a user's mistake."""
    from fastflow.engine.command import run_application
    from fastflow.engine.measured.calibrated import as_lists

    sys.argv[1:] = as_lists(sys.argv[1:])
    return run_application("calibrate")


if __name__ == "__main__":
    sys.exit(main())
