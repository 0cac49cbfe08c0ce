"""Registries: the things of a kind by name, those of fastflow and those that installed packages add.

A package adds a thing by an entry point of the registry's group (docs/extending.md). Entry points are read
where a name is looked up that is not fastflow's, or all names are listed; nothing else costs time. A package
is imported where its name is looked up.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from fastflow.core.errors import CompositionError, InputError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

Thing = TypeVar("Thing")


class Registry(Mapping[str, Thing], Generic[Thing]):
    """The things of a kind by name, in order: fastflow's, then those of packages by the alphabet.

    A lookup raises KeyError for an unknown name, and InputError, which names the entry point, where a package
    cannot be imported or adds something else.
    """

    def __init__(
        self,
        key: str,
        group: str,
        accepts: Callable[[Any], bool],
        what: str,
        built_in: Mapping[str, Thing] | None = None,
        modules: Mapping[str, str] | None = None,
    ) -> None:
        """Begin with fastflow's things.

        key: the key, or the word, that a user chooses one by. group: of entry points, without `fastflow.`.
        accepts: says whether something is of the kind; what: the kind in words, for messages. modules: things
        that are imported on their first lookup, as an entry point writes them: "module:attribute".
        """
        self.key, self.group, self._accepts, self._what = key, f"fastflow.{group}", accepts, what
        self._things: dict[str, Thing] = dict(built_in or {})
        self._modules = dict(modules or {})
        self.built_in: tuple[str, ...] = (*self._things, *self._modules)
        """The names of fastflow's things."""

    def register(self, name: str, thing: Thing) -> None:
        """Add a thing of fastflow, or one of this process alone; raises ValueError where a name is taken."""
        if name in self._things or name in self._modules:
            raise ValueError(f"{self.key}={name} is there already")
        self._things[name] = thing
        self.built_in = (*self.built_in, name)

    def find(self, name: str) -> Thing:
        """Return the thing of a name that a user gave; raises InputError, with all names."""
        if name not in self:
            raise InputError(self.key, name, "one of " + ", ".join(self))
        return self[name]

    def built_ins(self) -> list[Thing]:
        """Return fastflow's things."""
        return [self[name] for name in self.built_in]

    def added(self, suits: Callable[[Thing], bool]) -> list[Thing]:
        """Return the things of packages that suit; raises InputError where none does and one is broken."""
        suitable, errors = [], []
        for name in self._entry_points():
            try:
                thing = self[name]
            except InputError as error:
                errors.append(error)
                continue
            if suits(thing):
                suitable.append(thing)
        if errors and not suitable:
            raise errors[0]
        return suitable

    def __getitem__(self, name: str) -> Thing:
        """Return the thing of a name; raises KeyError or InputError."""
        try:
            return self._things[name]
        except KeyError:
            thing = self._imported(name) if name in self._modules else self._load(self._entry_points()[name])
            return self._things.setdefault(name, thing)

    def __contains__(self, name: object) -> bool:
        """Say whether a name is known; imports no package."""
        return name in self._things or name in self._modules or name in self._entry_points()

    def __iter__(self) -> Iterator[str]:
        """Yield all names; imports no package."""
        yield from self.built_in
        yield from self._entry_points()

    def __len__(self) -> int:
        """Return the number of all names."""
        return len(self.built_in) + len(self._entry_points())

    def _imported(self, name: str) -> Thing:
        module, _, attribute = self._modules[name].partition(":")
        thing: Thing = getattr(import_module(module), attribute)
        return thing

    def _entry_points(self) -> dict[str, list[EntryPoint]]:
        """Return the entry points of packages by name; fastflow's names cannot be taken."""
        points = _entry_points(self.group, tuple(sys.path))
        return {name: of_name for name, of_name in points.items() if name not in self.built_in}

    def _load(self, points: list[EntryPoint]) -> Thing:
        """Import the thing of a name's entry points, of which there has to be one; raises InputError."""
        point, *others = points
        where = f"{self.key}={point.name}: the entry point {_described(point)} (group {self.group})"
        if others:
            more = " and ".join(map(_described, others))
            raise CompositionError(f"{where} has the name of {more}; one package can have it")
        try:
            thing: Thing = point.load()
        except Exception as error:  # whatever goes wrong while a user's package is imported
            raise CompositionError(f"{where} cannot be loaded: {type(error).__name__}: {error}") from error
        if not self._accepts(thing):
            raise CompositionError(f"{where} is {thing!r:.80}; expected {self._what}")
        name = getattr(thing, "name", point.name)
        if name != point.name:
            raise CompositionError(f"{where} names itself {name}; both names have to be the same")
        return thing


@lru_cache(maxsize=32)
def _entry_points(group: str, path: tuple[str, ...]) -> dict[str, list[EntryPoint]]:
    """Return the entry points of a group by name; path: `sys.path`, by which packages are found."""
    from importlib.metadata import entry_points  # takes longer to import than all of this module

    by_name: dict[str, list[EntryPoint]] = {}
    for point in sorted(entry_points(group=group), key=lambda point: point.name):
        by_name.setdefault(point.name, []).append(point)
    return by_name


def _described(point: EntryPoint) -> str:
    """Return what an entry point names, and its package."""
    return f"{point.value} of {point.dist.name} {point.dist.version}" if point.dist else point.value
