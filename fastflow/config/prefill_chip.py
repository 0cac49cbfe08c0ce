"""Inputs of a second chip: that of devices which prefill, where `serve.prefill.chip` names one."""

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
from fastflow.schema import OF_PREFILL, SECTIONS_OF_CHIP

KEY = f"{OF_PREFILL}chip"


def with_prefill_chip(
    composer: Composer, composition: Composition, overrides: Sequence[str], inputs: Mapping[str, Scalar]
) -> dict[str, Scalar]:
    """Return inputs with those of the prefill chip added, whose keys have the prefix `serve.prefill.`.

    Raises InputError where the library has no chip of that name. The chip is unmodified: overrides of a chip,
    its node, its memory or its network apply to the decode devices alone. It has the links of its machine
    where the decode chip has; else both have the same system. Its power limit is `serve.prefill.power_limit`.
    """
    _check_unmodified(inputs)
    name = inputs.get(KEY)
    if name is None:
        return dict(inputs)
    prefill_overrides = [
        text
        for text, read in zip(overrides, composer.read(overrides), strict=True)
        if read.key_or_group != "chip" and not _is_of_chip(read.key_or_group)
    ]
    if not composition.machine and not any(text.startswith(f"{SYSTEM}=") for text in prefill_overrides):
        prefill_overrides.append(f"{SYSTEM}={composition.choices[SYSTEM]}")
    try:
        other = composer.compose([*prefill_overrides, f"chip={name}"])
    except InputError as error:
        raise InputError(KEY, name, error.allowed) if error.key == "chip" else error from None
    with composer.naming_origins(other):
        prefill_inputs = with_chiplets(composer, model_inputs(composer.resolved(other, is_of_model), False))
    return dict(inputs) | {
        OF_PREFILL + key: value for key, value in prefill_inputs.items() if _is_of_chip(key)
    }


def _check_unmodified(inputs: Mapping[str, Scalar]) -> None:
    """Raise InputError for a key of the prefill chip, which only its own file sets."""
    for key, value in inputs.items():
        if key.startswith(OF_PREFILL) and _is_of_chip(key.removeprefix(OF_PREFILL)):
            limited = f"; {PREFILL_LIMIT} limits its power" if key == OF_PREFILL + LIMIT else ""
            raise InputError(key, value, f"no key of the chip, which {KEY} names{limited}")


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
    return with_prefill_chip(composer, composition, overrides, inputs)
