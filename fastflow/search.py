"""`python -m fastflow.search`: search the best design for a point, or for each point of a grid (`-m`).

The module is callable too, so that `fastflow.search(...)` means the same whether or not this module
has been imported.
"""

from __future__ import annotations

import os
import sys
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fastflow.engine.searched import Search


class _Callable(ModuleType):
    """A module that is `fastflow.search`, the function, when called."""

    def __call__(
        self,
        *overrides: str,
        output: str | os.PathLike[str] | None = None,
        config_dir: str | os.PathLike[str] | None = None,
    ) -> Search:
        """Search the best breakdown of area, power and die edge; see `fastflow.search`."""
        from fastflow.engine.searched import search

        return search(*overrides, output=output, config_dir=config_dir)


sys.modules[__name__].__class__ = _Callable


def main() -> int:
    """Run the command line; returns the exit code: 0, or 2 after a user's mistake."""
    from fastflow.engine.command import run_application

    return run_application("search")


if __name__ == "__main__":
    sys.exit(main())
