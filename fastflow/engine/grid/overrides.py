"""Overrides of a grid, in Hydra's grammar, and the section `hydra.sweeper` of a study.

A study (`sweeps/NAME.yaml`) says under `hydra.sweeper`:
    params  overrides whose lists and ranges multiply, as for Hydra's own sweeper
    zip     mappings of overrides whose lists are paired
    union   grids, each with its `params` and `zip`, one after the other
Overrides of the command line come last, in every grid of the union.
"""

from __future__ import annotations

import itertools
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from math import isfinite, prod
from typing import Any, NamedTuple

from hydra.core.override_parser.types import Override, RangeSweep
from omegaconf import OmegaConf

from fastflow.config.catalog import SWEEPS
from fastflow.config.composer import Composer
from fastflow.config.hydra_composer import seeded_shuffle
from fastflow.config.messages import COMMAND_LINE, PROGRAM, one_of
from fastflow.config.model_inputs import NOT_OF_THE_MODEL, is_documentation
from fastflow.config.renamed_keys import renamed_override
from fastflow.core.errors import CompositionError, InputError
from fastflow.engine.grid import limits

SWEEPER = ("params", "zip", "union")
"""Keys of the section `hydra.sweeper` of a study."""
_NO_INPUT = (*NOT_OF_THE_MODEL, "hydra")
_LISTS = "a list, range(), choice() or glob()"


class Term(NamedTuple):
    """An override as written; a swept override has a value for each point of its axis."""

    key: str
    override: Override
    values: Sequence[Any]
    is_group: bool
    origin: str
    zipped: int = -1
    """Terms with the same number are paired; -1: a separate axis."""

    @property
    def swept(self) -> bool:
        """Whether it spans an axis, or part of one."""
        return self.override.is_sweep_override()

    @property
    def is_input(self) -> bool:
        """Whether results may follow from it."""
        return self.key.partition(".")[0].partition("/")[0] not in _NO_INPUT

    @property
    def written(self) -> str:
        """The override as written."""
        return self.override.input_line or ""

    def text(self, index: int) -> str:
        """Return the override for one of its values."""
        if not self.swept:
            return self.written
        value = Override._get_value_element_as_str(self.values[index])
        return f"{self.override.get_key_element()}={value}"

    @property
    def is_plain(self) -> bool:
        """Whether it sets a leaf to plain scalars."""
        override = self.override
        if is_documentation(self.key) or override.is_add() or override.is_force_add() or override.package:
            return False
        if isinstance(self.values, range):
            return True
        values = (Override._convert_value(value) for value in self.values)
        return all(isinstance(value, str | int | float | bool) and "${" not in str(value) for value in values)


class TermAxis(NamedTuple):
    """Swept terms that are paired on one axis."""

    terms: tuple[Term, ...]

    @property
    def size(self) -> int:
        """The number of values."""
        return len(self.terms[0].values)

    def texts(self) -> list[tuple[str, ...]]:
        """Return the overrides of each value."""
        return [tuple(term.text(index) for term in self.terms) for index in range(self.size)]


def read_terms(composer: Composer, overrides: Sequence[str], origin: str, zipped: int = -1) -> list[Term]:
    """Read overrides, each key once; raises InputError."""
    terms: list[Term] = []
    for override in composer.parse(overrides):
        key = override.key_or_group + (f"@{override.package}" if override.package else "")
        values = _values(key, override, origin)
        term = Term(
            key=key,
            override=override,
            values=values,
            is_group=composer.is_group(override.key_or_group),
            origin=origin,
            zipped=zipped,
        )
        if term.swept:
            _check_axis(composer, term)
        if term.is_group:
            _check_choice(composer, term)
        terms.append(term)
    _check_once(terms)
    return last_of_each(terms)


def _values(key: str, override: Override, origin: str) -> Sequence[Any]:
    """Return the values of a swept override; whole numbers of a range are not written out."""
    if not override.is_sweep_override():
        return ()
    value, written = override.value(), override.get_value_string()
    if override.is_interval_sweep():
        raise InputError(key, written, _LISTS, origin)
    if isinstance(value, RangeSweep):
        try:
            count = limits.values_of(value)
        except (ValueError, ArithmeticError, TypeError) as error:
            raise InputError(key, written, str(error) or "a range of numbers", origin) from None
        numbers = value.range()
        is_whole = isinstance(numbers, range) and not value.shuffle
        limit = limits.MAX_WHOLE if is_whole else limits.MAX_WRITTEN
        limits.check(key, written, count, limit, "values", origin)
        if isinstance(numbers, range) and is_whole:
            return numbers
    with seeded_shuffle(written):
        values = tuple(override.sweep_iterator())
    limits.check(key, written, len(values), limits.MAX_WRITTEN, "values", origin)
    return values


def _check_choice(composer: Composer, term: Term) -> None:
    """Refuse a choice that is no name; a mapping sets keys of the group's section."""
    values: Iterable[Any] = (
        map(Override._convert_value, term.values) if term.swept else (term.override.value(),)
    )
    invalid = [value for value in values if not isinstance(value, str | dict)]
    if invalid and not term.override.is_delete():
        shown = Override._get_value_element_as_str(invalid[0])
        raise InputError(term.key, shown, one_of(composer.choices(term.override.key_or_group)), term.origin)


def _adds(term: Term) -> bool:
    """Say whether a term may repeat a key: it removes something, or sets several keys."""
    return term.override.is_delete() or isinstance(term.override.value(), dict)


def _check_once(terms: Sequence[Term]) -> None:
    """Refuse two values for one key on the command line: which one is meant?

    A program may set a key twice; the last value counts.
    """
    first: dict[str, Term] = {}
    for term in terms:
        if _adds(term):
            first.pop(term.key, None)
        elif term.key in first and term.origin == COMMAND_LINE:
            before = first[term.key].override.get_value_string()
            allowed = f"one value, or a list; it is set to {before} as well"
            raise InputError(term.key, term.override.get_value_string(), allowed, term.origin)
        else:
            first[term.key] = term


def last_of_each(terms: Sequence[Term]) -> list[Term]:
    """Return the last term of each key, in the order of the first.

    A mapping extends earlier terms, and `~key` removes them, so all these terms are kept.
    """
    latest: dict[tuple[str, int], Term] = {}
    generation: dict[str, int] = {}
    for term in terms:
        adds = _adds(term)
        generation[term.key] = generation.get(term.key, 0) + adds
        latest[term.key, generation[term.key]] = term
        generation[term.key] += adds
    return list(latest.values())


def _check_axis(composer: Composer, term: Term) -> None:
    written = term.override.get_value_string()
    if term.is_group and term.key == SWEEPS:
        raise InputError(term.key, written, "one study: each is a grid of its own", term.origin)
    if not term.is_input:
        raise InputError(
            term.key, written, "a single value, since this key is not an input of the model", term.origin
        )
    if not term.values:
        allowed = one_of(composer.choices(term.key)) if term.is_group else "at least one value"
        raise InputError(term.key, written, allowed, term.origin)


def first_of_groups(terms: Sequence[Term]) -> tuple[str, ...]:
    """Return the overrides of the first combination of groups: leaves may be there only with the study."""
    chooses = (term.is_group and not isinstance(term.override.value(), dict) for term in terms)
    return tuple(
        term.text(0)
        for term, is_choice in zip(terms, chooses, strict=True)
        if is_choice or term.key.startswith("hydra.")
    )


def grids_of(
    composer: Composer, overrides: Sequence[str], sweeper: Mapping[str, Any] | None = None
) -> list[list[Term]]:
    """Return the terms of every grid that overrides ask for; raises InputError.

    sweeper: the section `hydra.sweeper`; by default that of the composed configuration.
    """
    user_terms = read_terms(composer, overrides, composer.origin_of_overrides)
    configured, origin = (
        composer.sweeper(first_of_groups(user_terms)) if sweeper is None or sweeper else ({}, "")
    )
    sweeper = configured if sweeper is None else sweeper
    for name in sweeper:
        if name not in (*SWEEPER, "_target_"):
            raise InputError(f"hydra.sweeper.{name}", sweeper[name], one_of(SWEEPER), origin)
    if not any(sweeper.values()):
        return [user_terms]
    return [
        last_of_each([*_sweeper_terms(composer, member, origin), *user_terms])
        for member in _grids_of_study(sweeper, origin)
    ]


class _StudyPart(NamedTuple):
    """Keys of a study with their lists, which multiply or are paired."""

    values: Mapping[str, Any]
    zipped: bool


def _grids_of_study(sweeper: Mapping[str, Any], origin: str) -> Iterator[list[_StudyPart]]:
    """Yield the parts of every grid of a study: shared parts first, products before zips."""
    for i, grid in enumerate(_list_section(sweeper, "union", origin) or [{}]):
        for name in grid:
            if name not in ("params", "zip"):
                raise InputError(f"hydra.sweeper.union[{i}].{name}", grid[name], "params or zip", origin)
        parts = []
        for holder in (sweeper, grid):
            parts.append(_StudyPart(_mapping_section(holder, "params", origin), False))
            parts += [_StudyPart(values, True) for values in _list_section(holder, "zip", origin)]
        yield parts


def _mapping_section(holder: Mapping[str, Any], name: str, origin: str) -> Mapping[str, Any]:
    mapping = holder.get(name) or {}
    if not (isinstance(mapping, Mapping) or OmegaConf.is_dict(mapping)):
        raise InputError(f"hydra.sweeper.{name}", mapping, "a mapping of key: values", origin)
    return mapping


def _list_section(holder: Mapping[str, Any], name: str, origin: str) -> list[Mapping[str, Any]]:
    entries = holder.get(name) or []
    is_list = isinstance(entries, list) or OmegaConf.is_list(entries)
    if not is_list or not all(isinstance(entry, Mapping) or OmegaConf.is_dict(entry) for entry in entries):
        raise InputError(f"hydra.sweeper.{name}", entries, "a list of mappings", origin)
    return list(entries)


def _sweeper_terms(composer: Composer, parts: Sequence[_StudyPart], origin: str) -> list[Term]:
    """Read the terms of one grid of a study."""
    terms: list[Term] = []
    for number, part in enumerate(parts):
        written = [renamed_override(f"{key}={_choices(value)}") for key, value in part.values.items()]
        try:
            terms += read_terms(composer, written, origin, number if part.zipped else -1)
        except CompositionError as error:
            raise CompositionError(f"{origin}: {error}") from None
    for term in terms:
        if not term.is_input:
            allowed = "this key on the command line; a study may set only inputs of the model"
            raise InputError(term.key, term.override.get_value_string(), allowed, origin)
    return terms


def _choices(value: Any) -> str:
    """Write a study's value as the command line would; a list means several."""
    if OmegaConf.is_config(value):
        value = OmegaConf.to_container(value)
    if isinstance(value, list):
        return ",".join(map(_choices, value))
    return value if isinstance(value, str) else str(Override._get_value_element_as_str(value))


def axes_of(terms: Sequence[Term]) -> list[TermAxis]:
    """Return the axes that terms span, in the order of their first terms; raises InputError."""
    groups: dict[Any, list[Term]] = {}
    for index, term in enumerate(terms):
        if term.swept:
            groups.setdefault(term.zipped if term.zipped >= 0 else (index,), []).append(term)
    for group in groups.values():
        for term in group[1:]:
            if len(term.values) != len(group[0].values):
                allowed = f"as many values as {group[0].key}, since zip pairs them"
                count = f"{len(term.values)} instead of {len(group[0].values)}"
                value = f"{term.override.get_value_string()} ({count})"
                raise InputError(term.key, value, allowed, term.origin)
        _check_distinct(group)
    return [TermAxis(tuple(group)) for group in groups.values()]


def check_size(axes: Sequence[TermAxis], limit: int, unit: str) -> None:
    """Refuse a product of axes that is too large, with the key of the longest axis; raises InputError."""
    if not axes:
        return
    term = max(axes, key=lambda axis: axis.size).terms[0]
    written = term.override.get_value_string()
    limits.check(term.key, written, prod(axis.size for axis in axes), limit, unit, term.origin)


def _check_distinct(terms: Sequence[Term]) -> None:
    """Refuse an axis that has a value, or values walked together, twice; a program may want just that."""
    if any(isinstance(term.values, range) or term.origin == PROGRAM for term in terms):
        return
    identities: set[tuple[Hashable, ...]] = set()
    for row in zip(*(term.values for term in terms), strict=True):
        identity = tuple(map(_identity, row))
        if identity in identities:
            raise duplicate_value(terms[0], row[0])
        identities.add(identity)


def _identity(value: Any) -> Hashable:
    """Return the identity of a value: 1 and 1.0 are the same, 1 and true are not."""
    value = Override._convert_value(value)
    is_number = isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value)
    return value if is_number else str(Override._get_value_element_as_str(value))


def duplicate_value(term: Term, value: Any) -> InputError:
    """Return the error for a duplicate value of an axis."""
    shown = Override._get_value_element_as_str(value)
    return InputError(term.key, shown, f"each value once; {term.written} has it twice", term.origin)


def combinations(terms: Sequence[Term], axes: Sequence[TermAxis]) -> Iterator[tuple[str, ...]]:
    """Yield the overrides of every combination of some of the axes, and the fixed ones, in written order."""
    first = {axis.terms[0].key: axis for axis in axes}
    slots = [
        first[term.key].texts() if term.swept else [(term.written,)]
        for term in terms
        if not term.swept or term.key in first
    ]
    for chosen in itertools.product(*slots):
        yield tuple(itertools.chain.from_iterable(chosen))
