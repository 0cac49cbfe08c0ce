"""What a choice of the library comes to: its figures, each with its source and how far it may be off."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from fastflow.configuration.composer import Composer
from fastflow.configuration.uncertainty import figure_of, is_stated
from fastflow.configuration.wording import written

SOURCE = "source"
_DEFAULT = "default"
_NAME = "name"
_OF_HYDRA = "hydra."


class Figure(NamedTuple):
    """One value of a configuration."""

    key: str
    value: str  # as its file writes it, or what it refers to
    source: str  # "" where none is said
    spread: str  # how far it may be off, "" where it is exact


def figures(composer: Composer, overrides: Sequence[str]) -> list[Figure]:
    """Return all figures of one configuration, in the order of its files; raises InputError."""
    composition = composer.compose(overrides)
    said = composition.leaves
    values = composer.resolved(composition, lambda key: _is_figure(key, said))
    spreads = {figure_of(key): str(said[key]) for key in said if is_stated(key)}
    return [
        Figure(key, written(values.get(key, said[key])), _source(key, said), spreads.get(key, ""))
        for key in said
        if _is_figure(key, said)
    ]


def _is_figure(key: str, said: Mapping[str, Any]) -> bool:
    """Say whether a leaf is a value, and not what is said of one."""
    names = key.split(".")
    is_said_of_one = SOURCE in names or is_stated(key) or names[-1] == _NAME
    return not is_said_of_one and not key.startswith(_OF_HYDRA) and said[key] != {}


def _source(key: str, said: Mapping[str, Any]) -> str:
    """Return the source of a figure: of the nearest block, its own, else its section's, else the default."""
    names = key.split(".")
    for depth in range(len(names) - 1, 0, -1):
        block = ".".join((*names[:depth], SOURCE))
        rest = names[depth:]
        for length in range(len(rest), 0, -1):
            found = said.get(".".join((block, *rest[:length])))
            if isinstance(found, str):
                return found
        if isinstance(said.get(f"{block}.{_DEFAULT}"), str):
            return str(said[f"{block}.{_DEFAULT}"])
    return ""
