"""The commands, a file each.

`python -m fastflow.NAME` runs a file of this folder, which `fastflow/__init__.py` adds to the package's path.
"""

from __future__ import annotations

from importlib import import_module

from fastflow.cli.command import Command
from fastflow.core.registry import Registry

COMMANDS: Registry[Command] = Registry(
    "command",
    "commands",
    lambda thing: isinstance(thing, Command) and not thing.line.endswith(".py"),
    "a fastflow.cli.command.Command whose `line` is a module of the package",
    {
        name: import_module(f"{__name__}.{name}").COMMAND
        for name in (
            "sweep",
            "fits",
            "search",
            "validate",
            "calibrate",
            "sensitivity",
            "backtest",
            "report",
            "requests",
        )
    },
)  # fmt: skip
"""All of them, in the order of `fastflow --help`, then those of packages."""
