"""Inputs without each of the user's keys, from which points find the keys without effect.

The configuration is composed once more without a term: without all leaves at once, which are independent,
and without each group whose choice no result column names.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from fastflow.config.chiplets import is_choice
from fastflow.config.composer import Composer
from fastflow.config.hydra_composer import Composition
from fastflow.config.model_inputs import FILES, SETS_OTHERS, Scalar, is_documentation, is_of_model
from fastflow.config.other_chips import KEYS, point_inputs
from fastflow.core.errors import InputError
from fastflow.engine.grid.grid import Grid, Unset
from fastflow.engine.grid.overrides import Term
from fastflow.physics.workload.models.transformer.config_json.read import KEY as CONFIG
from fastflow.schema import find_input

GROUPS = ("framework", "calibration", "precision", "scaling", "server", "client", "router")
"""Groups whose choice may change nothing, and that no result column names."""
MAX_TRIALS = 256  # points of a grid that are all tried; also combinations of composed axes
SAMPLE = 64  # points of a larger one that are tried
SERVED_SHARE = 8  # of points that serve, a fraction 1 / SERVED_SHARE: a trial may simulate another server
NEVER = ("parallel.strategy", "model.file")
"""Keys that are never tried: a result column has them, or predictions need them."""
_SEPARATE = (*SETS_OTHERS, KEYS[0], *NEVER)  # a prefill chip always acts
_LABEL = ".name"
_FILE_KEYS = (*FILES, CONFIG)
_EXTERNAL = re.compile(r"\$\{(?!oc\.select:)[\w.]*:")  # resolvers whose value may change between calls
_MAX_KNOWN = 64  # cached combinations: calls from Python repeat them


class UserKeys(NamedTuple):
    """The terms of one grid whose effect is in question."""

    leaves: tuple[str, ...]
    groups: tuple[str, ...]


def max_trials(grid: Grid) -> int:
    """Return the largest number of points of a grid that are all tried."""
    return MAX_TRIALS // (SERVED_SHARE if grid.served else 1)


def num_sampled(grid: Grid) -> int:
    """Return the number of points of a larger grid that are tried."""
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
    """Return the inputs of a combination without each of the user's keys.

    texts: its overrides; inputs: their inputs. A key whose absence cannot be composed is left out.
    """
    without: dict[str, Mapping[str, Scalar | None]] = {}
    separate = [*keys.groups]
    if keys.leaves:
        others = _inputs_without(composer, keys.leaves, texts)
        if others is not None and _differences(others, inputs).keys() <= {*keys.leaves}:
            without = {key: {key: others.get(key)} for key in keys.leaves}
        else:  # another input depends on one of the leaves
            separate += keys.leaves
    for key in separate:
        others = _inputs_without(composer, (key,), texts)
        if others is not None:
            without[key] = _differences(others, inputs)
    return without


def _differences(others: Mapping[str, Scalar], inputs: Mapping[str, Scalar]) -> dict[str, Scalar | None]:
    """Return the inputs that differ, with the values of `others`; None for inputs that `others` lack."""
    changed: dict[str, Scalar | None] = {
        key: value for key, value in others.items() if inputs.get(key) != value
    }
    return changed | dict.fromkeys(inputs.keys() - others.keys())


def _inputs_without(
    composer: Composer, keys: Collection[str], texts: Sequence[str]
) -> Mapping[str, Scalar] | None:
    """Return the inputs of a combination without some of its terms, None where it cannot be composed."""
    remaining = tuple(
        text
        for text, override in zip(texts, composer.read(texts), strict=True)
        if override.key_or_group not in keys
    )
    if remaining in composer.known:
        return composer.known[remaining]
    try:
        with composer.uncounted():
            composition = composer.compose(remaining)
            inputs = point_inputs(composer, composition, remaining, refuses_types=False)
    except InputError:
        return None
    if _is_cacheable(composition):
        if len(composer.known) >= _MAX_KNOWN:
            composer.known.clear()
        composer.known[remaining] = inputs
    return inputs


def _is_cacheable(composition: Composition) -> bool:
    """Say whether inputs depend only on files of the composer: on no environment, on no other file."""
    leaves = composition.leaves
    return not any(isinstance(leaves.get(key), str) for key in _FILE_KEYS) and not any(
        isinstance(value, str) and "${" in value and is_of_model(key) and _EXTERNAL.search(value)
        for key, value in leaves.items()
    )
