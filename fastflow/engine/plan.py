"""Planning a grid: from overrides to axes, from axes to compositions, from those to input columns."""

from __future__ import annotations

import hashlib
import itertools
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from hydra.core.override_parser.types import Override
from omegaconf import OmegaConf

from fastflow.engine.config import Composer, Composition, flatten
from fastflow.engine.grid import Axis, Columns, Grid, batches_of
from fastflow.engine.inputs import (
    Scalar,
    Settings,
    convert,
    is_documentation,
    model_inputs,
    settings,
    to_column,
)
from fastflow.engine.mistakes import one_of
from fastflow.errors import InputError

_INTERPOLATED = re.compile(r"[\w.]+")
CHOICES = ("tech", "mem", "net", "chip", "system", "model", "tiling")
"""The groups whose choice is a result column of every dataset."""


class Study(NamedTuple):
    """What is to be run: a grid, and where and how."""

    grid: Grid
    settings: Settings
    output: str
    """The configured output folder."""
    first: Composition
    """The composition of the first point, for messages."""


class _Term(NamedTuple):
    """One override as written: a fixed one has one text, a swept one a text and a value for each point."""

    key: str
    override: Override
    values: tuple[Any, ...]
    is_group: bool
    origin: str

    @property
    def swept(self) -> bool:
        return self.override.is_sweep_override()

    def texts(self) -> list[str]:
        if not self.swept:
            return [self.override.input_line or ""]
        name = self.override.get_key_element()
        return [f"{name}={Override._get_value_element_as_str(value)}" for value in self.values]


class _Composed(NamedTuple):
    """All combinations of the composed axes, in written order."""

    keys: set[str]
    """The axes that had to be composed."""
    columns: Columns
    """The others, with their values."""
    inputs: list[dict[str, Scalar]]
    choices: list[dict[str, str]]
    first: list[Composition]
    """The first of them alone: they are large."""


def plan(composer: Composer, overrides: Sequence[str], params: Mapping[str, Any] | None = None) -> Study:
    """Plan the grid that overrides span; raises InputError.

    params: overrides of a study (`hydra.sweeper.params`), which the others come after; by default
    those that the composed configuration holds.
    """
    terms = _terms(composer, overrides, composer.origin_of_overrides)
    if params is None:
        params = OmegaConf.select(composer.compose(_first(terms)).config, "hydra.sweeper.params")
    if params:
        written = [f"{key}={_choices(value)}" for key, value in params.items()]
        study = _terms(composer, written, composer.origin_of_params(_first(terms)))
        terms = _last_of_each([*study, *terms])
    axes = [term for term in terms if term.swept]
    return _study(axes, _compose_all(composer, terms), tuple(_written(term) for term in terms), composer)


def _choices(value: Any) -> str:
    """Write a study's value as the command line would; a list means several."""
    return ",".join(str(part) for part in value) if OmegaConf.is_list(value) else str(value)


def _terms(composer: Composer, overrides: Sequence[str], origin: str) -> list[_Term]:
    """Read overrides; of several for one key the last counts, at the place of the first."""
    terms = []
    for override in composer.parse(overrides):
        key = override.key_or_group + (f"@{override.package}" if override.package else "")
        values: tuple[Any, ...] = ()
        if override.is_interval_sweep():
            raise InputError(key, override.get_value_string(), "a list, range(), choice() or glob()", origin)
        if override.is_sweep_override():
            values = tuple(override.sweep_iterator())
        terms.append(_Term(key, override, values, composer.is_group(override.key_or_group), origin))
        if override.is_sweep_override():
            _check_axis(composer, terms[-1])
    return _last_of_each(terms)


def _last_of_each(terms: Sequence[_Term]) -> list[_Term]:
    return list({term.key: term for term in terms}.values())


def _written(term: _Term) -> str:
    return term.override.input_line or ""


def _check_axis(composer: Composer, term: _Term) -> None:
    section = term.key.partition(".")[0].partition("/")[0]
    written = term.override.get_value_string()
    if section in ("engine", "output", "hydra"):
        raise InputError(term.key, written, "a single value; it is no input of the model", term.origin)
    if not term.values:
        allowed = one_of(composer.choices(term.key)) if term.is_group else "at least one value"
        raise InputError(term.key, written, allowed, term.origin)


def _first(terms: Sequence[_Term]) -> tuple[str, ...]:
    """Return the overrides of the first combination of groups, without any other axis."""
    return tuple(term.texts()[0] for term in terms if not term.swept or term.is_group)


def _compose_all(composer: Composer, terms: Sequence[_Term]) -> _Composed:
    """Compose every combination of the axes that must be composed.

    Axes over leaves start as columns. One that some composition shows not to be free (something
    else mentions it, or it is no scalar there) joins the composed axes, and all begins anew.
    """
    axes = [term for term in terms if term.swept]
    keys = {term.key for term in axes if term.is_group or not _is_plain(term)}
    while True:
        free = [term for term in axes if term.key not in keys]
        done = _Composed(keys, {}, [], [], [])
        bound: set[str] = set()
        for texts in _combinations(terms, keys):
            composition = composer.compose(texts)
            bound = _bound(composition, [term.key for term in free])
            if bound:
                break
            if not done.columns:
                done.columns.update({term.key: _column(term) for term in free})
            with composer.naming_origins(composition):
                inputs = model_inputs(composer.resolved(composition))
            done.inputs.append(inputs)
            done.choices.append(composition.choices)
            done.first[:] = done.first or [composition]
        if not bound:
            return done
        keys |= bound


def _combinations(terms: Sequence[_Term], composed: set[str]) -> Iterator[tuple[str, ...]]:
    """Yield the overrides of every combination: the fixed ones, and one of each composed axis."""
    return itertools.product(*(term.texts() for term in terms if not term.swept or term.key in composed))


def _is_plain(term: _Term) -> bool:
    """Say whether an axis sets a leaf to plain scalars."""
    values = (Override._convert_value(value) for value in term.values)
    return (
        not is_documentation(term.key)
        and not (term.override.is_add() or term.override.is_force_add() or term.override.package)
        and all(isinstance(value, str | int | float | bool) and "${" not in str(value) for value in values)
    )


def _bound(composition: Composition, keys: Sequence[str]) -> set[str]:
    """Return the keys that are no scalar leaf here, or that an interpolation may read."""
    leaves = flatten(composition.config)
    tokens = {
        token.strip(".")
        for key, text in leaves.items()
        if isinstance(text, str) and "${" in text and key != "output"
        for token in _INTERPOLATED.findall(text)
    }
    return {
        key
        for key in keys
        if not isinstance(leaves.get(key), str | int | float | bool)
        or any(token and f".{token}." in f".{key}." for token in tokens)
    }


def _study(axes: Sequence[_Term], done: _Composed, overrides: tuple[str, ...], composer: Composer) -> Study:
    first = done.first[0]
    with composer.naming_origins(first):
        section = first.config.get("engine")
        options = settings(OmegaConf.to_container(section) if OmegaConf.is_dict(section) else section)
    batches, batch, row = batches_of(done.inputs)
    labels = _labels(axes, done)
    grid = Grid(
        axes=tuple(Axis(term.key, len(term.values), term.key in done.keys) for term in axes),
        batches=batches,
        batch=batch,
        row=row,
        labels=labels,
        columns=done.columns,
        fingerprint=_fingerprint(done, labels, [term.key for term in axes]),
        overrides=overrides,
        compositions=composer.compositions,
        levels=max(_levels(inputs) for inputs in done.inputs),
    )
    return Study(grid, options, str(first.config.get("output")), first)


def _levels(inputs: Iterable[str]) -> int:
    """Count the on-chip memory levels among input keys."""
    return len({key.split(".")[2] for key in inputs if key.startswith("chip.memory.")})


def _column(term: _Term) -> Any:
    given = [Override._convert_value(value) for value in term.values]
    try:
        return to_column(term.key, [convert(term.key, value) for value in given])
    except InputError as error:
        raise InputError(error.key, error.value, error.allowed, term.origin) from None


def _labels(axes: Sequence[_Term], done: _Composed) -> dict[str, Any]:
    """Name the choice of every combination: in the groups of every dataset, and on axes that are no input."""
    labels = {group: [choices.get(group, "") for choices in done.choices] for group in CHOICES}
    swept = [term for term in axes if term.key in done.keys]
    digits = list(itertools.product(*(range(len(term.values)) for term in swept)))
    for place, term in enumerate(swept):
        if term.key not in labels and not all(term.key in inputs for inputs in done.inputs):
            written = [text.partition("=")[2] for text in term.texts()]
            labels[term.key] = [written[digit[place]] for digit in digits]
    return {name: np.array(values, dtype=np.str_) for name, values in labels.items()}


def _fingerprint(done: _Composed, labels: Columns, axes: Sequence[str]) -> str:
    """Return the SHA-256 of everything that the results follow from, as canonical JSON."""
    content = {
        "axes": list(axes),
        "inputs": done.inputs,
        "labels": {name: values.tolist() for name, values in labels.items()},
        "columns": {key: values.tolist() for key, values in done.columns.items()},
    }
    return hashlib.sha256(json.dumps(content, sort_keys=True, separators=(",", ":")).encode()).hexdigest()
