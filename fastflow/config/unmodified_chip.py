"""Whether the chip of a configuration is an unmodified chip of the library."""

from __future__ import annotations

from pathlib import Path

from fastflow.config.composer import Composer
from fastflow.config.hydra_composer import Composition
from fastflow.config.library import is_user_file

_SECTIONS = ("chip", "mem", "tech")


def is_of_chip(key: str) -> bool:
    """Say whether a leaf is a figure of the chip, its memory or its node."""
    section, dot, _ = key.partition(".")
    return section in _SECTIONS and bool(dot)


def is_stock(composer: Composer, composition: Composition) -> bool:
    """Say whether a chip is of the library, and no override changes a figure of it."""
    chip = composition.choices.get("chip", "")
    if is_user_file(chip):
        return False
    if any(is_of_chip(override.key_or_group) for override in composer.read(composition.overrides)):
        return False
    folder = composer.config_dir
    return not (folder and (Path(folder) / "chip" / f"{chip}.yaml").is_file())
