"""What inputs would be if nobody set them: so that a point can say which of the user's keys have no effect.

The configuration is composed once more without a term: without all leaves at once, which say nothing of each
other, and without each group whose choice no result column names.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from fastflow.config.chiplets import is_choice
from fastflow.config.composer import Composer
from fastflow.config.hydra_composer import Composition
from fastflow.config.model_inputs import FILES, SETS_OTHERS, Scalar, is_documentation, is_of_model
from fastflow.config.prefill_chip import KEY as PREFILL_CHIP
from fastflow.config.prefill_chip import point_inputs
from fastflow.core.errors import InputError
from fastflow.engine.grid.grid import Grid, Unset
from fastflow.engine.grid.overrides import Term
from fastflow.physics.workload.models.transformer.hf_config import KEY as CONFIG
from fastflow.schema import find_input

GROUPS = ("framework", "pins", "precision", "scaling", "server")
"""Groups whose choice may change nothing, and that no result column names."""
MOST_TRIED = 256  # points of a grid of which each is tried, and combinations of composed axes
SAMPLE = 64  # points of a larger one that are tried
SERVED_SHARE = 8  # of points that serve so many times fewer: each trial may be another server
NEVER = ("parallel.strategy", "model.file")
"""Keys that are never tried: a result column names what they come to, or nothing is predicted without."""
_SEPARATE = (*SETS_OTHERS, PREFILL_CHIP, *NEVER)
_LABEL = ".name"
_NAMES_FILES = (*FILES, CONFIG)
_OUTSIDE = re.compile(r"\$\{(?!oc\.select:)[\w.]*:")  # resolvers that may say something else in another call
_MOST_KNOWN = 64  # combinations whose inputs are kept: calls from Python repeat what the user leaves alone


class UserKeys(NamedTuple):
    """The terms of one grid whose effect is in question."""

    leaves: tuple[str, ...]
    groups: tuple[str, ...]


def most_tried(grid: Grid) -> int:
    """Return of how many points at most each is tried."""
    return MOST_TRIED // (SERVED_SHARE if grid.served else 1)


def sampled(grid: Grid) -> int:
    """Return how many points of a larger grid are tried."""
    return SAMPLE // (SERVED_SHARE if grid.served else 1)


def user_keys(terms: Sequence[Term]) -> UserKeys:
    """Return the leaves that terms set, but for names, and the groups among GROUPS."""
    leaves = [term.key for term in terms if not term.is_group and _is_plain_input(term)]
    return UserKeys(tuple(leaves), tuple(term.key for term in terms if term.is_group and term.key in GROUPS))


def _is_plain_input(term: Term) -> bool:
    """Say whether a term sets one input, from which no other key follows."""
    key = term.key
    if not term.is_input or term.override.is_delete() or key in _SEPARATE or is_choice(key):
        return False
    return find_input(key) is not None and not is_documentation(key) and not key.endswith(_LABEL)


def unset(composer: Composer, keys: UserKeys, texts: Sequence[str], inputs: Mapping[str, Scalar]) -> Unset:
    """Return what the inputs of one combination would be without each of the user's keys.

    texts: its overrides; inputs: what they come to. A key whose absence cannot be composed is left out.
    """
    found: dict[str, Mapping[str, Scalar | None]] = {}
    apart = [*keys.groups]
    if keys.leaves:
        others = _inputs_without(composer, keys.leaves, texts)
        if others is not None and _differ(others, inputs).keys() <= {*keys.leaves}:
            found = {key: {key: others.get(key)} for key in keys.leaves}
        else:  # something else follows from one of them
            apart += keys.leaves
    for key in apart:
        others = _inputs_without(composer, (key,), texts)
        if others is not None:
            found[key] = _differ(others, inputs)
    return found


def _differ(others: Mapping[str, Scalar], inputs: Mapping[str, Scalar]) -> dict[str, Scalar | None]:
    """Return those of some other inputs that are not the same, None where there is none."""
    found: dict[str, Scalar | None] = {
        key: value for key, value in others.items() if inputs.get(key) != value
    }
    return found | dict.fromkeys(inputs.keys() - others.keys())


def _inputs_without(
    composer: Composer, keys: Collection[str], texts: Sequence[str]
) -> Mapping[str, Scalar] | None:
    """Return the inputs of a combination without some of its terms, None where it cannot be composed."""
    left = tuple(
        text
        for text, override in zip(texts, composer.read(texts), strict=True)
        if override.key_or_group not in keys
    )
    if left in composer.known:
        return composer.known[left]
    try:
        with composer.uncounted():
            composition = composer.compose(left)
            inputs = point_inputs(composer, composition, left)
    except InputError:
        return None
    if _may_be_kept(composition):
        if len(composer.known) >= _MOST_KNOWN:
            composer.known.clear()
        composer.known[left] = inputs
    return inputs


def _may_be_kept(composition: Composition) -> bool:
    """Say whether inputs follow from what the composer reads alone: no environment, no other file."""
    return not any(
        isinstance(value, str) and (key in _NAMES_FILES or _OUTSIDE.search(value))
        for key, value in composition.leaves.items()
        if is_of_model(key)
    )
