"""The uncertainty of a configuration: blocks `uncertainty` in its files, and the group `uncertainty`.

`uncertainty: {price: 20%}` next to `price` means that it is within 20% of its value, up and down, with a
probability of 0.8; `price: 12 USD/GB to 18 USD/GB` gives the 10th and 90th percentile. A file has it for its
values and those of the files in its `defaults`. A value that a later file or the command line sets is exact,
unless they also set its uncertainty.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from fastflow.config import fast_composer
from fastflow.config.composer import Composer
from fastflow.config.hydra_composer import Composition, related
from fastflow.config.model_inputs import INT64_MAX, Scalar, convert
from fastflow.core.errors import InputError
from fastflow.core.uncertainty.sampling import Distribution, ModelError, Uncertainty
from fastflow.physics.parallelism.strategy import AUTO
from fastflow.physics.workload import OTHERS, WORK
from fastflow.schema import find_input

BLOCK = "uncertainty"
"""The name of the blocks, and of the group."""
_WHOLE = 100.0  # percent: an upper bound
_PERCENT = re.compile(r"(\d+(?:\.\d+)?) ?%")
_MIN_SAMPLES, _MAX_SAMPLES = 2, 65_536
_ALLOWED = (
    "a percentage below 100% such as 10%, or a range that holds the value, such as 12 USD/GB to 18 USD/GB"
)


class Stated(NamedTuple):
    """The uncertainty of a figure."""

    key: str
    draw: str  # the file that sets its value, and the key
    low: float  # 10th percentile over the value
    high: float


class Sampling(NamedTuple):
    """The group `uncertainty`: samples, seed, and the errors of the model."""

    samples: int
    seed: int
    model: dict[str, ModelError]


def is_stated(key: str) -> bool:
    """Say whether a leaf is in a block."""
    return BLOCK in key.split(".")[1:]


def figure_of(key: str) -> str:
    """Return the key of the figure of a block's leaf."""
    names = key.split(".")
    block = names.index(BLOCK, 1)
    return ".".join((*names[:block], *names[block + 1 :]))


def sampling(composer: Composer, composition: Composition) -> Sampling | None:
    """Return how results are sampled, None where they are not; raises InputError."""
    leaves = composer.resolved(composition, lambda key: key.startswith(f"{BLOCK}."))
    if leaves.keys() <= {f"{BLOCK}.name"}:
        return None
    with composer.naming_origins(composition):
        samples = _whole(f"{BLOCK}.samples", leaves, _MIN_SAMPLES, _MAX_SAMPLES)
        seed = _whole(f"{BLOCK}.seed", leaves, 0, INT64_MAX)
        return Sampling(samples, seed, {work: _model_error(work, leaves) for work in WORK})


def _whole(key: str, leaves: Mapping[str, Any], low: int, high: int) -> int:
    value = leaves.get(key)
    if isinstance(value, int) and not isinstance(value, bool) and low <= value <= high:
        return value
    raise InputError(key, "null" if value is None else value, f"a whole number from {low} to {high:,}")


def _model_error(work: str, leaves: Mapping[str, Any]) -> ModelError:
    """Return the model's error for a kind of work; raises InputError."""
    errors: list[float | None] = []
    for name in ModelError._fields:
        key = f"{BLOCK}.model.{work}.{name}"
        value = leaves.get(key)
        may_follow = name == "error" and work != OTHERS
        if may_follow and value == AUTO:
            errors.append(None)
            continue
        read = _PERCENT.fullmatch(str(value))
        if read is None or float(read[1]) > _WHOLE:
            also = ", or auto: that of the point's class of validation" if may_follow else ""
            raise InputError(key, "null" if value is None else value, f"a percentage from 0% to 100%{also}")
        errors.append(float(read[1]) / _WHOLE)
    error, gain = errors
    assert gain is not None
    return ModelError(error, gain)


def stated(
    composer: Composer, composition: Composition, inputs: Mapping[str, Scalar], swept: set[str]
) -> list[Stated]:
    """Return the uncertainties of a configuration's figures; raises InputError.

    inputs: of the model, in SI units. swept: keys that vary as columns: they are exact.
    """
    leaves = composer.resolved(composition, is_stated)
    with composer.naming_origins(composition):
        return list(_stated(composer, composition, leaves, inputs, swept))


def _stated(
    composer: Composer,
    composition: Composition,
    leaves: Mapping[str, Any],
    inputs: Mapping[str, Scalar],
    swept: set[str],
) -> Iterator[Stated]:
    override_keys = list(
        fast_composer.flat(
            {
                override.key_or_group: override.value()
                for override in composer.read(composition.overrides)
                if not composer.is_group(override.key_or_group)
            }
        )
    )
    files = [
        (default.config_path or "", composer.leaves_of(default).keys()) for default in composition.defaults
    ]

    def file_index(key: str) -> int:
        """Return the index of the last file with a leaf; len(files) for the command line, -1 for none."""
        if any(related(key, name) for name in override_keys):
            return len(files)
        return max((file_index for file_index, (_, keys) in enumerate(files) if key in keys), default=-1)

    for key, value in leaves.items():
        if ".source" in key or value == {}:
            continue
        figure = figure_of(key)
        column, nominal = find_input(figure), inputs.get(figure)
        if column is None or column.kind != "float" or not isinstance(nominal, float):
            raise InputError(key, value, "the uncertainty of a figure beside it that is a real number")
        setter = file_index(figure)
        if file_index(key) < setter:
            continue  # the uncertainty of a value that a later file replaces
        low, high = _read(key, value, figure, nominal)
        if figure not in swept and low < high:
            yield Stated(figure, f"{files[setter][0] if setter < len(files) else ''} {figure}", low, high)


def _read(key: str, value: Any, figure: str, nominal: float) -> tuple[float, float]:
    """Return 10th and 90th percentile over the value; raises InputError."""
    percent = _PERCENT.fullmatch(str(value))
    if percent is not None and float(percent[1]) < _WHOLE:
        ratio = 1.0 + float(percent[1]) / _WHOLE
        return 1.0 / ratio, ratio
    percentiles = str(value).split(" to ")
    if len(percentiles) != len(("low", "high")):
        raise InputError(key, "null" if value is None else value, _ALLOWED)
    try:
        low, high = (convert(figure, _number(end)) for end in percentiles)
    except InputError as error:
        raise InputError(key, value, f"{_ALLOWED}; of {figure} {error.allowed}") from None
    if not (0.0 < float(low) <= nominal <= float(high)):
        raise InputError(key, value, f"{_ALLOWED}; {figure} is {nominal:g} in SI units")
    return float(low) / nominal, float(high) / nominal


def _number(text: str) -> float | str:
    """Return a bare number as a float."""
    try:
        return float(text)
    except ValueError:
        return text


def uncertainty_of(
    sampled: Sampling, of_points: list[list[Stated]], batch: np.ndarray, row: np.ndarray
) -> Uncertainty:
    """Return the uncertainty of a grid; batch, row: those of each combination of the grid."""
    draws = {figure.draw: None for point in of_points for figure in point}
    draw_index = {draw: index for index, draw in enumerate(draws)}
    distributions = []
    for number in range(int(batch.max()) + 1):
        members = np.flatnonzero(batch == number)
        by_key: dict[str, Distribution] = {}
        for member in members.tolist():
            for figure in of_points[member]:
                if figure.key not in by_key:
                    size = members.size
                    exact, ones = np.full(size, -1), np.ones(size)
                    by_key[figure.key] = Distribution(figure.key, exact, ones, ones.copy())
                distribution, i = by_key[figure.key], int(row[member])
                distribution.draw[i], distribution.low[i], distribution.high[i] = (
                    draw_index[figure.draw],
                    figure.low,
                    figure.high,
                )
        distributions.append(tuple(by_key.values()))
    return Uncertainty(sampled.samples, sampled.seed, sampled.model, tuple(draws), tuple(distributions))


def refuse_sweep(keys: list[str]) -> None:
    """Refuse several uncertainties in one grid; raises InputError."""
    for key in keys:
        if key == BLOCK or key.startswith(f"{BLOCK}."):
            raise InputError(key, "several values", "one: all points of a grid are sampled alike")
