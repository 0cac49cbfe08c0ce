"""Compositions of a grid: one for each combination of the axes that cannot be columns."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from math import prod
from typing import NamedTuple

import numpy as np
from hydra.core.override_parser.types import Override
from numpy.typing import NDArray

from fastflow.config.assumptions import assumptions
from fastflow.config.auto_devices import CONCURRENCY
from fastflow.config.catalog import SWEEPS
from fastflow.config.chiplets import is_choice
from fastflow.config.composer import Composer
from fastflow.config.default_system import decides_machine, machine_of
from fastflow.config.hydra_composer import Composition, related
from fastflow.config.messages import PROGRAM
from fastflow.config.model_inputs import MACHINE, SETS_OTHERS, Scalar, convert, to_column, whole_numbers
from fastflow.config.other_chips import KEYS as OTHER_CHIPS
from fastflow.config.other_chips import point_inputs
from fastflow.config.uncertainty import Stated, sampling, stated
from fastflow.config.unmodified_chip import is_of_chip, is_stock
from fastflow.core.errors import InputError
from fastflow.core.tables import Columns
from fastflow.engine.grid import limits
from fastflow.engine.grid.grid import Unset
from fastflow.engine.grid.overrides import (
    Term,
    TermAxis,
    axes_of,
    check_size,
    combinations,
    duplicate_value,
)
from fastflow.engine.grid.unset import MAX_TRIALS, unset, user_keys
from fastflow.physics.hardware.packages import DEVICES
from fastflow.physics.parallelism.strategy import AUTO
from fastflow.physics.workload.models.config_files import is_filled
from fastflow.physics.workload.models.transformer.encoder.dimensions import decides_sequence
from fastflow.physics.workload.models.transformer.model_size import decides_shape
from fastflow.physics.workload.models.transformer.published import KEY as DTYPE
from fastflow.physics.workload.models.transformer.published import decides_types
from fastflow.schema.results import BETWEEN

INTERPOLATED = re.compile(r"[\w.]+")
_STATUS_FROM = 1000  # compositions: more take seconds


class Composed(NamedTuple):
    """The compositions of a block: all combinations of its composed axes, in written order."""

    axes: list[TermAxis]
    composed: set[str]
    """The first keys of the axes that had to be composed."""
    columns: Columns
    """The column axes: key to values."""
    inputs: list[dict[str, Scalar]]
    choices: list[dict[str, str]]
    stated: list[list[Stated]]
    """The uncertainties of each combination's figures, where results are sampled."""
    unset: dict[int, Unset]
    """For some combinations, the inputs without each of the user's keys."""
    stock: list[bool]
    """Whether each combination's chip is an unmodified chip of the library."""
    assumptions: list[str]
    """The assumptions of each combination, in words."""
    first: list[Composition]
    """The first composition alone: they are large."""

    @property
    def composed_axes(self) -> list[TermAxis]:
        """The axes that had to be composed."""
        return [axis for axis in self.axes if axis.terms[0].key in self.composed]

    def texts_of(self, key: str) -> list[str]:
        """Return the value of a key in every combination, as written."""
        axes = self.composed_axes
        for index, axis in enumerate(axes):
            for term in axis.terms:
                if term.key == key:
                    written = [term.text(i).partition("=")[2] for i in range(axis.size)]
                    digits = itertools.product(*(range(other.size) for other in axes))
                    return [written[digit[index]] for digit in digits]
        pairs = zip(self.inputs, self.choices, strict=True)
        return [str(inputs.get(key, choices.get(key, ""))) for inputs, choices in pairs]


def compose_all(
    composer: Composer,
    terms: Sequence[Term],
    say: Callable[[str], None],
    as_texts: Collection[str] = (),
) -> Composed:
    """Compose every combination of the axes that must be composed.

    Axes over leaves start as columns. Where a composition shows that another key depends on the leaf, or that
    it is no scalar, the axis becomes a composed axis, and the composition restarts. Keys in
    `as_texts` are composed in any case.
    """
    of_user, of_study = user_keys(terms), any(term.key == SWEEPS for term in terms)
    axes = axes_of(terms)
    check_size(axes, limits.MAX_POINTS, "points")
    keys = {
        axis.terms[0].key
        for axis in axes
        if any(term.key in as_texts or _must_be_composed(term, terms) for term in axis.terms)
    }
    while True:
        composed = [axis for axis in axes if axis.terms[0].key in keys]
        num_combinations = prod(axis.size for axis in composed)
        check_size(composed, limits.MAX_COMPOSED, "combinations to compose")
        if num_combinations >= _STATUS_FROM:
            say(f"composing {num_combinations:,} configurations, one for each combination of choices")
        column_axes = [axis for axis in axes if axis.terms[0].key not in keys]
        free_keys = {term.key for axis in column_axes for term in axis.terms}
        block = Composed(
            axes, composed=keys, columns={}, inputs=[], choices=[], stated=[], unset={}, stock=[],
            assumptions=[], first=[],
        )  # fmt: skip
        step = -(-num_combinations // MAX_TRIALS)
        dependent: set[str] = set()
        for texts in combinations(terms, composed):
            with _naming_terms(terms, composer):
                composition = composer.compose(texts)
            tokens = _interpolated(composition) if column_axes else set()
            dependent = {
                axis.terms[0].key for axis in column_axes if _is_bound(composer, composition, axis, tokens)
            }
            if dependent:
                break
            if not block.columns:
                block.columns.update(_columns_of(column_axes))
            with _naming_terms(terms, composer), composer.naming_origins(composition):
                inputs = point_inputs(composer, composition, texts, num_combinations == 1)
            if len(block.inputs) % step == 0 and any(of_user):
                block.unset[len(block.inputs)] = unset(composer, of_user, texts, inputs)
            if not block.first:
                sampled = sampling(composer, composition)
            if sampled is not None:
                block.stated.append(stated(composer, composition, inputs, free_keys))
            _add(block, composer, composition, inputs, free_keys, of_study)
        if not dependent:
            return block
        keys |= dependent


def _add(
    block: Composed,
    composer: Composer,
    composition: Composition,
    inputs: dict[str, Scalar],
    column_keys: Collection[str],
    of_study: bool,
) -> None:
    """Add a composition to its block; column_keys: keys that vary as columns."""
    block.first[:] = block.first or [composition]
    block.assumptions.append(BETWEEN.join(assumptions(composer, composition, column_keys, of_study)))
    block.stock.append(is_stock(composer, composition) and not any(map(is_of_chip, column_keys)))
    block.inputs.append(inputs)
    block.choices.append(composition.choices)


def keys_of_texts(composed: Sequence[Composed]) -> set[str]:
    """Return the composed keys that are no input everywhere, or whose value `auto` stands for another."""
    terms = [term for block in composed for axis in block.composed_axes for term in axis.terms]
    present = [
        {term.key for term in terms}.intersection(inputs) for block in composed for inputs in block.inputs
    ]
    auto_keys = {term.key for term in terms if term.key == DTYPE and AUTO in term.values}
    return auto_keys | {term.key for term in terms if not all(term.key in keys for keys in present)}


def _must_be_composed(term: Term, terms: Sequence[Term]) -> bool:
    """Say whether an axis is over a group, or a leaf that cannot be a column."""
    others = (other for other in terms if other is not term and not other.is_group)
    sets_others = term.key in (*SETS_OTHERS, *OTHER_CHIPS, MACHINE) or is_choice(term.key)
    sets_others |= term.key in (DTYPE, DEVICES) and AUTO in term.values
    if term.key == CONCURRENCY:  # an implied key follows it
        devices = [term for term in terms if term.key == DEVICES]
        sets_others |= any(AUTO in (*other.values, other.override.value()) for other in devices)
    never_column = sets_others or not term.is_plain
    return term.is_group or never_column or any(related(term.key, other.key) for other in others)


@contextmanager
def _naming_terms(terms: Sequence[Term], composer: Composer) -> Iterator[None]:
    """Add the study's file as the origin of an InputError raised inside, where it set the key."""
    try:
        yield
    except InputError as error:
        origin = next((term.origin for term in terms if term.key == error.key), error.origin)
        if not error.key or error.origin not in ("", composer.origin_of_overrides):
            raise
        raise error.replaced(origin=origin) from None


def _interpolated(composition: Composition) -> set[str]:
    """Return the keys and other names in the interpolations of a composition."""
    texts = (
        text
        for key, text in composition.leaves.items()
        if isinstance(text, str) and "${" in text and key != "output"
    )
    return set().union(*map(_tokens_of, texts))


@lru_cache(maxsize=4096)
def _tokens_of(text: str) -> frozenset[str]:
    return frozenset(token.strip(".") for token in INTERPOLATED.findall(text))


def _is_bound(
    composer: Composer, composition: Composition, axis: TermAxis, interpolated: Collection[str]
) -> bool:
    """Say whether a key of an axis is no scalar leaf here, or a leaf that other inputs may depend on.

    These inputs are interpolations, the machine of a real chip, which depends on keys of devices, or other
    leaves of a model.
    """
    may_bring = composition.machine or machine_of(composer, composition)
    if may_bring and any(decides_machine(term.key) for term in axis.terms):
        return True
    leaves = composition.leaves
    return any(
        not (isinstance(leaves.get(term.key), str | int | float | bool) or is_filled(leaves, term.key))
        or any(token and f".{token}." in f".{term.key}." for token in interpolated)
        or decides_types(leaves, term.key)
        or decides_shape(leaves, term.key)
        or decides_sequence(leaves, term.key)
        for term in axis.terms
    )


def _columns_of(axes: Sequence[TermAxis]) -> Columns:
    """Return the values of swept leaves: dotted key to array, in units; raises InputError.

    Two notations of a value, such as "0.2 kW" and "200 W", are duplicates.
    """
    columns: Columns = {}
    for axis in axes:
        columns.update({term.key: _column(term) for term in axis.terms})
        if len(axis.terms) == 1 and not isinstance(axis.terms[0].values, range):
            term = axis.terms[0]
            first = np.unique(columns[term.key], return_index=True)[1]
            if first.size < axis.size and term.origin != PROGRAM:
                raise duplicate_value(term, term.values[int(np.setdiff1d(np.arange(axis.size), first)[0])])
    return columns


def _column(term: Term) -> NDArray[np.generic]:
    """Return the values of a swept leaf, in its unit."""
    try:
        if isinstance(term.values, range):
            return whole_numbers(term.key, term.values)
        values = [Override._convert_value(value) for value in term.values]
        return to_column(term.key, [convert(term.key, value) for value in values])
    except InputError as error:
        raise error.replaced(origin=term.origin) from None
