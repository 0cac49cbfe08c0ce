"""What a back-test is asked: which chips, with which links, and what was known when."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from fastflow.configuration.composer import Composer
from fastflow.configuration.wording import one_of
from fastflow.errors import InputError

_SECTION = "backtest"


class Asked(NamedTuple):
    """The section `backtest` of a configuration, and what else it was composed with."""

    chips: dict[str, str]  # to the links that each was bought with, oldest first
    generations: tuple[str, ...]
    known: tuple[str, ...]
    shared_area: float
    shared_power: float
    measurements: str | None  # a folder
    overrides: tuple[str, ...]  # all others, which hold for every chip
    output: str | None


def read(composer: Composer, overrides: Sequence[str]) -> Asked:
    """Read what a back-test is asked; raises InputError."""
    leaves = composer.compose(overrides).leaves
    others = [
        text
        for text, parsed in zip(overrides, composer.parse(overrides), strict=True)
        if parsed.key_or_group.split(".")[0] not in (_SECTION, "output")
    ]
    chips = {
        key.split(".")[2]: str(value) for key, value in leaves.items() if key.startswith(f"{_SECTION}.chips.")
    }
    lists = {name: _chips_of(composer, leaves.get(f"{_SECTION}.{name}"), name, chips) for name in _LISTS}
    if len(lists["known"]) == 0:
        raise InputError(f"{_SECTION}.known", "[]", "a chip or more", composer.origin_of_overrides)
    shares = {
        name: _share_of(composer, leaves.get(f"{_SECTION}.{name}"), name)
        for name in ("shared_area", "shared_power")
    }
    folder = leaves.get(f"{_SECTION}.measurements")
    given = any(text.lstrip("+").startswith("output=") for text in overrides)
    return Asked(
        chips=chips,
        generations=lists["generations"],
        known=lists["known"],
        shared_area=shares["shared_area"],
        shared_power=shares["shared_power"],
        measurements=None if folder is None else str(folder),
        overrides=tuple(others),
        output=str(leaves["output"]) if given else None,
    )


_LISTS = ("generations", "known")


def _chips_of(composer: Composer, value: object, name: str, chips: dict[str, str]) -> tuple[str, ...]:
    """Return a list of chips; raises InputError for one that is none of those of the back-test."""
    found = (
        tuple(map(str, value))
        if isinstance(value, Sequence) and not isinstance(value, str)
        else (str(value),)
    )
    for chip in found:
        if chip not in chips:
            raise InputError(f"{_SECTION}.{name}", chip, one_of(tuple(chips)), composer.origin_of_overrides)
    return found


def _share_of(composer: Composer, value: object, name: str) -> float:
    """Return a share; raises InputError for what is none."""
    if isinstance(value, int | float) and not isinstance(value, bool) and 0.0 <= value <= 1.0:
        return float(value)
    raise InputError(f"{_SECTION}.{name}", value, "a number from 0 to 1", composer.origin_of_overrides)
