"""The file of a calibration, of a chip or a server: where it may be, its text, and how it is written."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import yaml

from fastflow.analysis.calibration.base_choice import BaseChoice
from fastflow.config.composer import Composer
from fastflow.config.library import is_user_file
from fastflow.config.messages import path_of
from fastflow.core.errors import InputError
from fastflow.engine.dataset.folder import LocalFolder, is_url, remove_empty
from fastflow.engine.grid.run import Run

FIRST_LINE = "# A calibration by python -m fastflow.calibrate."
"""First line of every file that a calibration writes: it marks files that may be overwritten."""


def default_output(choice: str) -> str:
    """Return the default output file of the calibration of a chip, or of a server."""
    stem = Path(choice).stem if is_user_file(choice) else choice
    return f"{stem}-calibrated.yaml"


def check_output(composer: Composer, run: Run, where: str, group: str) -> None:
    """Refuse an output that is no YAML file, that the choice is composed of, or that holds something else.

    run: the plan of the measurements; group: of what is calibrated. Raises InputError.
    """
    path = Path(where)
    if is_url(where) or not is_user_file(where):
        raise InputError("output", where, "a file on this machine, NAME.yaml")
    sources = [composer.file_of(default.config_path or "") for default in run.first.defaults]
    if path.resolve() in [Path(name).resolve() for name in sources]:
        choice = run.first.choices[group]
        raise InputError("output", where, f"a file that {group} {choice} does not use itself")
    if path.is_dir():
        raise InputError("output", where, "a file, and this is a folder")
    if path.exists():
        try:
            is_calibration = path.read_bytes().startswith(FIRST_LINE.encode())
        except OSError:
            is_calibration = False
        if not is_calibration:
            raise InputError("output", where, "a new file or an earlier calibration; this file is neither")


def content_of(
    overrides: Mapping[str, Any], written: Mapping[str, str | float], source: str
) -> dict[str, Any]:
    """Return what a file says itself, by sections: keys that were set, fitted ones, and their sources.

    overrides, written: by keys without the section of the group; source: of the fitted ones.
    """
    content: dict[str, Any] = {}
    for key, value in {**overrides, **written}.items():
        *sections, last = key.split(".")
        inner = content
        for section in sections:
            inner = inner.setdefault(section, {})
        inner[last] = value
    sources: dict[str, str] = dict.fromkeys(overrides, "set for the calibration")
    if written:
        first, *more = written
        sources |= {first: source.replace("${", "\\${"), **dict.fromkeys(more, f"as {first}")}
    return content | {"source": sources} if sources else content


def text_of(group: str, choice: str, base: BaseChoice, content: Mapping[str, Any]) -> str:
    """Return the text of a file that goes on from the base of a choice; content: with that of the base."""
    about = f"What differs from {group} {choice}"
    if is_user_file(choice):
        about = f"{group.capitalize()} {choice} with fitted figures"
    head = [FIRST_LINE, f"# {about}. Use: {group}=THIS_FILE", f"defaults: {_dumped(base.defaults, True)}"]
    return "\n".join([*head, "", _dumped(dict(content), False)])


def _dumped(value: Any, flow: bool) -> str:
    return yaml.safe_dump(
        value, default_flow_style=flow, sort_keys=False, allow_unicode=True, width=float("inf")
    ).removesuffix("\n" if flow else "")


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
