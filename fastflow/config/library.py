"""Location of the library of configurations, and its registration with Hydra."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[1]
USER_FILES = "file-of-the-user"
"""The scheme of a user's files on Hydra's search path."""


def library_root() -> Path:
    """Return the folder that holds `conf/` and `sweeps/`: inside an installed package, or its checkout."""
    packaged = PACKAGE / "_library"
    return packaged if packaged.is_dir() else PACKAGE.parent


def is_of_library(path: Path) -> bool:
    """Say whether a file is one of the library's, and not a user's, who may work in a checkout."""
    return any(path.is_relative_to(library_root() / folder) for folder in ("conf", "sweeps"))


def is_user_file(choice: str) -> bool:
    """Say whether a choice in a group is written as the name of a file, `path/to/mine.yaml`."""
    return choice.endswith(".yaml")


def use_plugins() -> None:
    """Let Hydra know fastflow's plugins, whether or not the calling application has used Hydra before.

    Hydra looks for plugins under the namespace package `hydra_plugins` alone, and once in a
    process, so the folder that holds ours goes on `sys.path`, and they are registered by hand.
    """
    folder = str(PACKAGE / "cli" / "_plugins")
    if folder not in sys.path:
        sys.path.append(folder)
    from hydra.core.plugins import Plugins

    plugins = Plugins.instance()
    from hydra_plugins import fastflow_sweeper as fastflow_plugins

    for plugin in (
        fastflow_plugins.FastflowSweeper,
        fastflow_plugins.StudiesSource,
        fastflow_plugins.UserFilesSource,
        fastflow_plugins.LibrarySearchPath,
    ):
        plugins.register(plugin)


@contextmanager
def hydra_rules() -> Iterator[None]:
    """Compose by Hydra 1.3's rules inside, whatever rules the calling application has chosen."""
    from hydra import version

    base = version.VersionBase.instance()
    before = base.version_base
    version.setbase("1.3")
    try:
        yield
    finally:
        base.version_base = before
