"""A planned run: its grid, its output and its settings."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import NamedTuple

from fastflow.config.composer import Composer
from fastflow.config.engine_settings import Settings
from fastflow.config.hydra_composer import Composition
from fastflow.config.list_keys import COLUMNS
from fastflow.core.errors import CompositionError, InputError
from fastflow.engine.grid.grid import Grid
from fastflow.physics.hardware.packages import DEVICES
from fastflow.physics.parallelism.strategy import AUTO, parse
from fastflow.schema import find_input
from fastflow.schema.studies import SEARCHED

_STRATEGY = "parallel.strategy"


class Run(NamedTuple):
    """A grid with its output and its settings."""

    grid: Grid
    settings: Settings
    output: str
    """The configured output folder."""
    first: Composition
    """The composition of the first point, for messages."""
    trace: str = ""
    """The file of a single point's schedule, if any."""
    picture: str = ""
    """The file of a drawing of a single point's placement, if any."""
    html: str = ""
    """The file of a page of a single point's fleet, if any."""
    columns: str = ""
    """The result columns that tables show, as written; "": the default columns."""


def refuse_others(run: Run, command: str = "sweep", shows: bool = False) -> None:
    """Refuse files that only a single point of the command line writes, and another command's study.

    command: "sweep" or "search"; shows: whether tables of its points are printed. Raises InputError.
    """
    if run.columns and not shows:
        allowed = "null here; tables of fastflow.sweep and fastflow.report have columns to choose"
        raise InputError(COLUMNS, run.columns, allowed)
    owner = "search" if run.grid.report in SEARCHED else "sweep"
    if run.grid.report and owner != command:
        raise InputError("report", run.grid.report, f"null here; python -m fastflow.{owner} runs this study")
    for key in ("trace", "picture", "html"):
        if getattr(run, key):
            allowed = "null here; a file belongs to one point, predicted by a command without -m"
            raise InputError(key, getattr(run, key), allowed)


def refuse_auto_devices(run: Run, what: str) -> None:
    """Refuse `system.devices=auto` where a number is needed; what: needs it, for the message.

    Raises InputError.
    """
    if run.grid.chooses_devices:
        raise InputError(DEVICES, AUTO, f"a number, which {what} needs")


@contextmanager
def naming_missing_input(inputs: Collection[str]) -> Iterator[None]:
    """Raise InputError with the name of an input that the model needs and the configuration lacks."""
    try:
        yield
    except KeyError as error:
        key = error.args[0] if error.args else None
        column = find_input(key) if isinstance(key, str) and key not in inputs else None
        if column is None:
            raise
        from fastflow.physics.network.collectives import nccl

        allowed = f"{column.allowed()} ({column.meaning}); it is missing"
        if key in nccl.KEYS:
            allowed += "; system.library=none runs collectives without NCCL"
        raise InputError(str(key), "nothing", allowed) from None


@contextmanager
def naming_errors(composer: Composer, run: Run) -> Iterator[None]:
    """Add to an InputError of the model where its key's value came from."""
    common_keys = set.intersection(*(set(batch.columns) for batch in run.grid.batches))
    try:
        with naming_missing_input(common_keys.union(run.grid.keys)):
            yield
    except InputError as error:
        if error.origin or error.key == "output":
            raise
        if not error.key:
            remedy = _default_strategy_remedy(composer, run) if error.wrong_degree else ""
            raise (CompositionError(error.allowed + remedy) if remedy else error) from None
        swept = error.key in run.grid.keys
        origin = composer.origin_of_overrides if swept else composer.origin(error.key, run.first)
        located = error.replaced(origin=origin)
        raise (located if swept else _with_user_key(located, composer, run)) from None


def _with_user_key(error: InputError, composer: Composer, run: Run) -> InputError:
    """Return an error with the user's key, where a file's value conflicts with it."""
    if error.origin == composer.origin_of_overrides:
        return error
    override_values = {
        (override.key_or_group, str(override.value())) for override in composer.read(run.first.overrides)
    }
    pairs = (pair for pair in error.conflicts if pair in override_values)
    for key, value in pairs:
        allowed = _default_strategy_note(error, key, value)
        if not allowed:
            allowed = f"one that suits {error.key}={error.value} (from {error.origin}): {error.allowed}"
        return InputError(key, value, allowed, composer.origin_of_overrides)
    for key, value in error.conflicts:
        group, choice = composer.choice_setting(key, run.first)
        allowed = _default_strategy_note(error, key, value, f" (it has {key}={value})") if group else ""
        if allowed:
            return InputError(group, choice, allowed, composer.origin_of_overrides)
    if error.key != _STRATEGY:
        return error
    allowed = error.allowed.removesuffix(f", or {AUTO}") + _default_strategy_remedy(composer, run)
    return error.replaced(allowed=allowed)


def _default_strategy_remedy(composer: Composer, run: Run) -> str:
    """Return what to do about a default strategy that does not suit, "" where the user gave the strategy."""
    origin = composer.origin(_STRATEGY, run.first)
    if origin == composer.origin_of_overrides or run.first.selected(_STRATEGY) == AUTO:
        return ""
    group, choice = composer.choice_setting(f"model.{_STRATEGY.partition('.')[2]}", run.first)
    of = f"the default of {group}={choice}" if group else f"the default (from {origin})"
    return f"; the strategy is {of}: give {_STRATEGY}={AUTO}, or another"


def _default_strategy_note(error: InputError, key: str, value: str, aside: str = "") -> str:
    """Return the constraint of the default strategy on a user's key or choice, and the remedy; or "".

    aside: what the choice has, where the user did not set the key itself.
    """
    if error.key != _STRATEGY:
        return ""
    strategy = parse(str(error.value))
    needs, other = {
        "system.devices": (f"needs {strategy.devices} devices", f"a strategy of {value} devices"),
        "model.batch": (
            f"cuts the batch into {strategy.dp} parts",
            f"a strategy whose data parallelism divides {value}",
        ),
    }.get(key, ("", ""))
    if not needs:
        return ""
    default = f"the default {_STRATEGY}={error.value} (from {error.origin}), which {needs}"
    return f"one that suits {default}{aside}; give {_STRATEGY}={AUTO}, or {other}"
