"""Inputs of other chips: of devices that prefill (`serve.prefill.chip`), of attention, or of encoders."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fastflow.config.auto_devices import with_auto_devices
from fastflow.config.chiplets import with_chiplets
from fastflow.config.composer import Composer
from fastflow.config.default_system import SYSTEM
from fastflow.config.hydra_composer import Composition
from fastflow.config.model_inputs import Scalar, is_of_model, model_inputs
from fastflow.core.errors import InputError
from fastflow.physics.hardware.power import LIMIT, PREFILL_LIMIT
from fastflow.schema import OF_PREFILL, OTHER_CHIPS, SECTIONS_OF_CHIP, split_prefix

KEYS = tuple(f"{prefix}chip" for prefix in OTHER_CHIPS)
"""Keys that name a chip of the library."""


def with_other_chips(
    composer: Composer, composition: Composition, overrides: Sequence[str], inputs: Mapping[str, Scalar]
) -> dict[str, Scalar]:
    """Return inputs with those of other chips added, whose keys have the prefix `serve.prefill.` or the like.

    Raises InputError where the library has no chip of that name. Such a chip is unmodified: overrides of a
    chip, its node, its memory or its network apply to the other devices alone. It has the links of its
    machine where the other devices have; else both have the same system. The power limit of devices that
    prefill is `serve.prefill.power_limit`.
    """
    _check_unmodified(inputs)
    columns = dict(inputs)
    for key, prefix in zip(KEYS, OTHER_CHIPS, strict=True):
        if key in inputs:
            of_chip = _chip_inputs(composer, composition, overrides, key, inputs[key])
            columns |= {prefix + name: value for name, value in of_chip.items()}
    return columns


def _chip_inputs(
    composer: Composer, composition: Composition, overrides: Sequence[str], key: str, name: Scalar
) -> dict[str, Scalar]:
    """Return the inputs of a chip that a key names."""
    other_overrides = [
        text
        for text, read in zip(overrides, composer.read(overrides), strict=True)
        if read.key_or_group != "chip" and not _is_of_chip(read.key_or_group)
    ]
    if not composition.machine and not any(text.startswith(f"{SYSTEM}=") for text in other_overrides):
        other_overrides.append(f"{SYSTEM}={composition.choices[SYSTEM]}")
    try:
        other = composer.compose([*other_overrides, f"chip={name}"])
    except InputError as error:
        raise InputError(key, name, error.allowed) if error.key == "chip" else error from None
    with composer.naming_origins(other):
        columns = with_chiplets(composer, model_inputs(composer.resolved(other, is_of_model), False))
    return {of_chip: value for of_chip, value in columns.items() if _is_of_chip(of_chip)}


def _check_unmodified(inputs: Mapping[str, Scalar]) -> None:
    """Raise InputError for a key of another chip, which only its own file sets."""
    for key, value in inputs.items():
        prefix, of_chip = split_prefix(key)
        if prefix and _is_of_chip(of_chip):
            limited = f"; {PREFILL_LIMIT} limits its power" if key == OF_PREFILL + LIMIT else ""
            raise InputError(key, value, f"no key of the chip, which {prefix}chip names{limited}")


def _is_of_chip(key: str) -> bool:
    return key.startswith(SECTIONS_OF_CHIP)


def point_inputs(
    composer: Composer, composition: Composition, overrides: Sequence[str], refuses_types: bool = True
) -> dict[str, Scalar]:
    """Return all inputs of the point of a composition, those of chips within it too; raises InputError.

    overrides: those of the composition; refuses_types: as for `model_inputs`.
    """
    inputs = model_inputs(composer.resolved(composition, is_of_model), refuses_types)
    inputs = with_auto_devices(composition, overrides, with_chiplets(composer, inputs))
    return with_other_chips(composer, composition, overrides, inputs)
