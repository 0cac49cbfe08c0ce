"""Old names of keys, groups and values, which go on working: translated where overrides and files are read.

Nothing behind knows an old name. Each is named once in a process, in a line on standard error.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fastflow.config.hub_names import MODEL, with_library_names
from fastflow.config.list_keys import COLUMNS
from fastflow.core.advice import advise
from fastflow.core.errors import InputError
from fastflow.schema import OTHER_CHIPS, split_prefix
from fastflow.schema.renamed import KEYS, VALUES

if TYPE_CHECKING:
    from omegaconf import DictConfig

_SIGNS = "+~"
_WORD = re.compile(r"\w+", re.ASCII)
_NAME = re.compile(r"[\w.]+", re.ASCII)
_REFERENCE = re.compile(r"(\$\{(?:oc\.select:)?)(\.*)([\w.]+)", re.ASCII)
_IN_MAPPING = re.compile(r"[{}]|\w+(?=\s*:)", re.ASCII)
_GROUP = re.compile(r"\w[\w/]*(?=@|$)", re.ASCII)
"""The group in the key of an entry of a defaults list, such as `override /pins@package`."""
_DEFAULTS = "defaults"
_DOCUMENTATION = ("source", "uncertainty", "alternative")
"""Blocks of a file whose names are those of the section that they are in."""
_SECTIONS_OF_FILES, _NEW_FILE = ("training", "serving", "recurrent"), "measurement_files.yaml"
_SECTIONS = {key.rpartition(".")[0] for key in KEYS}
_RENAMED = {*KEYS, *VALUES, COLUMNS, MODEL}
_UNUSUAL = re.compile(rf"^[{_SIGNS}]|@|={{|\$|^(?:{'|'.join(map(re.escape, OTHER_CHIPS))})")
"""What an override has that is not a mere key or group with values."""


def warn_of_old_files(folder: Path) -> None:
    """Say which files of a user's folder have sections that are now of another file."""
    for section in _SECTIONS_OF_FILES:
        path = folder / f"{section}.yaml"
        if path.is_file() and re.search(rf"^{section}:", path.read_text("utf-8", "replace"), re.MULTILINE):
            advise(f"{path} is not read: its section {section} is now one of {_NEW_FILE} (docs/renames.md)")


def renamed_key(key: str) -> str:
    """Return the name of a key or a group today: the same, or a new one, which a line says."""
    new = KEYS.get(key)
    if new is None:
        prefix, inner = split_prefix(key)
        new = prefix + KEYS[inner] if inner in KEYS else None
    return key if new is None else _report(key, new)


def renamed_value(key: str, value: str) -> str:
    """Return a value of a key or a choice of a group by its name today; a list or a sweep of them too.

    Models have the library's names instead of a hub's. key: its name today. Old keys in interpolations
    (`${server.most}`, `${.most}`) are renamed as well.
    """
    if key == MODEL and "/" in value:
        value = with_library_names(value)
    words = VALUES.get(key)
    if words and not value.endswith(".yaml"):
        value = _WORD.sub(
            lambda match: (
                _report(f"{key}={match[0]}", f"{key}={words[match[0]]}").partition("=")[2]
                if match[0] in words
                else match[0]
            ),
            value,
        )
    if "${" in value:
        value = _REFERENCE.sub(lambda match: match[1] + _renamed_reference(key, match[2], match[3]), value)
    return value


def _renamed_reference(key: str, dots: str, name: str) -> str:
    """Return a name in an interpolation as it is today.

    dots: of a relative name, one for the section of key, two for the section above it; "" for others.
    """
    if not dots:
        return renamed_key(name)
    section = ".".join(key.split(".")[: -len(dots)])
    prefix = f"{section}." if section else ""
    return dots + renamed_key(prefix + name).removeprefix(prefix)


def renamed_override(text: str) -> str:
    """Return an override with the names of today: `+server.most=64` is `+server.max_num_seqs=64`."""
    name, equals, value = text.partition("=")
    if not (name in _RENAMED or _UNUSUAL.search(text)):
        return text  # most are: a call should not wait for this
    key, at, package = name.lstrip(_SIGNS).partition("@")
    new = renamed_key(key)
    if new == COLUMNS:
        value = _NAME.sub(lambda match: renamed_key(match[0]), value)
    elif value[:1] == "{" and new in _SECTIONS:
        value = _renamed_mapping(f"{new}.", value)
    else:
        value = renamed_value(new, value)
    sign = name[: len(name) - len(name.lstrip(_SIGNS))]
    return f"{sign}{new}{at}{package}{equals}{value}"


def renamed_overrides(overrides: Iterable[str]) -> list[str]:
    """Return overrides, or arguments of a command line, with the names of today."""
    return [renamed_override(text) if "=" in text or text[:1] == "~" else text for text in overrides]


def _renamed_mapping(section: str, text: str) -> str:
    """Return a mapping of an override with the names of today; section: its prefix of keys, as "server."."""
    depth = 0

    def renamed(match: re.Match[str]) -> str:
        nonlocal depth
        depth += {"{": 1, "}": -1}.get(match[0], 0)
        return renamed_key(section + match[0]).removeprefix(section) if depth == 1 else match[0]

    return _IN_MAPPING.sub(renamed, text)


def renamed_config(config: DictConfig, section: str, file: str) -> DictConfig:
    """Return the content of a file with the names of today, the same object where it has no old name.

    section: prefix of its keys, "" or as "server.". Raises InputError for a key by both of its names.
    """
    from omegaconf import OmegaConf

    content = OmegaConf.to_container(config)
    if not isinstance(content, dict):
        return config
    renamed = _renamed_content(content, section, file)
    if isinstance(content.get(_DEFAULTS), list):
        renamed[_DEFAULTS] = [_renamed_default(entry) for entry in content[_DEFAULTS]]
    return config if renamed == content else OmegaConf.create(renamed)


def _renamed_default(entry: Any) -> Any:
    """Return an entry of a defaults list with the names of today: `override pins: none`."""
    if not isinstance(entry, dict):
        return entry
    renamed = {}
    for name, choice in entry.items():
        group = _GROUP.search(str(name))
        new = renamed_key(group[0]) if group else ""
        key = name if group is None or new == group[0] else name[: group.start()] + new + name[group.end() :]
        renamed[key] = renamed_value(new, choice) if isinstance(choice, str) else choice
    return renamed


def _renamed_content(content: Mapping[Any, Any], section: str, file: str) -> dict[Any, Any]:
    """Return a part of a file with the names of today; raises InputError for a key by both names."""
    result: dict[Any, Any] = {}
    for name, value in content.items():
        path = f"{section}{name}"
        key = renamed_key(path)
        new_name = key.removeprefix(section) if key != path else name
        if new_name != name and new_name in content:
            raise InputError(key, content[new_name], f"one value; {path}, its old name, has {value}", file)
        if isinstance(value, dict):
            inner = section if name in _DOCUMENTATION else f"{key}."
            value = _renamed_content(value, inner, file)
        elif isinstance(value, str):
            value = renamed_value(key, value)
        result[new_name] = value
    return result


def _report(old: str, new: str) -> str:
    """Say once how a name is called today; returns that name."""
    advise(f"{old} is called {new} now")
    return new
