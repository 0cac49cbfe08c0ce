"""Plan of a grid: from terms to axes, compositions and input columns."""

from __future__ import annotations

import hashlib
import itertools
import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from hydra.core.override_parser.types import Override
from numpy.typing import NDArray
from omegaconf import OmegaConf

from fastflow.accuracy.table import digest as accuracy_digest
from fastflow.columns import ALL, SOME
from fastflow.columns.serving import NO_SERVING
from fastflow.configuration.chiplets import is_choice
from fastflow.configuration.composer import Composer
from fastflow.configuration.hydra_composer import Composition, related
from fastflow.configuration.inputs import (
    FILES,
    SETS_OTHERS,
    Scalar,
    convert,
    to_column,
    whole_numbers,
)
from fastflow.configuration.prefill_chip import KEY as PREFILL_CHIP
from fastflow.configuration.prefill_chip import point_inputs
from fastflow.configuration.settings import settings
from fastflow.configuration.stock import is_of_chip, is_stock
from fastflow.configuration.uncertainty import Stated, refuse_sweep, sampling, stated, uncertainty_of
from fastflow.configuration.wording import PROGRAM, one_of
from fastflow.errors import InputError
from fastflow.grid import limits
from fastflow.grid.grid import Axis, Block, Grid, Unset, batches_of
from fastflow.grid.overrides import Term, TermAxis, axes_of, combinations, grids_of, twice
from fastflow.grid.run import Run
from fastflow.grid.unset import MOST_TRIED, unset, user_keys
from fastflow.studies import STUDIES
from fastflow.tables import Columns, Ints
from fastflow.uncertainty.draws import Uncertainty
from fastflow.workload import is_stacked
from fastflow.workload.transformer.config import is_filled

_INTERPOLATED = re.compile(r"[\w.]+")
_REFERENCE = re.compile(r"\$\{([^{}]*)\}")
_PLACES = ("output", "trace", "picture")
"""Where results are left."""
_MODE, _OF_A_LOAD = "serve.mode", "serve.isl"
_MANY = 1000  # compositions: more take seconds
CHOICES = ("tech", "mem", "net", "chip", "system", "model", "tiling")
"""The groups whose choice is a result column of every dataset."""


def overrides_of(
    composer: Composer, overrides: Sequence[str], sweeper: Mapping[str, Any] | None, point: int
) -> tuple[str, ...]:
    """Return the overrides of one point of the grid that overrides span, as `plan` takes them."""
    for terms in grids_of(composer, overrides, sweeper):
        axes = axes_of(terms)
        points = prod(axis.size for axis in axes)
        if point < points:
            return next(itertools.islice(combinations(terms, axes), point, None))
        point -= points
    raise IndexError(point)


class _Composed(NamedTuple):
    """One block: all combinations of its composed axes, in written order."""

    axes: list[TermAxis]
    composed: set[str]
    """The first keys of the axes that had to be composed."""
    columns: Columns
    """The others, with their values."""
    inputs: list[dict[str, Scalar]]
    choices: list[dict[str, str]]
    stated: list[list[Stated]]
    """What is said of the uncertainty of each one's figures, where results are sampled."""
    unset: dict[int, Unset]
    """Of some of them, what their inputs would be without the user's keys."""
    stock: list[bool]
    """Whether each one's chip is of the library, with no figure changed."""
    first: list[Composition]
    """The first of them alone: they are large."""

    @property
    def composed_axes(self) -> list[TermAxis]:
        """The axes that had to be composed."""
        return [axis for axis in self.axes if axis.terms[0].key in self.composed]


def plan(
    composer: Composer,
    overrides: Sequence[str],
    sweeper: Mapping[str, Any] | None = None,
    say: Callable[[str], None] = lambda line: None,
) -> Run:
    """Plan the grid that overrides span; raises InputError.

    sweeper: what `hydra.sweeper` says (`params`, `zip`, `union`), which the overrides come
    after; by default what the composed configuration holds. say: told what takes a while.
    """
    grids = grids_of(composer, overrides, sweeper)
    composed = [_compose_all(composer, terms, say) for terms in grids]
    as_texts = _texts_among(composed)
    composed = [
        _compose_all(composer, terms, say, as_texts) if as_texts & one.columns.keys() else one
        for terms, one in zip(grids, composed, strict=True)
    ]
    first = composed[0].first[0]
    _check_output(first, composed)
    with composer.naming_origins(first):
        options = settings(first.selected("engine"))
        served = _served(composed)
    inputs = [point for one in composed for point in one.inputs]
    batches, batch, row = batches_of(inputs)
    uncertain = _uncertainty(composer, composed, batch, row)
    labels = _labels(composed)
    blocks = _blocks(composed)
    written = [tuple(term.written for term in terms if term.is_input) for terms in grids]
    grid = Grid(
        blocks=blocks,
        batches=batches,
        batch=batch,
        row=row,
        labels=labels,
        fingerprint=_fingerprint(inputs, labels, blocks, uncertain),
        overrides=written[0] if len(written) == 1 else tuple(" ".join(texts) for texts in written),
        compositions=composer.compositions,
        levels=max(_levels(point) for point in inputs),
        stacked=any(map(is_stacked, inputs)),
        served=served,
        report=_report(composer, first),
        uncertainty=uncertain,
        unset=_unset(composed),
        stock=np.array([stock for one in composed for stock in one.stock], dtype=np.bool_),
    )
    places = composer.resolved(first, _PLACES.__contains__)
    output, *files = (str(places.get(key) or "") for key in _PLACES)
    return Run(grid, options, output, first, *files)


def _uncertainty(
    composer: Composer, composed: Sequence[_Composed], batch: Ints, row: Ints
) -> Uncertainty | None:
    """Return what of a grid is not exact, None where results are not sampled; raises InputError."""
    refuse_sweep([term.key for one in composed for axis in one.axes for term in axis.terms])
    sampled = sampling(composer, composed[0].first[0])
    if sampled is None:
        return None
    return uncertainty_of(sampled, [point for one in composed for point in one.stated], batch, row)


def check_path(key: str, composition: Composition) -> None:
    """Refuse a list or a mapping where a path is to be; raises InputError."""
    content = composition.content
    value: Any = content.get(key) if isinstance(content, dict) else content._get_node(key, False)
    is_node = OmegaConf.is_config(value) and not value._is_none() and not value._is_interpolation()
    if is_node or isinstance(value, dict | list):
        raise InputError(key, value, "a path or a URL")


def _check_output(first: Composition, composed: Sequence[_Composed]) -> None:
    """Refuse an output folder that follows what is swept: a grid is one dataset."""
    check_path("output", first)
    written = str(first.leaves.get("output"))
    read = [name for reference in _REFERENCE.findall(written) for name in _INTERPOLATED.findall(reference)]
    for key in (term.key for one in composed for axis in one.axes for term in axis.terms):
        if any(related(key, name) for name in read):
            raise InputError("output", written, f"a folder that does not depend on {key}, which is swept")


def _report(composer: Composer, first: Composition) -> str:
    """Return the study of the paper that a grid is judged as, "" for none; raises InputError."""
    name = str(first.selected("report") or "")
    if name and name not in STUDIES:
        raise InputError("report", name, f"null or {one_of(STUDIES)}", composer.origin("report", first))
    return name


def _compose_all(
    composer: Composer,
    terms: Sequence[Term],
    say: Callable[[str], None],
    as_texts: Collection[str] = (),
) -> _Composed:
    """Compose every combination of the axes that must be composed.

    Axes over leaves start as columns. One that some composition shows not to be free (something
    else mentions it, or it is no scalar there) joins the composed axes, and the composition restarts. Keys in
    `as_texts` are composed in any case.
    """
    axes = axes_of(terms)
    _check_size(axes, limits.MOST_POINTS, "points")
    keys = {
        axis.terms[0].key
        for axis in axes
        if any(term.key in as_texts or _must_be_composed(term, terms) for term in axis.terms)
    }
    of_user = user_keys(terms)
    while True:
        composed = [axis for axis in axes if axis.terms[0].key in keys]
        count = prod(axis.size for axis in composed)
        _check_size(composed, limits.MOST_COMPOSED, "combinations to compose")
        if count >= _MANY:
            say(f"composing {count:,} configurations, one for each combination of choices")
        free = [axis for axis in axes if axis.terms[0].key not in keys]
        free_keys = {term.key for axis in free for term in axis.terms}
        done = _Composed(
            axes, composed=keys, columns={}, inputs=[], choices=[], stated=[], unset={}, stock=[], first=[]
        )
        step = -(-count // MOST_TRIED)
        bound: set[str] = set()
        for texts in combinations(terms, composed):
            with _naming_terms(terms, composer):
                composition = composer.compose(texts)
            bound = {axis.terms[0].key for axis in free if _is_bound(composition, axis)} if free else set()
            if bound:
                break
            if not done.columns:
                done.columns.update(_columns_of(free))
            with _naming_terms(terms, composer), composer.naming_origins(composition):
                inputs = point_inputs(composer, composition, texts)
            if not done.first:
                sampled = sampling(composer, composition)
            if sampled is not None:
                done.stated.append(stated(composer, composition, inputs, free_keys))
            done.stock.append(is_stock(composer, composition) and not any(map(is_of_chip, free_keys)))
            if len(done.inputs) % step == 0 and any(of_user):
                done.unset[len(done.inputs)] = unset(composer, of_user, texts, inputs)
            done.inputs.append(inputs)
            done.choices.append(composition.choices)
            done.first[:] = done.first or [composition]
        if not bound:
            return done
        keys |= bound


def _check_size(axes: Sequence[TermAxis], most: int, what: str) -> None:
    """Refuse a product of axes that is too large, in the name of its longest one; raises InputError."""
    if not axes:
        return
    term = max(axes, key=lambda axis: axis.size).terms[0]
    written = term.override.get_value_string()
    limits.check(term.key, written, prod(axis.size for axis in axes), most, what, term.origin)


def _must_be_composed(term: Term, terms: Sequence[Term]) -> bool:
    """Say whether an axis is over a group, or a leaf that no column can stand for."""
    beside = (other for other in terms if other is not term and not other.is_group)
    chooses = term.key in (*SETS_OTHERS, PREFILL_CHIP) or is_choice(term.key)
    bound = chooses or not term.is_plain
    return term.is_group or bound or any(related(term.key, other.key) for other in beside)


@contextmanager
def _naming_terms(terms: Sequence[Term], composer: Composer) -> Iterator[None]:
    """Say of an InputError raised inside that a study's file set the key, where one did."""
    try:
        yield
    except InputError as error:
        origin = next((term.origin for term in terms if term.key == error.key), error.origin)
        if not error.key or error.origin not in ("", composer.origin_of_overrides):
            raise
        raise InputError(error.key, error.value, error.allowed, origin) from None


def _is_bound(composition: Composition, axis: TermAxis) -> bool:
    """Say whether a key of an axis is no scalar leaf here, or one that an interpolation may read."""
    leaves = composition.leaves
    tokens = {
        token.strip(".")
        for key, text in leaves.items()
        if isinstance(text, str) and "${" in text and key != "output"
        for token in _INTERPOLATED.findall(text)
    }
    return any(
        not (isinstance(leaves.get(term.key), str | int | float | bool) or is_filled(leaves, term.key))
        or any(token and f".{token}." in f".{term.key}." for token in tokens)
        for term in axis.terms
    )


def _served(composed: Sequence[_Composed]) -> str:
    """Say which points serve, as `Grid.served` does.

    Raises InputError where `serve` is none and its mode is not, or the other way round: a mode has the keys
    of its choice.
    """
    found = []
    for one in composed:
        for point in one.inputs:
            found.append(_OF_A_LOAD in point)
            for mode in map(str, one.columns.get(_MODE, [point.get(_MODE, NO_SERVING)])):
                if (mode != NO_SERVING) != found[-1]:
                    raise InputError(_MODE, mode, "none with serve=none, another mode with any other choice")
    return ALL if all(found) else SOME if any(found) else ""


def _levels(inputs: Iterable[str]) -> int:
    """Count the on-chip memory levels among input keys."""
    return len({key.split(".")[2] for key in inputs if key.startswith("chip.memory.")})


def _columns_of(axes: Sequence[TermAxis]) -> Columns:
    """Return the values of swept leaves: dotted key to array, in units; raises InputError.

    Values that are written in two ways, as "0.2 kW" and "200 W", are the same.
    """
    columns: Columns = {}
    for axis in axes:
        columns.update({term.key: _column(term) for term in axis.terms})
        if len(axis.terms) == 1 and not isinstance(axis.terms[0].values, range):
            term = axis.terms[0]
            first = np.unique(columns[term.key], return_index=True)[1]
            if first.size < axis.size and term.origin != PROGRAM:
                raise twice(term, term.values[int(np.setdiff1d(np.arange(axis.size), first)[0])])
    return columns


def _column(term: Term) -> NDArray[np.generic]:
    """Return the values of a swept leaf, in its unit."""
    try:
        if isinstance(term.values, range):
            return whole_numbers(term.key, term.values)
        given = [Override._convert_value(value) for value in term.values]
        return to_column(term.key, [convert(term.key, value) for value in given])
    except InputError as error:
        raise InputError(error.key, error.value, error.allowed, term.origin) from None


def _blocks(composed: Sequence[_Composed]) -> tuple[Block, ...]:
    """Lay the blocks out one after the other."""
    blocks: list[Block] = []
    points = first = 0
    for one in composed:
        axes = tuple(
            Axis(tuple(term.key for term in axis.terms), axis.size, axis.terms[0].key in one.composed)
            for axis in one.axes
        )
        blocks.append(Block(axes=axes, columns=one.columns, first_point=points, first_combination=first))
        points, first = points + blocks[-1].points, first + len(one.inputs)
    return tuple(blocks)


def _unset(composed: Sequence[_Composed]) -> dict[int, Unset]:
    """Return what inputs would be without the user's keys, by combination of all blocks."""
    first = np.cumsum([0, *(len(one.inputs) for one in composed)]).tolist()
    return {
        start + place: values
        for start, one in zip(first, composed, strict=False)
        for place, values in one.unset.items()
    }


def _labels(composed: Sequence[_Composed]) -> dict[str, NDArray[np.str_]]:
    """Name the choice of every combination: in the groups of every dataset, and of keys that are no input.

    A key that is no input somewhere, as a pin that comes and goes, is a text everywhere.
    """
    every = [choices for one in composed for choices in one.choices]
    labels = {group: [choices.get(group, "") for choices in every] for group in CHOICES}
    for key in _texts_among(composed) - labels.keys():
        labels[key] = [text for one in composed for text in _texts_of(key, one)]
    return {name: np.array(values, dtype=np.str_) for name, values in labels.items()}


def _texts_among(composed: Sequence[_Composed]) -> set[str]:
    """Return the composed keys that are no input everywhere."""
    keys = {term.key for one in composed for axis in one.composed_axes for term in axis.terms}
    return {key for key in keys if not all(key in inputs for one in composed for inputs in one.inputs)}


def _texts_of(key: str, one: _Composed) -> list[str]:
    """Return what a key is set to in every combination of a block, as written."""
    axes = one.composed_axes
    for place, axis in enumerate(axes):
        for term in axis.terms:
            if term.key == key:
                written = [term.text(i).partition("=")[2] for i in range(axis.size)]
                digits = itertools.product(*(range(other.size) for other in axes))
                return [written[digit[place]] for digit in digits]
    pairs = zip(one.inputs, one.choices, strict=True)
    return [str(inputs.get(key, choices.get(key, ""))) for inputs, choices in pairs]


def _digests(inputs: Sequence[Mapping[str, Scalar]], blocks: Sequence[Block]) -> dict[str, str]:
    """Return the SHA-256 of every file that an input names: its path alone does not say what is in it."""
    names = {str(point[key]) for point in inputs for key in FILES if key in point}
    names |= {str(name) for block in blocks for key in FILES for name in block.columns.get(key, ())}
    return {name: hashlib.sha256(Path(name).read_bytes()).hexdigest() for name in sorted(names)}


def _fingerprint(
    inputs: Sequence[Mapping[str, Scalar]],
    labels: Mapping[str, NDArray[np.str_]],
    blocks: Sequence[Block],
    uncertain: Uncertainty | None,
) -> str:
    """Return the SHA-256 of everything that the results follow from."""
    content: dict[str, object] = {
        "accuracy": accuracy_digest(),
        "axes": [[axis[:] for axis in block.axes] for block in blocks],
        "files": _digests(inputs, blocks),
        "inputs": inputs,
        "labels": {name: values.tolist() for name, values in labels.items()},
    }
    if uncertain is not None:
        content["uncertainty"] = uncertain.content()
    digest = hashlib.sha256(json.dumps(content, sort_keys=True, separators=(",", ":")).encode())
    for block in blocks:
        for key, values in sorted(block.columns.items()):
            digest.update(f"{key} {values.dtype} {values.size} ".encode())
            digest.update(values.tobytes())
    return digest.hexdigest()
