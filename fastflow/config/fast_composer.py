"""Composition of ordinary configurations on plain containers, as Hydra does it, in a tenth of the time.

Anything else raises Unusual, and the caller leaves it to Hydra and OmegaConf. So it does with mistakes:
this module has no error messages. tests/config/test_fast_composer.py compares the two.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, NamedTuple

from hydra._internal.config_repository import IConfigRepository
from hydra.core.default_element import ConfigDefault, GroupDefault, InputDefault, ResultDefault
from hydra.core.override_parser.types import Override
from omegaconf import AnyNode, DictConfig, ListConfig, OmegaConf

MISSING = "???"

_PATH = r"\w+(?:\.\w+)*"
_TEXT = r"[^${}\\]*"
_KEY = re.compile(_PATH, re.ASCII)
_REFERENCE = re.compile(rf"\$\{{({_PATH})\}}", re.ASCII)
# text with absolute references, times and environment variables: nothing else reads other keys
_INTERPOLATED = re.compile(rf"{_TEXT}(?:\$\{{(?:{_PATH}|(?:now|oc\.env):{_TEXT})\}}{_TEXT})+", re.ASCII)

# the value of a key, or a fallback where the key is missing
_SELECTED = re.compile(rf"\$\{{oc\.select:({_PATH}),(true|false)\}}", re.ASCII)
_NOW = re.compile(r"\$\{now:(%[A-Za-z](?:-%[A-Za-z])*)\}", re.ASCII)  # which every output folder is named by


class Unusual(Exception):  # noqa: N818
    """Raised for what only Hydra itself composes or resolves."""


class DefaultsList(NamedTuple):
    """The resolved defaults lists."""

    files: list[ResultDefault]
    """The files to merge, in order."""
    choices: dict[str, str]
    """The final choice in each group."""


def find_files(
    repository: IConfigRepository, config_name: str | None, chosen: Iterable[Override]
) -> DefaultsList:
    """Follow the defaults lists from the primary configuration, as Hydra's `create_defaults_list`.

    chosen: the overrides that choose in groups.
    """
    search = _Search(repository)
    for override in chosen:
        search.take(override)
    if config_name is None or not repository.config_exists(config_name):
        raise Unusual
    root = ConfigDefault(path=config_name, primary=True)
    root.update_parent("", "")
    files = search.files_of(root, None)
    keys = [file.override_key for file in files if file.override_key is not None and not file.is_self]
    if search.chosen.keys() != search.used or len(keys) != len(set(keys)):
        raise Unusual
    return DefaultsList(files, search.choices)


class _Search:
    """A walk through defaults lists, with the choices of groups so far."""

    def __init__(self, repository: IConfigRepository) -> None:
        self.repository = repository
        self.chosen: dict[str, str] = {}
        """The overridden choice of a group, keyed as Hydra does: "tech", or "tech@package"."""
        self.used: set[str] = set()
        self.choices: dict[str, str] = {}
        self.appended: list[GroupDefault] = []

    def take(self, override: Override) -> None:
        """Take an override from outside: `group=choice`, or `+group=choice`."""
        if override.is_sweep_override() or override.is_delete():
            raise Unusual
        group, value = override.key_or_group, override.value()
        if not isinstance(value, str) or override.is_force_add() or group.startswith("hydra"):
            raise Unusual
        if override.is_add():
            self.appended.append(
                GroupDefault(group=group, package=override.package, value=value, external_append=True)
            )
        else:
            self.chosen[override.get_key_element()] = value

    def files_of(self, node: InputDefault, parent: str | None) -> list[ResultDefault]:
        """Return the files that an entry of a defaults list stands for, in order of merging."""
        path, name = node.get_config_path(), node.get_name()
        if not name or path.endswith(MISSING) or "${" in path:
            raise Unusual
        loaded = self.repository.load_config(path)
        if loaded is None:
            raise Unusual
        node.set_package_header(loaded.header["package"])
        key = node.get_override_key() if isinstance(node, GroupDefault) else None
        if key is not None and self.choices.setdefault(key, str(name)) != name:
            raise Unusual
        entries = [copy.copy(entry) for entry in loaded.defaults_list or ()]
        if node.primary and self.appended:
            entries = [*_with_self(node, entries, loaded.config), *self.appended]
        elif entries:
            entries = _with_self(node, entries, loaded.config)
        self._note_overrides(entries, node)
        package = node.get_final_package()
        result = ResultDefault(path, parent, package, primary=node.primary, override_key=key)
        lists: list[list[ResultDefault]] = []
        for entry in reversed(entries):  # as Hydra: what a later entry overrides holds for earlier ones
            if entry.is_self():
                lists.append([ResultDefault(path, parent, package, is_self=True, primary=node.primary)])
            elif not entry.is_override():
                self._choose(entry)
                lists.append(self.files_of(entry, path))
        return [file for files in reversed(lists) for file in files] if lists else [result]

    def _note_overrides(self, entries: list[InputDefault], node: InputDefault) -> None:
        """Set the parent of a file's entries, and keep its overrides where no earlier override exists."""
        group, package = node.get_group_path(), node.get_final_package()
        ended = False
        for entry in entries:
            if entry.is_self():
                continue
            entry.update_parent(group, package)
            if entry.is_override():
                assert isinstance(entry, GroupDefault)
                self.chosen.setdefault(entry.get_override_key(), _name(entry.value))
                ended = True
            elif ended and not entry.is_external_append():
                raise Unusual

    def _choose(self, entry: InputDefault) -> None:
        """Give an entry the choice that overrides make for its group."""
        if isinstance(entry, GroupDefault):
            key = entry.get_override_key()
            if key in self.chosen:
                entry.value = self.chosen[key]
                entry.config_name_overridden = True
                self.used.add(key)
            _name(entry.value)


def _name(value: Any) -> str:
    """Return a choice that is one name."""
    if not isinstance(value, str):
        raise Unusual
    return value


def _with_self(node: InputDefault, entries: list[InputDefault], config: Any) -> list[InputDefault]:
    """Return a defaults list with the entry `_self_`, last by default."""
    num_self = sum(entry.is_self() for entry in entries)
    others = any(not entry.is_override() for entry in entries)
    if num_self > 1 or (num_self == 0 and others and node.primary and config):
        raise Unusual  # Hydra refuses two, and warns of a missing one
    return entries if num_self or (entries and not others) else [*entries, ConfigDefault(path="_self_")]


def contents(node: Any) -> Any:
    """Return the content of a node as plain containers; raises Unusual if it is typed, or has flags."""
    if type(node) is AnyNode:
        return node._value()
    if type(node) not in (DictConfig, ListConfig) or any(
        flag is not None for flag in (node._metadata.flags or {}).values()
    ):
        raise Unusual
    content = node.__dict__["_content"]
    if type(node) is ListConfig and isinstance(content, list) and node._metadata.element_type is Any:
        return [contents(part) for part in content]
    untyped = node._metadata.object_type is dict and node._metadata.element_type is Any
    if untyped and isinstance(content, dict) and all(isinstance(key, str) for key in content):
        return {key: contents(part) for key, part in content.items()}
    raise Unusual


def merged(base: Mapping[str, Any], override: Mapping[str, Any]) -> dict[str, Any]:
    """Return one configuration merged over another; both are unchanged."""
    result = {**base, **override}
    for key in base.keys() & override.keys():
        old, new = base[key], override[key]
        if isinstance(old, dict) and isinstance(new, dict):
            result[key] = merged(old, new)
        elif isinstance(old, str) and "${" in old and (isinstance(new, dict | list) or new == MISSING):
            raise Unusual  # OmegaConf may merge into what it refers to
        elif isinstance(old, dict | list) and isinstance(new, dict | list) and type(old) is not type(new):
            raise Unusual
        elif isinstance(new, str) and new == MISSING:
            result[key] = old
    return result


def overridden(config: Mapping[str, Any], overrides: Iterable[Override]) -> dict[str, Any]:
    """Return a configuration with leaves set to scalars, existing ones or, with `+`, new ones."""
    result = dict(config)
    for override in overrides:
        if override.is_sweep_override() or override.is_delete():
            raise Unusual
        value = override.value()
        scalar = value is None or isinstance(value, str | int | float | bool)
        if not scalar or override.package is not None or not _KEY.fullmatch(override.key_or_group):
            raise Unusual
        AnyNode(value)  # raises for an invalid interpolation
        added = override.is_add() or override.is_force_add()
        _set(result, override.key_or_group.split("."), value, added, override.is_force_add())
    return result


def _set(config: dict[str, Any], path: list[str], value: Any, add: bool, force: bool) -> None:
    """Set a leaf, in copies of the sections above it."""
    for name in path[:-1]:
        section = config.get(name, {} if add else None)
        if not isinstance(section, dict):
            raise Unusual
        config[name] = config = dict(section)
    exists = path[-1] in config
    if (not exists and not add) or (exists and add and not force):
        raise Unusual
    config[path[-1]] = value


def flat(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the leaves of plain containers: dotted key to value. An empty mapping and a list are leaves."""
    leaves: dict[str, Any] = {}
    _add_leaves(leaves, config, "")
    return leaves


def _add_leaves(leaves: dict[str, Any], config: Mapping[str, Any], prefix: str) -> None:
    for name, value in config.items():
        if value and isinstance(value, dict):
            _add_leaves(leaves, value, f"{prefix}{name}.")
        else:
            leaves[prefix + name] = value


def resolved(config: Mapping[str, Any], leaves: Mapping[str, Any]) -> dict[str, Any]:
    """Return the leaves with their interpolations resolved.

    A mere reference is looked up, and the time that it is now filled in. The others are left to OmegaConf, in
    a configuration of nothing but them and what they refer to.
    """
    result = dict(leaves)
    needed: dict[str, Any] = {}
    for_omegaconf: list[str] = []
    for key, value in leaves.items():
        if not isinstance(value, str | list | dict) or not _is_open(value):
            continue  # most leaves are numbers
        select = _SELECTED.fullmatch(value) if isinstance(value, str) else None
        if select:
            is_set = has(config, select[1])
            result[key] = _scalar(config, select[1]) if is_set else select[2] == "true"
            continue
        if not isinstance(value, str) or not _INTERPOLATED.fullmatch(value) or not _KEY.fullmatch(key):
            raise Unusual
        value = result[key] = _NOW.sub(lambda now: datetime.now().strftime(now[1]), value)
        if not _is_open(value):
            continue
        reference = _REFERENCE.fullmatch(value)
        if reference:
            result[key] = _scalar(config, reference.group(1))
        else:
            needed |= {key: value, **{name: _scalar(config, name) for name in _REFERENCE.findall(value)}}
            for_omegaconf.append(key)
    if for_omegaconf:
        subset = OmegaConf.create(_nested(needed))
        result |= {key: OmegaConf.select(subset, key) for key in for_omegaconf}
    return result


def selected(config: Mapping[str, Any], key: str) -> Any:
    """Return the value of a dotted key, a section as it is written, a scalar resolved; None without one."""
    value: Any = config
    for name in key.split("."):
        if not isinstance(value, dict):
            raise Unusual
        value = value.get(name)
    if isinstance(value, dict):
        return copy.deepcopy(value)
    return resolved(config, {key: value})[key]


def _nested(leaves: Mapping[str, Any]) -> dict[str, Any]:
    """Return leaves as nested sections."""
    sections: dict[str, Any] = {}
    for key, value in leaves.items():
        *names, last = key.split(".")
        section = sections
        for name in names:
            section = section.setdefault(name, {})
            if not isinstance(section, dict):
                raise Unusual  # a name that holds a dot
        section[last] = value
    return sections


def _is_open(value: Any) -> bool:
    """Say whether a leaf is an interpolation, is missing, or holds one that may be."""
    if isinstance(value, str):
        return "${" in value or value == MISSING
    if isinstance(value, list | dict):
        return any(map(_is_open, value.values() if isinstance(value, dict) else value))
    return False


def has(config: Any, key: str) -> bool:
    """Say whether a configuration has a key."""
    for name in key.split("."):
        if not isinstance(config, dict) or name not in config:
            return False
        config = config[name]
    return True


def _scalar(config: Any, key: str) -> Any:
    """Return the scalar that a reference leads to, if it needs no resolving itself."""
    for name in key.split("."):
        if not isinstance(config, dict) or name not in config:
            raise Unusual
        config = config[name]
    if isinstance(config, dict | list) or _is_open(config):
        raise Unusual
    return config
