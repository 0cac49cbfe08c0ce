"""The card of a library choice: its figures, each with its source and its uncertainty."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from fastflow.config.composer import Composer
from fastflow.config.hydra_composer import related
from fastflow.config.messages import COMMAND_LINE, written
from fastflow.config.model_inputs import is_documentation
from fastflow.config.uncertainty import figure_of, is_stated

SOURCE = "source"
_DEFAULT_KEY = "default"
_NAME = "name"
_OF_HYDRA = "hydra."


class Figure(NamedTuple):
    """One value of a configuration."""

    key: str
    value: str  # as its file writes it, or what it refers to
    source: str  # the file that sets it, where that states none
    uncertainty: str  # "" where the value is exact


def figures(composer: Composer, overrides: Sequence[str]) -> list[Figure]:
    """Return all figures of one configuration, in the order of its files; raises InputError."""
    composition = composer.compose(overrides)
    leaves = composition.leaves
    values = composer.resolved(composition, lambda key: _is_figure(key, leaves))
    override_keys = [
        override.key_or_group
        for override in composer.parse(overrides)
        if not composer.is_group(override.key_or_group)
    ]
    layers = composer.layers(composition)
    uncertainties = {figure_of(key): str(leaves[key]) for key in leaves if is_stated(key)}
    return [
        Figure(
            key,
            written(values.get(key, leaves[key])),
            _source(key, override_keys, layers) or composer.origin(key, composition),
            uncertainties.get(key, ""),
        )
        for key in leaves
        if _is_figure(key, leaves)
    ]


def _is_figure(key: str, leaves: Mapping[str, Any]) -> bool:
    """Say whether a leaf is a value, and not documentation of a value."""
    names = key.split(".")
    is_about_figure = is_documentation(key) or names[-1] == _NAME
    return not is_about_figure and not key.startswith(_OF_HYDRA) and leaves[key] != {}


def _source(key: str, override_keys: Sequence[str], layers: Sequence[Mapping[str, Any]]) -> str:
    """Return the source of a figure; "" where no file has one.

    A file may have the source of a figure that another file sets, which it builds on. A default source of a
    file is for the figures that it sets itself. override_keys: keys of the command line, whose values have no
    other source; layers: leaves of each file, the file that overrides all others first.
    """
    if any(related(key, override_key) for override_key in override_keys):
        return COMMAND_LINE
    setting = next((index for index, layer in enumerate(layers) if key in layer), 0)
    named = (_named_source(key, layer) for layer in layers[: setting + 1])
    return next(filter(None, named), "") or _default_source(key, layers[setting])


def _blocks(key: str) -> Iterator[tuple[str, list[str]]]:
    """Yield the blocks of sources for a figure, the nearest first, and its name in each."""
    names = key.split(".")
    for depth in range(len(names) - 1, 0, -1):
        yield ".".join((*names[:depth], SOURCE)), names[depth:]


def _named_source(key: str, leaves: Mapping[str, Any]) -> str:
    """Return the source in a file of a figure, or of its section; "" for none."""
    for block, rest in _blocks(key):
        for length in range(len(rest), 0, -1):
            source = leaves.get(".".join((block, *rest[:length])))
            if isinstance(source, str):
                return source
    return ""


def _default_source(key: str, leaves: Mapping[str, Any]) -> str:
    """Return the default source in a file of a block's figures; "" for none."""
    sources = (leaves.get(f"{block}.{_DEFAULT_KEY}") for block, _ in _blocks(key))
    return next((source for source in sources if isinstance(source, str)), "")
