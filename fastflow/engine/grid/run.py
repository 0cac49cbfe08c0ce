"""A planned run: its grid, its output and its settings."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import NamedTuple

from fastflow.config.composer import Composer
from fastflow.config.engine_settings import Settings
from fastflow.config.hydra_composer import Composition
from fastflow.config.list_keys import COLUMNS
from fastflow.core.errors import InputError
from fastflow.engine.grid.grid import Grid
from fastflow.physics.parallelism.strategy import AUTO, parse
from fastflow.schema import find_input
from fastflow.schema.studies import SEARCHED

_GIVEN = re.compile(r"([a-z_]+(?:\.\w+)+)=([^\s,;()]+)")
"""A key and a value that a refusal speaks of."""
_STRATEGY = "parallel.strategy"


class Run(NamedTuple):
    """What is to be run: a grid, and where and how."""

    grid: Grid
    settings: Settings
    output: str
    """The configured output folder."""
    first: Composition
    """The composition of the first point, for messages."""
    trace: str = ""
    """The file that a single point's schedule goes to, if any."""
    picture: str = ""
    """The file that a single point's placement is drawn in, if any."""
    columns: str = ""
    """The result columns that tables show, as written; "": the usual ones."""


def refuse_others(run: Run, command: str = "sweep", shows: bool = False) -> None:
    """Refuse what only a single point of the command line leaves, and another command's study.

    command: "sweep" or "search"; shows: whether tables of its points are printed. Raises InputError.
    """
    if run.columns and not shows:
        allowed = "null here; tables of fastflow.sweep and fastflow.report have columns to choose"
        raise InputError(COLUMNS, run.columns, allowed)
    of = "search" if run.grid.report in SEARCHED else "sweep"
    if run.grid.report and of != command:
        raise InputError("report", run.grid.report, f"null here; python -m fastflow.{of} runs this study")
    for key in ("trace", "picture"):
        if getattr(run, key):
            allowed = "null here; a file belongs to one point, predicted by a command without -m"
            raise InputError(key, getattr(run, key), allowed)


@contextmanager
def naming_what_is_missing(inputs: Collection[str]) -> Iterator[None]:
    """Say of an input that the model asks for, and that the configuration does not give, which one it is."""
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
def explaining(composer: Composer, run: Run) -> Iterator[None]:
    """Add to an InputError of the model where its key's value came from."""
    given = set.intersection(*(set(batch.columns) for batch in run.grid.batches))
    try:
        with naming_what_is_missing(given.union(run.grid.keys)):
            yield
    except InputError as error:
        if error.origin or not error.key or error.key == "output":
            raise
        swept = error.key in run.grid.keys
        origin = composer.origin_of_overrides if swept else composer.origin(error.key, run.first)
        found = InputError(error.key, error.value, error.allowed, origin)
        raise (found if swept else _blaming_user(found, composer, run)) from None


def _blaming_user(error: InputError, composer: Composer, run: Run) -> InputError:
    """Return a refusal by the key that the user gave, where a file's value does not suit it."""
    if error.origin == composer.origin_of_overrides:
        return error
    given = {(one.key_or_group, str(one.value())) for one in composer.read(run.first.overrides)}
    named = (pair for pair in _GIVEN.findall(error.allowed) if pair in given)
    for key, value in named:
        allowed = _suiting_the_default(error, key, value)
        if not allowed:
            allowed = f"one that suits {error.key}={error.value} (from {error.origin}): {error.allowed}"
        return InputError(key, value, allowed, composer.origin_of_overrides)
    return error


def _suiting_the_default(error: InputError, key: str, value: str) -> str:
    """Say what a user's key has to suit where the strategy is the default, and what to give beside it; ""."""
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
    return f"one that suits {default}; give {_STRATEGY}={AUTO}, or {other}"
