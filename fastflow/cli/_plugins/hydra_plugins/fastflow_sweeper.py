"""fastflow's plugins for Hydra: a grid as one table, sources of configurations, no empty folders.

Hydra finds plugins under the namespace package `hydra_plugins` alone; `config.library.use_plugins`
puts this folder on `sys.path`. Hydra imports this module whenever it starts, so it imports little.
"""

from pathlib import Path
from typing import Any

from hydra._internal.core_plugins.file_config_source import FileConfigSource
from hydra.core.config_search_path import ConfigSearchPath
from hydra.core.config_store import ConfigStore
from hydra.core.object_type import ObjectType
from hydra.core.utils import JobReturn
from hydra.errors import ConfigCompositionException
from hydra.experimental.callback import Callback
from hydra.plugins.config_source import ConfigResult
from hydra.plugins.search_path_plugin import SearchPathPlugin
from hydra.plugins.sweeper import Sweeper
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig
from omegaconf.errors import OmegaConfBaseException

from fastflow.config.library import USER_FILES, is_user_file, library_root

# `params` are overrides, as for Hydra's own sweeper; `zip` and `union` are ours
ConfigStore.instance().store(
    group="hydra/sweeper",
    name="fastflow",
    node={"_target_": "hydra_plugins.fastflow_sweeper.FastflowSweeper", "params": {}, "zip": [], "union": []},
    provider="fastflow",
)


class FastflowSweeper(Sweeper):
    """Runs a grid as one table: no Hydra job, and one composition for each combination of groups."""

    def __init__(self, **section: Any) -> None:
        """Take the section `hydra.sweeper`, as `fastflow.engine.grid.overrides` describes it."""
        self.section = section

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        """Keep Hydra's loader of configurations, and the configuration of the sweep."""
        self.hydra_context, self.config = hydra_context, config

    def sweep(self, arguments: list[str]) -> None:
        """Run the grid that the command line's overrides span."""
        from fastflow.cli import application

        assert self.hydra_context is not None
        assert self.config is not None
        application.run_from_hydra(self.hydra_context.config_loader, self.config, arguments, self.section)


class StudiesSource(FileConfigSource):
    """The library's root as the source of the group `sweeps` alone."""

    @staticmethod
    def scheme() -> str:
        """Return the scheme that a search path names it by."""
        return "studies"

    def is_group(self, config_path: str) -> bool:
        """Say whether a path is the root or in `sweeps`, and is a group."""
        return _is_study(config_path) and super().is_group(config_path)

    def is_config(self, config_path: str) -> bool:
        """Say whether a path is in `sweeps`, and is a file."""
        return _is_study(config_path) and super().is_config(config_path)


def _is_study(config_path: str) -> bool:
    return config_path.strip("/").partition("/")[0] in ("", "sweeps")


class UserFilesSource(FileConfigSource):
    """Makes a user's file a choice in any group: `chip=path/to/mine.yaml`.

    Hydra asks for a choice by the path "GROUP/CHOICE", and takes what a defaults list in the file names
    from the group, wherever the file is.
    """

    @staticmethod
    def scheme() -> str:
        """Return the scheme that a search path names it by."""
        return USER_FILES

    def available(self) -> bool:
        """Say that there is always a working folder."""
        return True

    def is_group(self, config_path: str) -> bool:
        """Say that it has no groups: those of the library apply."""
        return False

    def is_config(self, config_path: str) -> bool:
        """Say whether a choice is written as a file's name, and there is such a file."""
        return is_user_file(config_path) and super().is_config(_choice_of(config_path))

    def list(self, config_path: str, results_filter: ObjectType | None) -> list[str]:
        """Return no choices: there are as many as files."""
        return []

    def load_config(self, config_path: str) -> ConfigResult:
        """Read the file, with keys by today's names; the result has its path, and not that of a folder."""
        from fastflow.config.file_cache import rename_keys

        name = _choice_of(config_path)
        try:
            loaded = super().load_config(name)
        except UnicodeDecodeError as error:
            raise ConfigCompositionException(f"{name}: cannot be read (not a text in UTF-8)") from error
        except RecursionError as error:
            raise ConfigCompositionException(f"{name}: cannot be read (nested too deeply)") from error
        except OSError as error:  # OmegaConf raises one for a file that holds a number, too
            reason = error.strerror or "no keys and values in it"
            raise ConfigCompositionException(f"{name}: cannot be read ({reason})") from error
        loaded.path = f"{self.scheme()}://{name}"
        rename_keys(loaded, config_path, Path(name))
        return loaded


def _choice_of(config_path: str) -> str:
    """Return the choice of "GROUP/CHOICE"."""
    return config_path.partition("/")[2]


class LibrarySearchPath(SearchPathPlugin):
    """Adds user files and studies as choices of an application over fastflow's `conf/`, and of no other.

    `+sweeps=NAME` is a study of `sweeps/`; a user's file overrides any name of the library.
    """

    def manipulate_search_path(self, search_path: ConfigSearchPath) -> None:
        """Add to a search path whose primary source is the library's `conf/`."""
        root = library_root()
        for entry in search_path.get_path():
            if entry.provider == "main" and entry.path.removeprefix("file://") == str(root / "conf"):
                search_path.prepend("fastflow", f"{USER_FILES}://")
                search_path.append("fastflow", f"studies://{root}")
                return


class RemoveEmptyFolder(Callback):
    """Removes the output folder that Hydra made for a run which then wrote nothing into it."""

    def __init__(self) -> None:
        """Start with no folder."""
        self.made: list[Path] = []

    def on_run_start(self, config: DictConfig, **_: Any) -> None:
        """Record which folders do not exist yet."""
        self._record(config, "run")

    def on_multirun_start(self, config: DictConfig, **_: Any) -> None:
        """Note which folders do not exist yet."""
        self._record(config, "sweep")

    def _record(self, config: DictConfig, section: str) -> None:
        try:
            folder = Path(config.hydra[section].dir).absolute()
            missing = () if folder.exists() else (folder, *folder.parents)
            self.made = [path for path in missing if not path.exists()]
        except (OSError, OmegaConfBaseException):  # Hydra raises it next
            self.made = []

    def on_job_end(self, config: DictConfig, job_return: JobReturn, **_: Any) -> None:
        """Remove those of them that are empty."""
        self._remove()

    def on_multirun_end(self, config: DictConfig, **_: Any) -> None:
        """Remove those of them that are empty."""
        self._remove()

    def _remove(self) -> None:
        for folder in self.made:
            if folder.is_dir() and not any(folder.iterdir()):
                folder.rmdir()
