"""Configuration files on Hydra's search path, cached until they change."""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, cast

import yaml
from hydra._internal.config_repository import CachingConfigRepository
from hydra._internal.core_plugins.file_config_source import FileConfigSource
from hydra._internal.sources_registry import SourcesRegistry
from hydra.core.default_element import GroupDefault
from hydra.errors import ConfigCompositionException
from omegaconf.errors import OmegaConfBaseException

from fastflow.config.library import USER_FILES, is_of_library
from fastflow.config.messages import first_line, path_of
from fastflow.config.renamed_keys import renamed_config, renamed_key, renamed_value
from fastflow.config.yaml_numbers import check_numbers
from fastflow.core.errors import InputError

if TYPE_CHECKING:
    from hydra._internal.config_repository import IConfigRepository
    from hydra.core.default_element import InputDefault
    from hydra.plugins.config_source import ConfigResult, ConfigSource
    from omegaconf import DictConfig

_TICK = 50_000_000  # a file may be written twice within one tick of a file system's clock, with margin [ns]


class _Stamp(NamedTuple):
    """Identity of a file's content: it changes when the file is replaced or written."""

    source: ConfigSource | None
    """The source on the search path that has the file; None where no source has it."""
    device: int = 0
    inode: int = 0
    written: int = 0
    size: int = 0


class Repository(CachingConfigRepository):
    """Configuration files, each read once, without their choices in Hydra's groups."""

    def __init__(self, delegate: IConfigRepository) -> None:
        """Take Hydra's repository of files."""
        super().__init__(delegate)
        self.groups: dict[str, bool] = {}
        self._stamps: dict[str, _Stamp] = {}
        self._read = time.time_ns()
        # Hydra's configurations are in its package, and do not change
        sources = delegate.get_sources()
        self._changing = [source for source in sources if source.scheme() not in ("pkg", "structured")]

    def load_config(self, config_path: str) -> ConfigResult | None:
        """Return the file of a configuration such as "tech/n7", None where it does not exist."""
        known = f"config_path={config_path}" in self.cache
        if not known:
            self._stamps[config_path] = self._stamp(config_path)
        try:
            loaded = super().load_config(config_path=config_path)
        except InputError:
            raise
        except (
            yaml.reader.ReaderError,
            OmegaConfBaseException,
            ValueError,
            RecursionError,
        ) as error:  # which do not name the file
            file = f"{config_path.removesuffix('.yaml')}.yaml"
            raise ConfigCompositionException(f"{file}: cannot be read ({first_line(error)})") from None
        if known or loaded is None:
            return loaded
        path = path_of_config(loaded, config_path)
        if not is_of_library(path):
            try:
                check_numbers(path)
                rename_keys(loaded, config_path, path)
            except InputError:
                del self.cache[f"config_path={config_path}"]  # the next call is refused too
                raise
        if loaded.defaults_list:
            loaded.defaults_list = [
                default for default in loaded.defaults_list if not group_of(default).startswith("hydra/")
            ]
        return loaded

    def group_exists(self, config_path: str) -> bool:
        """Say whether there is a config group of this name."""
        if config_path not in self.groups:
            try:
                self.groups[config_path] = super().group_exists(config_path)
            except (OSError, ValueError):  # no folder can have this name
                self.groups[config_path] = False
        return self.groups[config_path]

    def is_fresh(self) -> bool:
        """Say whether all files read so far are unchanged."""
        self.groups.clear()
        return all(
            stamp.written < self._read - _TICK and stamp == self._stamp(config_path)
            for config_path, stamp in self._stamps.items()
        )

    def _stamp(self, config_path: str) -> _Stamp:
        """Return the stamp of the file of a configuration now."""
        name = f"{config_path.removesuffix('.yaml')}.yaml"
        for source in self._changing:
            if source.scheme() == USER_FILES:
                if not source.is_config(config_path):
                    continue
                path = name.partition("/")[2]
            else:
                path = f"{source.path}/{name}"
            try:
                status = os.stat(path)  # noqa: PTH116 (a Path takes three times as long, for every file of a call)
            except (OSError, ValueError):  # gone since, or no name of a file
                status = None
            if status is not None and stat.S_ISREG(status.st_mode):
                return _Stamp(source, status.st_dev, status.st_ino, status.st_mtime_ns, status.st_size)
        return _Stamp(None)


def rename_keys(loaded: ConfigResult, config_path: str, path: Path) -> None:
    """Give the keys, groups and choices of a user's file the names of today, in place; raises InputError."""
    package = loaded.header["package"] or "_group_"
    group = config_path.partition("/")[0] if "/" in config_path else ""
    section = {"_global_": "", "_group_": group}.get(package, package)
    config = cast("DictConfig", loaded.config)
    loaded.config = renamed_config(config, f"{section}." if section else "", path_of(path))
    for default in loaded.defaults_list or ():
        if isinstance(default, GroupDefault) and default.group is not None:
            slash = "/" if default.group.startswith("/") else ""
            default.group = slash + renamed_key(default.group.lstrip("/"))
            if isinstance(default.value, str):
                default.value = renamed_value(default.group.lstrip("/"), default.value)


class UserFolderSource(FileConfigSource):
    """A folder of configurations whose files have the names of today, if they are a user's."""

    def load_config(self, config_path: str) -> ConfigResult:
        """Read a file; raises InputError for a key by both of its names."""
        loaded = super().load_config(config_path)
        path = path_of_config(loaded, config_path)
        if not is_of_library(path):
            rename_keys(loaded, config_path, path)
        return loaded


@contextmanager
def renaming_user_folders() -> Iterator[None]:
    """Give files of user folders the names of today inside, where Hydra reads them without `Repository`.

    Hydra finds every source in a folder by one class. Other applications in this process keep theirs.
    """
    classes = SourcesRegistry.instance().types
    before = classes[UserFolderSource.scheme()]
    classes[UserFolderSource.scheme()] = UserFolderSource
    try:
        yield
    finally:
        classes[UserFolderSource.scheme()] = before


def path_of_config(loaded: ConfigResult, config_path: str) -> Path:
    """Return the file that a configuration such as "tech/n7" was read from."""
    scheme, _, folder = loaded.path.partition("://")
    is_users = scheme == USER_FILES
    return Path(folder) if is_users else Path(folder) / f"{config_path.removesuffix('.yaml')}.yaml"


def group_of(default: InputDefault) -> str:
    """Return the config group that an entry of a defaults list chooses from; "" for a plain file."""
    return (default.group or "").strip("/") if isinstance(default, GroupDefault) else ""
