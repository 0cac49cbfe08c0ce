"""The library's files on disk: groups, choices, the description and the keys of each file.

It reads YAML alone, without Hydra, for fast answers: lists, and completion at a prompt.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from itertools import takewhile
from pathlib import Path
from typing import Any

import yaml

from fastflow.config.library import library_root

SWEEPS = "sweeps"
"""The group of ready-made grids, each `+sweeps=NAME`."""
PRESETS = "request_presets"
"""The folder of `fastflow requests preset=NAME`; no group."""
_OF_HYDRA = "hydra"
_PRIMARY = "config"
_PACKAGE = "@package"
_NOT_FIGURES = ("defaults", "source", "uncertainty", "alternative", "name", _OF_HYDRA)


def folders(user_folder: Path | None = None) -> list[Path]:
    """Return the folders that have groups; user_folder: the user's, which overrides the library."""
    return [*([user_folder] if user_folder else []), library_root() / "conf", library_root()]


def groups(user_folder: Path | None = None) -> list[str]:
    """Return the names of all groups, sorted, studies last."""
    conf = folders(user_folder)[:-1]
    names = {path.name for folder in conf for path in folder.iterdir() if path.is_dir()}
    return [*sorted(names - {_OF_HYDRA, PRESETS, SWEEPS}), SWEEPS]


def choices(group: str, user_folder: Path | None = None) -> list[str]:
    """Return the choices of a group, sorted."""
    return sorted({path.stem for folder in folders(user_folder) for path in (folder / group).glob("*.yaml")})


def path_of(group: str, choice: str, user_folder: Path | None = None) -> Path | None:
    """Return the file of a choice, None where no file exists."""
    paths = (folder / group / f"{choice}.yaml" for folder in folders(user_folder))
    return next((path for path in paths if path.is_file()), None)


def about(path: Path) -> str:
    """Return the description of a file: the comment at its beginning, in one line."""
    with path.open(encoding="utf-8") as file:
        comment = [line.lstrip("#").strip() for line in takewhile(lambda line: line.startswith("#"), file)]
    return " ".join(line for line in comment if not line.startswith(_PACKAGE))


def first_sentence(text: str) -> str:
    """Return the first sentence of a text, without its full stop."""
    return text.partition(". ")[0].removesuffix(".")


def default_choices(user_folder: Path | None = None) -> dict[str, str]:
    """Return the default choice of each group."""
    for folder in folders(user_folder):
        primary = folder / f"{_PRIMARY}.yaml"
        if primary.is_file():
            entries = [entry for entry in _read(primary).get("defaults", []) if isinstance(entry, dict)]
            return {key: str(choice) for entry in entries for key, choice in entry.items() if " " not in key}
    return {}


def keys(group: str, choice: str, user_folder: Path | None = None) -> list[str]:
    """Return the dotted keys of a choice's figures, those of the files that it begins with included."""
    path = path_of(group, choice, user_folder)
    if path is None:
        return []
    content = _read(path)
    bases = [entry for entry in content.get("defaults", []) if isinstance(entry, str) and entry != "_self_"]
    inherited = [key for base in bases for key in keys(group, base, user_folder)]
    is_global = path.read_text(encoding="utf-8").startswith(f"# {_PACKAGE} _global_")
    return list(dict.fromkeys([*inherited, *_flat(content, "" if is_global else f"{group}.")]))


def _flat(content: Mapping[str, Any], prefix: str) -> Iterator[str]:
    """Yield the dotted keys of the figures."""
    for key, value in content.items():
        if key in _NOT_FIGURES:
            continue
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}"


@cache
def _read(path: Path) -> dict[str, Any]:
    """Return the content of a file, {} for an unreadable one."""
    try:
        content = yaml.load(path.read_bytes(), getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    except (OSError, yaml.YAMLError):
        return {}
    return content if isinstance(content, dict) else {}


def known_keys(chosen: Sequence[str] = (), user_folder: Path | None = None) -> list[str]:
    """Return the dotted keys of all groups; chosen: overrides such as "chip=a100" that name other choices."""
    overridden = dict(override.partition("=")[::2] for override in chosen)
    choice_of = default_choices(user_folder) | {
        group: choice for group, choice in overridden.items() if group in groups(user_folder)
    }
    return [key for group, choice in choice_of.items() for key in keys(group, choice, user_folder)]


def continuations(prefix: str, chosen: Sequence[str] = ()) -> list[str]:
    """Return the completions of an override's prefix; chosen: the other overrides.

    A value is completed to choices of its group, a name to groups, or to keys where no group matches.
    """
    key, equals, value = prefix.partition("=")
    if equals:
        before, comma, _ = value.rpartition(",")
        return [f"{key}={before}{comma}{choice}" for choice in choices(key.lstrip("+"))]
    if key.startswith("+"):
        return [f"+{SWEEPS}="]
    names = groups()[:-1]
    if "." in key or not any(name.startswith(key) for name in names):
        names = [*names, *known_keys(chosen)]
    return [f"{name}=" for name in names]
