"""The file of a calibration: written whole or not at all."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from fastflow.config.messages import path_of
from fastflow.engine.dataset.folder import LocalFolder, remove_empty


@contextmanager
def output_file(where: str | None) -> Iterator[Callable[[str], None]]:
    """Yield what writes the text of the file, nothing if no path is given; raises InputError.

    Its folder is made at once, since it may not be writable, and removed again after an error.
    """
    if where is None:
        yield lambda text: None
        return
    folder = LocalFolder(Path(where).parent, path_of(Path(where).parent))
    new_folders = folder.make()

    def write(text: str) -> None:
        def into(file: IO[bytes]) -> None:
            file.write(text.encode())

        folder.write(Path(where).name, into)

    try:
        yield write
    except BaseException:
        remove_empty(new_folders)
        raise
