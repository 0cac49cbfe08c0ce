"""What a back-test is asked: which chips, with which links, and what was known when."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from hydra.core.override_parser.types import Override

from fastflow.config.composer import Composer
from fastflow.config.messages import one_of, sets
from fastflow.core.errors import InputError

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
    parsed = composer.parse(overrides)
    _refuse_others(composer, parsed)
    leaves = composer.compose(overrides).leaves
    others = [
        text
        for text, override in zip(overrides, parsed, strict=True)
        if override.key_or_group.split(".")[0] not in (_SECTION, "output")
    ]
    chips = {
        key.split(".")[2]: str(value) for key, value in leaves.items() if key.startswith(f"{_SECTION}.chips.")
    }
    _refuse_unknown(composer, chips)
    lists = {
        name: _chips_of(composer, leaves.get(f"{_SECTION}.{name}"), name, fewest, chips)
        for name, fewest in _LISTS.items()
    }
    shares = {
        name: _share_of(composer, leaves.get(f"{_SECTION}.{name}"), name)
        for name in ("shared_area", "shared_power")
    }
    folder = leaves.get(f"{_SECTION}.measurements")
    given = sets(overrides, "output")
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


_LISTS = {"generations": 2, "known": 1}
"""Lists of chips, and how many each has at least."""
_OWN = ("chip", "pins", "scaling", "tech", "mem", "net", "model", "serve", "system")
"""Groups that a back-test chooses itself."""


def _refuse_others(composer: Composer, parsed: Sequence[Override]) -> None:
    """Refuse what a back-test chooses itself, and lists of values; raises InputError."""
    for override in parsed:
        key, where = override.key_or_group, composer.origin_of_overrides
        if key in _OWN and composer.is_group(key):
            allowed = f"no such choice: a back-test has its own for each chip ({_SECTION}.chips)"
            raise InputError(key, override.value(), allowed, where)
        if override.is_sweep_override():
            raise InputError(key, override.input_line or "", "one value: a back-test is no grid", where)


def _refuse_unknown(composer: Composer, chips: dict[str, str]) -> None:
    """Refuse chips and links that the library does not have, and none at all; raises InputError."""
    if not chips:
        raise InputError(f"{_SECTION}.chips", "{}", "a chip or more", composer.origin_of_overrides)
    for chip, net in chips.items():
        for group, name in (("chip", chip), ("net", net)):
            known = composer.choices(group)
            if name not in known:
                allowed = f"a choice of the group {group}, {one_of(known)}"
                raise InputError(f"{_SECTION}.chips.{chip}", name, allowed, composer.origin_of_overrides)


def _chips_of(
    composer: Composer, value: object, name: str, fewest: int, chips: dict[str, str]
) -> tuple[str, ...]:
    """Return a list of different chips; raises InputError for too few, or one that the back-test lacks."""
    found = (
        tuple(map(str, value))
        if isinstance(value, Sequence) and not isinstance(value, str)
        else (str(value),)
    )
    for chip in found:
        if chip not in chips:
            raise InputError(f"{_SECTION}.{name}", chip, one_of(tuple(chips)), composer.origin_of_overrides)
    if len(set(found)) < max(fewest, len(found)):
        allowed = "a chip or more" if fewest == 1 else "two chips or more"
        shown = f"[{', '.join(found)}]"
        raise InputError(f"{_SECTION}.{name}", shown, f"{allowed}, each once", composer.origin_of_overrides)
    return found


def _share_of(composer: Composer, value: object, name: str) -> float:
    """Return a share; raises InputError for what is none."""
    if isinstance(value, int | float) and not isinstance(value, bool) and 0.0 <= value <= 1.0:
        return float(value)
    raise InputError(f"{_SECTION}.{name}", value, "a number from 0 to 1", composer.origin_of_overrides)
