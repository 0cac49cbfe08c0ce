"""Makes the command modules callable as the functions of the same name."""

from __future__ import annotations

import os
import sys
from importlib import import_module
from types import ModuleType
from typing import Any


def make_callable(module: str, where: str) -> None:
    """Let a module be called as a function of its name, which is imported when that first happens.

    So `fastflow.sweep(...)` means the same whether or not the module `fastflow.sweep` has been imported.
    module: its `__name__`; where: the function, as "fastflow.api.sweep".
    """
    home, _, name = where.rpartition(".")

    class Command(ModuleType):
        """A module that is a function when called; see `fastflow`, which documents it."""

        def __call__(
            self,
            *overrides: str,
            output: str | os.PathLike[str] | None = None,
            config_dir: str | os.PathLike[str] | None = None,
            **choices: Any,
        ) -> Any:
            """Do what the function of the module's name does."""
            from fastflow.configuration.given import asked_for

            texts = asked_for(overrides, choices, output, config_dir)
            return getattr(import_module(home), name)(*texts, output=output, config_dir=config_dir)

    sys.modules[module].__class__ = Command
