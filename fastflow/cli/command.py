"""A command: its configuration, and the files of its results, tables, charts and pages."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType
from typing import NamedTuple


class Command(NamedTuple):
    """A command. Paths are below `fastflow/`, or names of a package's modules; "" where it has none."""

    name: str
    """`python -m fastflow.NAME`."""
    about: str
    """Its line of `fastflow --help`."""
    config: str = ""
    """Its primary configuration, `conf/NAME.yaml`; "" where Hydra does not run it."""
    line: str = "cli/application.py"
    """The file that reads its command line, by `main(command)`, which returns the exit code."""
    run: str = ""
    """The file that runs it and prints; see `module`."""
    computes: str = ""
    """The package of its results."""
    columns: str = ""
    """The columns of its dataset."""
    table: str = ""
    """Its tables on the screen."""
    chart: str = ""
    """Its figure."""
    page: str = ""
    """Its page for a browser."""
    reads_rows: bool = False
    """Whether its configuration is made for each row of a file."""

    lists: tuple[str, ...] = ()
    """Keys whose commas are of a list, not of an axis."""
    grid_refusal: str = ""
    """What it says to a grid, "" where it runs grids."""

    def main(self) -> int:
        """Run its command line; returns the exit code: 0, or 2 after a user's mistake."""
        code: int = _module(self.line).main(self)
        return code

    def module(self) -> ModuleType:
        """Return the module that runs it, with `run` and `plan`, as `cli/run/sweep.py` documents them."""
        return _module(self.run)


def _module(path: str) -> ModuleType:
    """Return the module of a path below `fastflow/`, or of a dotted name."""
    if not path.endswith(".py"):
        return import_module(path)
    return import_module("fastflow." + path.removesuffix(".py").replace("/", "."))
