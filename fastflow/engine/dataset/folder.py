"""Folder of a dataset, on this machine or at any fsspec URL, with atomic writes.

A file is written under a name that readers skip, which begins with "_", and renamed when every byte of it
is written. On this machine both the file and its name are synced to the disk. An object store
shows a file only when it is complete, so that a copy under the second name is as safe.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any
from urllib.parse import unquote, urlsplit
from uuid import uuid4

from fastflow.config.messages import path_of, unwritable
from fastflow.core.errors import InputError

RANKING, FRONT, PLAN, ERRORS, GAINS, FILES = SUFFIXES = (
    "-ranking", "-front", "-plan", "-errors", "-gains", "-files",
)  # fmt: skip
"""Suffixes of the folders of a search, a validation or a back-test, after the name of their dataset."""
_SCHEME = re.compile(r"[A-Za-z][\w+.:-]*://")
Writer = Callable[[IO[bytes]], None]


def is_url(output: str | os.PathLike[str]) -> bool:
    """Say whether an output is an fsspec URL rather than a path."""
    return "://" in str(output)


def url_or_folder(output: str | None, folder: str) -> str:
    """Return an output that is a URL, else the folder that Hydra made of it: Hydra takes a URL for a path."""
    return output if output is not None and is_url(output) else folder


def shown_output(output: str) -> str:
    """Return an output as messages show it."""
    return url_or_folder(output, path_of(Path(output).absolute()))


def is_folder(path: str) -> bool:
    """Say whether a path is a folder of this machine; False for an invalid path."""
    try:
        return Path(path).is_dir()
    except OSError:
        return False


def folder_at(output: str | os.PathLike[str]) -> LocalFolder | UrlFolder:
    """Return the folder at a path or URL; raises InputError for a URL that nothing here can reach."""
    shown = str(output)
    if is_url(output) and not _SCHEME.match(shown):
        raise InputError("output", shown, "a path, or a URL that begins with its scheme, as s3://")
    if shown.startswith("file://"):
        path = unquote(urlsplit(shown).path)
        if not path or "\0" in path:
            raise InputError("output", shown, "a path, or a URL with one, as file:///results/mine")
        return LocalFolder(Path(path), shown)
    if not shown.strip() or "\0" in shown:
        raise InputError("output", shown.replace("\0", "\\0"), "a folder")
    return UrlFolder(shown) if is_url(output) else LocalFolder(Path(output), shown)


def _temporary_name(name: str) -> str:
    return f"_{name}.{uuid4().hex[:8]}"


@contextmanager
def _raising_input_error(shown: str) -> Iterator[None]:
    """Raise InputError for errors of the file system."""
    try:
        yield
    except OSError as error:
        raise unwritable(shown, error) from error


class LocalFolder:
    """A folder of this machine, or of a file system mounted on it. Refusals are raised as InputError."""

    def __init__(self, path: Path, shown: str) -> None:
        """Take the path, and the text of it that messages show."""
        self.path = path.absolute()
        self.shown = shown

    def make(self) -> list[Path]:
        """Make the folder; returns it and those around it that were not there, innermost first."""
        with _raising_input_error(self.shown):
            missing = () if self.path.exists() else (self.path, *self.path.parents)
            made = [path for path in missing if not path.exists()]
            self.path.mkdir(parents=True, exist_ok=True)
            probe = self.path / _temporary_name("probe")
            probe.touch()
            probe.unlink()
        return made

    def names(self) -> list[str]:
        """Return the sorted names of the files and folders here; [] where the folder does not exist."""
        with _raising_input_error(self.shown):
            return sorted(path.name for path in self.path.iterdir()) if self.path.exists() else []

    def write(self, name: str, writer: Writer) -> None:
        """Write a file aside, sync it, and give it its name."""
        path = self.path / _temporary_name(name)
        try:
            with _raising_input_error(self.shown):
                with path.open("wb") as file:
                    writer(file)
                    file.flush()
                    os.fsync(file.fileno())
                try:
                    path.replace(self.path / name)
                except FileNotFoundError:  # another run of this dataset has finished it and tidied up
                    if not (self.path / name).exists():
                        raise
                self._sync()
        except BaseException:
            path.unlink(missing_ok=True)
            raise

    def open(self, name: str) -> IO[bytes]:
        """Open a file for reading."""
        with _raising_input_error(self.shown):
            return (self.path / name).open("rb")

    def remove(self, name: str) -> None:
        """Remove a file, if it is there."""
        with _raising_input_error(self.shown):
            (self.path / name).unlink(missing_ok=True)

    def _sync(self) -> None:
        """Sync the folder, so that file names survive a power cut."""
        handle = os.open(self.path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


class UrlFolder:
    """A folder at an fsspec URL, as `s3://bucket/study`. Refusals are raised as InputError."""

    def __init__(self, url: str) -> None:
        """Take its URL; raises InputError where nothing here can reach it."""
        self.shown = url
        try:
            import fsspec
        except ImportError:
            raise InputError("output", url, "a path; URLs need pip install 'fastflow[cluster]'") from None
        try:
            self.files: Any
            self.files, self.path = fsspec.core.url_to_fs(url)
        except Exception as error:  # every store raises its own exceptions
            raise InputError("output", url, f"a path, or a URL that fsspec can reach ({error})") from None

    def make(self) -> list[Path]:
        """Make the folder, where the store has folders."""
        with _raising_input_error(self.shown):
            self.files.makedirs(self.path, exist_ok=True)
        return []

    def names(self) -> list[str]:
        """Return the sorted names of the files and folders here; [] where the folder does not exist."""
        with _raising_input_error(self.shown):
            self.files.invalidate_cache()
            if not self.files.exists(self.path):
                return []
            paths = self.files.ls(self.path, detail=False)
        return sorted(str(path).rstrip("/").rpartition("/")[2] for path in paths)

    def write(self, name: str, writer: Writer) -> None:
        """Write a file aside, and give it its name."""
        path = f"{self.path}/{_temporary_name(name)}"
        with _raising_input_error(self.shown):
            try:
                with self.files.open(path, "wb") as file:
                    writer(file)
                self.files.mv(path, f"{self.path}/{name}")
            except BaseException:
                if self.files.exists(path):
                    self.files.rm(path)
                raise

    def open(self, name: str) -> IO[bytes]:
        """Open a file for reading."""
        with _raising_input_error(self.shown):
            opened: IO[bytes] = self.files.open(f"{self.path}/{name}", "rb")
        return opened

    def remove(self, name: str) -> None:
        """Remove a file, if it is there."""
        with _raising_input_error(self.shown):
            if self.files.exists(f"{self.path}/{name}"):
                self.files.rm(f"{self.path}/{name}")


def remove_empty(folders: list[Path]) -> None:
    """Remove folders, innermost first, as far as they are empty."""
    for folder in folders:
        try:
            folder.rmdir()
        except OSError:
            return
