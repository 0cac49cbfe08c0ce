"""Options of a back-test: its chips and their links, and which chips were known beforehand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from hydra.core.override_parser.types import Override

from fastflow.config.composer import Composer
from fastflow.config.messages import one_of, sets
from fastflow.core.errors import InputError

_SECTION = "backtest"


class BacktestOptions(NamedTuple):
    """The section `backtest` of a configuration, and the other overrides."""

    chips: dict[str, str]  # chip to its links, oldest first
    generations: tuple[str, ...]
    known: tuple[str, ...]
    shared_area: float
    shared_power: float
    measurements: str | None  # a folder
    overrides: tuple[str, ...]  # all other overrides, which hold for every chip
    output: str | None


def read_section(composer: Composer, overrides: Sequence[str]) -> BacktestOptions:
    """Read the options of a back-test; raises InputError."""
    parsed = composer.parse(overrides)
    _refuse_others(composer, parsed)
    composition = composer.compose(overrides)
    leaves = composition.leaves
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
    output = None
    if sets(overrides, "output"):
        output = str(composer.resolved(composition, "output".__eq__)["output"])
    return BacktestOptions(
        chips=chips,
        generations=lists["generations"],
        known=lists["known"],
        shared_area=shares["shared_area"],
        shared_power=shares["shared_power"],
        measurements=None if folder is None else str(folder),
        overrides=tuple(others),
        output=output,
    )


_LISTS = {"generations": 2, "known": 1}
"""Lists of chips, and how many each has at least."""
_RESERVED_GROUPS = ("chip", "calibration", "scaling", "tech", "mem", "net", "model", "serve", "system")
"""Groups that a back-test sets itself."""


def _refuse_others(composer: Composer, parsed: Sequence[Override]) -> None:
    """Refuse groups that a back-test sets itself, and lists of values; raises InputError."""
    for override in parsed:
        key, where = override.key_or_group, composer.origin_of_overrides
        if key in _RESERVED_GROUPS and composer.is_group(key):
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
    """Return a list of different chips; raises InputError for too few, or for unknown ones."""
    listed = (
        tuple(map(str, value))
        if isinstance(value, Sequence) and not isinstance(value, str)
        else (str(value),)
    )
    for chip in listed:
        if chip not in chips:
            raise InputError(f"{_SECTION}.{name}", chip, one_of(tuple(chips)), composer.origin_of_overrides)
    if len(set(listed)) < max(fewest, len(listed)):
        allowed = "a chip or more" if fewest == 1 else "two chips or more"
        shown = f"[{', '.join(listed)}]"
        raise InputError(f"{_SECTION}.{name}", shown, f"{allowed}, each once", composer.origin_of_overrides)
    return listed


def _share_of(composer: Composer, value: object, name: str) -> float:
    """Return a share; raises InputError outside 0 to 1."""
    if isinstance(value, int | float) and not isinstance(value, bool) and 0.0 <= value <= 1.0:
        return float(value)
    raise InputError(f"{_SECTION}.{name}", value, "a number from 0 to 1", composer.origin_of_overrides)
