"""What a choice of the library comes to: its figures, each with its source and how far it may be off."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from fastflow.config.composer import Composer
from fastflow.config.hydra_composer import related
from fastflow.config.messages import COMMAND_LINE, written
from fastflow.config.model_inputs import is_documentation
from fastflow.config.uncertainty import figure_of, is_stated

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
    given = [one.key_or_group for one in composer.parse(overrides) if not composer.is_group(one.key_or_group)]
    layers = composer.layers(composition)
    spreads = {figure_of(key): str(said[key]) for key in said if is_stated(key)}
    return [
        Figure(key, written(values.get(key, said[key])), _source(key, given, layers), spreads.get(key, ""))
        for key in said
        if _is_figure(key, said)
    ]


def _is_figure(key: str, said: Mapping[str, Any]) -> bool:
    """Say whether a leaf is a value, and not what is said of one."""
    names = key.split(".")
    is_said_of_one = is_documentation(key) or names[-1] == _NAME
    return not is_said_of_one and not key.startswith(_OF_HYDRA) and said[key] != {}


def _source(key: str, given: Sequence[str], layers: Sequence[Mapping[str, Any]]) -> str:
    """Return the source of a figure; "" where no file says one.

    A file may say where a figure comes from that another one sets. What it says of all figures is of those
    alone that it sets. given: keys of the command line, whose values have no other source; layers: leaves of
    each file, the one that has the last word first.
    """
    if any(related(key, one) for one in given):
        return COMMAND_LINE
    setting = next((place for place, layer in enumerate(layers) if key in layer), 0)
    named = (_named(key, layer) for layer in layers[: setting + 1])
    below = (_named(key, layer) or _default(key, layer) for layer in layers[setting:])
    return next(filter(None, (*named, *below)), "")


def _blocks(key: str) -> Iterator[tuple[str, list[str]]]:
    """Yield the blocks of sources that may speak of a figure, the nearest first, and its name there."""
    names = key.split(".")
    for depth in range(len(names) - 1, 0, -1):
        yield ".".join((*names[:depth], SOURCE)), names[depth:]


def _named(key: str, said: Mapping[str, Any]) -> str:
    """Return the source that a file says of a figure, or of its section; "" for none."""
    for block, rest in _blocks(key):
        for length in range(len(rest), 0, -1):
            found = said.get(".".join((block, *rest[:length])))
            if isinstance(found, str):
                return found
    return ""


def _default(key: str, said: Mapping[str, Any]) -> str:
    """Return the source that a file says of all figures of a block; "" for none."""
    found = (said.get(f"{block}.{_DEFAULT}") for block, _ in _blocks(key))
    return next((one for one in found if isinstance(one, str)), "")
