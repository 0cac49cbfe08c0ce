"""The commands, a file each.

`python -m fastflow.NAME` runs a file of this folder, which `fastflow/__init__.py` adds to the package's path.
"""

from __future__ import annotations

from importlib import import_module

from fastflow.cli.command import Command

COMMANDS: dict[str, Command] = {
    name: import_module(f"{__name__}.{name}").COMMAND
    for name in ("sweep", "search", "validate", "calibrate", "sensitivity", "backtest", "report")
}
"""All of them, in the order of `fastflow --help`."""
