"""Composition of configurations; a mistake becomes a line with the origin of the value."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from omegaconf import OmegaConf

from fastflow.config import fast_composer
from fastflow.config.default_system import implied_machine, overrides_for
from fastflow.config.hydra_composer import COMPOSITION_ERRORS, Composition, HydraComposer, flatten
from fastflow.config.hydra_errors import translated
from fastflow.config.library import is_user_file, library_root, use_plugins
from fastflow.config.list_keys import quote_columns
from fastflow.config.messages import PROGRAM, first_line
from fastflow.config.renamed_keys import warn_of_old_files
from fastflow.core.errors import CompositionError, InputError

if TYPE_CHECKING:
    from hydra.core.override_parser.types import Override

_COMPOSERS = threading.local()  # composers by their options; threads cannot share a composer
_MAX_COMPOSERS = 16
_USER_PROVIDER = "command-line"
"""The provider of the user's folder on Hydra's search path."""


class Composer(HydraComposer):
    """Composes configurations; mistakes are raised as InputError."""

    @classmethod
    def of_library(
        cls,
        config_dir: str | os.PathLike[str] | None = None,
        origin: str = PROGRAM,
        config_name: str = "config",
    ) -> Composer:
        """Return a composer over fastflow's library, and a user's folder that adds to any group.

        The next call from this thread gets the same composer, unless a file that it has read has changed.
        """
        from hydra.core.utils import setup_globals

        if config_dir is not None and not Path(config_dir).is_dir():
            raise InputError("config_dir", config_dir, "a folder that exists", origin)
        setup_globals()
        cache_key = f"{config_dir and Path(config_dir).resolve()}|{origin}|{config_name}"
        composer: Composer | None = _COMPOSERS.__dict__.pop(cache_key, None)
        if composer is None or not composer.begin():
            composer = cls._of_library(config_dir, origin, config_name)
        while len(_COMPOSERS.__dict__) >= _MAX_COMPOSERS:
            del _COMPOSERS.__dict__[next(iter(_COMPOSERS.__dict__))]
        _COMPOSERS.__dict__[cache_key] = composer
        return composer

    @classmethod
    def _of_library(
        cls, config_dir: str | os.PathLike[str] | None, origin: str, config_name: str
    ) -> Composer:
        use_plugins()
        from hydra._internal.config_loader_impl import ConfigLoaderImpl
        from hydra._internal.utils import create_config_search_path
        from hydra.core.config_search_path import SearchPathQuery

        path = create_config_search_path(str(library_root() / "conf"))
        if config_dir is not None:
            warn_of_old_files(Path(config_dir))
            folder = f"file://{Path(config_dir).resolve()}"
            path.prepend(_USER_PROVIDER, folder, SearchPathQuery(provider="schema"))
        return cls(ConfigLoaderImpl(path), config_name, origin=origin)

    @property
    def config_dir(self) -> str:
        """The folder that adds to the library, "" for none."""
        entries = self.loader.get_search_path().get_path()
        return next(
            (entry.path.removeprefix("file://") for entry in entries if entry.provider == _USER_PROVIDER), ""
        )

    def parse(self, overrides: Sequence[str]) -> list[Override]:
        """Read overrides by Hydra's grammar; raises InputError."""
        for text in overrides:
            if not isinstance(text, str):
                raise InputError("override", repr(text), 'a text such as "tech=n7"', self.origin_of_overrides)
        try:
            return self.read(quote_columns(overrides))
        except COMPOSITION_ERRORS as error:
            raise translated(error, self, overrides) from error

    def compose(self, overrides: Sequence[str]) -> Composition:
        """Compose one configuration (no sweeps among the overrides); raises InputError.

        A real chip brings its machine where no system is chosen (`config.default_system`).
        """
        if self._latest is not None and self._latest.overrides == tuple(overrides):
            return self._latest
        self.compositions += 1
        composed = self._compose_uncounted(overrides)
        machine = implied_machine(self, composed)
        if machine:
            composed = self._compose_uncounted(overrides_for(composed, machine))
            composed.overrides, composed.machine = tuple(overrides), machine
        self._latest = composed
        return composed

    @contextmanager
    def uncounted(self) -> Iterator[None]:
        """Leave compositions made inside out of the count: no point of a grid follows from them."""
        count, latest = self.compositions, self._latest
        try:
            yield
        finally:
            self.compositions, self._latest = count, latest

    def sweeper(self, overrides: Sequence[str]) -> tuple[Mapping[str, Any], str]:
        """Return the section `hydra.sweeper` of a configuration, and its file; raises InputError.

        The composition is not counted: no point of a grid follows from it.
        """
        composition = self._compose_uncounted(overrides)
        section = (composition.content.get("hydra") or {}).get("sweeper") or {}
        if section:
            for default in reversed(composition.defaults):
                if OmegaConf.select(self.content(default), "hydra.sweeper") is not None:
                    return section, self.file_of(default.config_path or "")
        return section, self.origin_of_overrides

    def hydra_settings(self, overrides: Sequence[str]) -> Mapping[str, Any]:
        """Return the section `hydra` of a configuration; raises InputError."""
        return self._compose_uncounted(overrides).content.get("hydra") or {}

    def _compose_uncounted(self, overrides: Sequence[str]) -> Composition:
        try:
            return self.compose_raw(overrides)
        except COMPOSITION_ERRORS as error:
            raise translated(error, self, overrides) from error
        except RecursionError:
            files = [text.partition("=") for text in overrides if is_user_file(text)]
            if not files:
                raise CompositionError("a defaults list leads back to its own file") from None
            key, _, name = files[0]
            allowed = "a file whose defaults list does not lead back to the file itself"
            raise InputError(key, name, allowed, self.origin_of_overrides) from None

    def resolved(
        self, composition: Composition, wanted: Callable[[str], bool] = lambda key: True
    ) -> dict[str, Any]:
        """Return the leaves of a composition with interpolations resolved; raises InputError.

        wanted: whether a key is to be resolved.
        """
        leaves = {key: value for key, value in composition.leaves.items() if wanted(key)}
        if isinstance(composition.content, dict):
            try:
                return fast_composer.resolved(composition.content, leaves)
            except (fast_composer.Unusual, *COMPOSITION_ERRORS):
                pass  # OmegaConf resolves it, or raises
        try:
            resolved_leaves = flatten(composition.config, resolve=True)
            return {key: value for key, value in resolved_leaves.items() if wanted(key)}
        except COMPOSITION_ERRORS as error:
            key = getattr(error, "full_key", None)
            if not key:
                raise translated(error, self, composition.overrides) from error
            written = composition.leaves.get(key, "")
            allowed = f"a value that can be resolved ({first_line(error)})"
            raise InputError(key, written, allowed, self.origin(key, composition)) from error

    @contextmanager
    def naming_origins(self, composition: Composition) -> Iterator[None]:
        """Add the origin of the key's value to an InputError raised inside."""
        try:
            yield
        except InputError as error:
            if error.origin or not error.key:
                raise
            origin = self.origin(error.key, composition)
            raise error.replaced(origin=origin) from None
