"""Composition of configurations with Hydra, which reads each file once.

Mistakes are raised as Hydra raises them; `composer` translates them.
"""

from __future__ import annotations

import copy
import random
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property, reduce
from operator import getitem
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import yaml
from hydra._internal.defaults_list import create_defaults_list
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import ConfigCompositionException, HydraException
from omegaconf import DictConfig, OmegaConf, flag_override
from omegaconf.errors import OmegaConfBaseException

from fastflow.config import fast_composer
from fastflow.config.file_cache import Repository, group_of, path_of_config
from fastflow.config.messages import COMMAND_LINE, first_line, path_of

if TYPE_CHECKING:
    from hydra._internal.config_loader_impl import ConfigLoaderImpl
    from hydra.core.default_element import ResultDefault
    from hydra.core.override_parser.types import Override

# what Hydra, OmegaConf and YAML raise when a configuration cannot be composed; a plain
# ValueError among them, which only counts as the user's where nothing but Hydra runs
COMPOSITION_ERRORS = (HydraException, OmegaConfBaseException, yaml.YAMLError, ValueError)
_MAX_PARSED = 10_000  # of overrides that are kept as they were read
_MAX_CHOICES = 256  # combinations of choices that are kept composed
_REFERENCE = re.compile(r"\$\{([\w.]+)\}")  # a value that is another key's


@contextmanager
def seeded_shuffle(text: str) -> Iterator[None]:
    """Seed Hydra's `shuffle()` with the text of the override: a grid is read twice."""
    state = random.getstate()
    random.seed(text)
    try:
        yield
    finally:
        random.setstate(state)


@contextmanager
def _only_hydra(overrides: Sequence[str]) -> Iterator[None]:
    """Raise any exception inside as Hydra's: only Hydra runs there, on the user's input."""
    try:
        yield
    except COMPOSITION_ERRORS:
        raise
    except Exception as error:
        reason = f"{type(error).__name__}: {first_line(error)}"
        raise ConfigCompositionException(f"{' '.join(overrides)}: cannot be composed ({reason})") from error


class Composition:
    """One composed configuration."""

    def __init__(
        self,
        content: dict[str, Any] | DictConfig,
        choices: dict[str, str],
        defaults: list[ResultDefault],
        overrides: tuple[str, ...],
    ) -> None:
        """Take the content: plain containers, or a DictConfig of Hydra."""
        self.content = content
        self.choices = choices
        """The final choice in each group, from any source."""
        self.defaults = defaults
        """The files that it was merged from, in order."""
        self.overrides = overrides
        self.machine = ""
        """The system that the chip implies, "" for none."""

    @cached_property
    def config(self) -> DictConfig:
        """The configuration as a DictConfig, made on first use, since that is slow."""
        config = OmegaConf.create(self.content)
        OmegaConf.set_struct(config, True)
        return config

    def selected(self, key: str) -> Any:
        """Return the value of a key as plain containers, a scalar resolved; None without one."""
        if isinstance(self.content, dict):
            try:
                return fast_composer.selected(self.content, key)
            except fast_composer.Unusual:
                pass
        value = OmegaConf.select(self.config, key)
        return OmegaConf.to_container(value) if OmegaConf.is_config(value) else value

    def written(self, key: str) -> Any:
        """Return the value of a leaf as written, an interpolation unresolved."""
        if isinstance(self.content, DictConfig):
            return self.leaves[key]
        return reduce(getitem, key.split("."), self.content)

    @cached_property
    def leaves(self) -> dict[str, Any]:
        """The leaves, dotted key to value as written, interpolations unresolved."""
        if isinstance(self.content, DictConfig):
            return flatten(self.content)
        return fast_composer.flat({name: part for name, part in self.content.items() if name != "hydra"})


class HydraComposer:
    """Composes configurations as Hydra does, without the node `hydra` and with every file read once.

    An ordinary composition uses plain containers, which takes about 1 ms instead of Hydra's 65 ms;
    a grid over group choices needs one for each combination. `compositions` counts them.
    """

    def __init__(
        self,
        loader: ConfigLoaderImpl,
        config_name: str | None = "config",
        hydra_overrides: Sequence[str] = (),
        origin: str = COMMAND_LINE,
    ) -> None:
        """Take Hydra's loader; `hydra_overrides` may extend its search path, `origin` names the overrides."""
        self.loader = loader
        self.config_name = config_name
        self.origin_of_overrides = origin
        self.compositions = 0
        self._latest: Composition | None = None
        self.known: dict[tuple[str, ...], Mapping[str, Any]] = {}
        """Overrides to the inputs of their point, where these depend only on files of this composer."""
        self._parsed: dict[str, Override] = {}
        self._chosen: dict[tuple[str, ...], tuple[dict[str, Any], fast_composer.DefaultsList]] = {}
        self._contents: dict[tuple[str, str, bool], dict[str, Any]] = {}
        self._leaves: dict[tuple[str, str, bool], Mapping[str, Any]] = {}
        self._overridden: dict[str, frozenset[str]] = {}
        _, repository = loader._parse_overrides_and_create_caching_repo(config_name, list(hydra_overrides))
        self.repository = Repository(repository.delegate)
        self.parser = OverridesParser.create(config_loader=loader)

    def begin(self) -> bool:
        """Reset the state of the previous call; returns whether the files read are unchanged."""
        self.compositions, self._latest = 0, None
        if len(self._parsed) > _MAX_PARSED:
            self._parsed.clear()
        return self.repository.is_fresh()

    def read(self, overrides: Sequence[str]) -> list[Override]:
        """Read overrides, each text once."""
        for text in overrides:
            if text not in self._parsed:
                with _only_hydra([text]), seeded_shuffle(text):
                    parsed = self.parser.parse_overrides([text])[0]
                if not parsed.key_or_group:
                    raise ConfigCompositionException(f"{text}: cannot be read (no key); expected key=value")
                self._parsed[text] = parsed
        return [self._parsed[text] for text in overrides]

    def is_group(self, name: str) -> bool:
        """Say whether a name is that of a config group."""
        return self.repository.group_exists(name)

    def choices(self, group: str) -> list[str]:
        """Return the choices of a group."""
        return self.repository.get_group_options(group)

    def compose_raw(self, overrides: Sequence[str]) -> Composition:
        """Compose on plain containers; anything unusual or wrong by Hydra."""
        parsed = self.read(overrides)
        try:
            return self._compose_plain(parsed, tuple(overrides))
        except (fast_composer.Unusual, *COMPOSITION_ERRORS):
            with _only_hydra(overrides):
                return self._compose_by_hydra(parsed, tuple(overrides))

    def _compose_plain(self, parsed: list[Override], overrides: tuple[str, ...]) -> Composition:
        chosen: list[Override] = []
        leaves: list[Override] = []
        for override in parsed:
            (chosen if self.is_group(override.key_or_group) else leaves).append(override)
        texts = tuple(str(override.input_line) for override in chosen)
        if texts not in self._chosen:
            if len(self._chosen) >= _MAX_CHOICES:
                self._chosen.clear()
            self._chosen[texts] = self._compose_choices(chosen)
        content, defaults = self._chosen[texts]
        return Composition(
            fast_composer.overridden(content, leaves), defaults.choices, defaults.files, overrides
        )

    def _compose_choices(self, chosen: list[Override]) -> tuple[dict[str, Any], fast_composer.DefaultsList]:
        """Compose the choices of groups, before leaves are set."""
        defaults = fast_composer.find_files(self.repository, self.config_name, chosen)
        content: dict[str, Any] = {}
        for file in defaults.files:
            content = fast_composer.merged(content, self._plain_content(file))
        return content, defaults

    def _plain_content(self, default: ResultDefault) -> dict[str, Any]:
        """Return the content of a file as plain containers, read once for each package."""
        key = (default.config_path or "", default.package or "", default.primary)
        if key not in self._contents:
            self._contents[key] = fast_composer.contents(self.content(default))
        return self._contents[key]

    def _compose_by_hydra(self, parsed: list[Override], overrides: tuple[str, ...]) -> Composition:
        defaults = create_defaults_list(
            repo=self.repository,
            config_name=self.config_name,
            overrides_list=parsed,
            prepend_hydra=False,
            skip_missing=False,
        )
        config = OmegaConf.create()
        with flag_override(config, "no_deepcopy_set_nodes", True):
            for default in defaults.defaults:
                loaded = self.loader._load_single_config(default, self.repository)
                is_cached = loaded is self.repository.load_config(config_path=default.config_path or "")
                try:
                    config.merge_with(copy.deepcopy(loaded.config) if is_cached else loaded.config)
                except OmegaConfBaseException as error:  # which does not name the file
                    file = self.file_of(default.config_path or "")
                    reason = f"cannot be merged into what it changes ({first_line(error)})"
                    raise ConfigCompositionException(f"{file}: {reason}") from None
        OmegaConf.set_struct(config, True)
        self.loader._apply_overrides_to_config(defaults.config_overrides, config)
        choices = {key: str(value) for key, value in defaults.overrides.known_choices.items()}
        return Composition(config, choices, defaults.defaults, overrides)

    def leaves(self, overrides: Sequence[str]) -> dict[str, Any]:
        """Return the leaves of a configuration, dotted key to value as written, interpolations unresolved."""
        return self.compose_raw(overrides).leaves

    def content(self, default: ResultDefault) -> DictConfig:
        """Return the content of a file, at its package in the configuration."""
        return cast("DictConfig", self.loader._load_single_config(default, self.repository).config)

    def leaves_of(self, default: ResultDefault) -> Mapping[str, Any]:
        """Return the leaves that a file sets in the configuration, dotted key to value as written."""
        key = (default.config_path or "", default.package or "", default.primary)
        if key not in self._leaves:
            self._leaves[key] = flatten(self.content(default))
        return self._leaves[key]

    def groups_chosen_by(self, config_path: str) -> frozenset[str]:
        """Return the groups whose choices a file overrides in its defaults list."""
        if config_path not in self._overridden:
            loaded = self.repository.load_config(config_path)
            entries = (loaded.defaults_list or ()) if loaded is not None else ()
            self._overridden[config_path] = frozenset(
                group_of(entry) for entry in entries if entry.is_override()
            )
        return self._overridden[config_path]

    def sets(self, default: ResultDefault, key: str) -> bool:
        """Say whether a file sets a leaf, or something below it."""
        try:
            return fast_composer.has(self._plain_content(default), key)
        except fast_composer.Unusual:
            return any(f"{name}.".startswith(f"{key}.") for name in self.leaves_of(default))

    def origin(self, key: str, composition: Composition) -> str:
        """Return the origin of a key's value: the command line, or a file; "" for neither.

        Where a file says that the value is another key's, the origin is that key's.
        """
        origin, value, seen = *self._written(key, composition), {key}
        while (other := _REFERENCE.fullmatch(str(value))) and other[1] in composition.leaves.keys() - seen:
            seen.add(other[1])
            origin, value = self._written(other[1], composition)
        return origin

    def _written(self, key: str, composition: Composition) -> tuple[str, Any]:
        """Return where a key's value is written, and, of a file, the value as it is written there."""
        names = [override.key_or_group for override in self.read(composition.overrides)]
        files = [
            (default.config_path or "", self.leaves_of(default)) for default in reversed(composition.defaults)
        ]
        while key:
            if any(related(key, name) for name in names if not self.is_group(name)):
                return self.origin_of_overrides, None
            for path, content in files:
                if any(related(key, name) for name in content):
                    return self.file_of(path), content.get(key)
            key = key.rpartition(".")[0]  # the origin of a missing key is the file of its section
        return "", None

    def choice_setting(self, key: str, composition: Composition) -> tuple[str, str]:
        """Return the user's group and choice whose file, or a file of its defaults, sets a key; or ""s."""
        chosen = {
            f"{override.key_or_group}/{override.value()}": (override.key_or_group, str(override.value()))
            for override in self.read(composition.overrides)
            if self.is_group(override.key_or_group)
        }
        parents = {default.config_path: default.parent for default in composition.defaults}
        path = next(
            (default.config_path for default in reversed(composition.defaults) if self.sets(default, key)),
            None,
        )
        while path is not None and path not in chosen:
            path = parents.get(path)
        return chosen[path] if path is not None else ("", "")

    def layers(self, composition: Composition) -> list[Mapping[str, Any]]:
        """Return the leaves that each file sets, the file that overrides all others first."""
        return [self.leaves_of(default) for default in reversed(composition.defaults)]

    def file_choosing(self, group: str, choice: str) -> str:
        """Return the file read so far that overrides the choice of a group with this one; "" if none does."""
        for key, loaded in self.repository.cache.items():
            for default in (loaded.defaults_list or ()) if loaded is not None else ():
                if default.is_override() and group_of(default) == group and default.get_name() == choice:
                    return self.file_of(key.removeprefix("config_path="))
        return ""

    def file_of(self, config_path: str) -> str:
        """Return the file of a configuration such as "tech/n7", relative to the working folder if inside."""
        loaded = self.repository.load_config(config_path=config_path)
        return path_of(path_of_config(loaded, config_path) if loaded is not None else Path(config_path))


def related(key: str, other: str) -> bool:
    """Say whether one of two dotted keys is a prefix of the other, or the same."""
    return f"{key}.".startswith(f"{other}.") or f"{other}.".startswith(f"{key}.")


def flatten(config: DictConfig, resolve: bool = False) -> dict[str, Any]:
    """Return the leaves of a configuration: dotted key to value.

    An empty mapping, a list and None are leaves. The section `hydra` is left out.
    """
    leaves: dict[str, Any] = {}

    def walk(prefix: str, value: Any) -> None:
        if isinstance(value, dict) and value:
            for name, part in value.items():
                walk(f"{prefix}.{name}", part)
        else:
            leaves[prefix] = value

    for name in config:
        if name != "hydra":
            node: Any = config._get_node(name)
            if OmegaConf.is_config(node) and not node._is_none() and not node._is_interpolation():
                walk(str(name), OmegaConf.to_container(node, resolve=resolve, throw_on_missing=resolve))
            else:
                walk(str(name), config[name] if resolve else node._value())
    return leaves
