"""Points and grids of `sweep` and `search`: planned from a command line, then run."""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from hydra.types import RunMode

from fastflow.config.composer import Composer
from fastflow.config.messages import COMMAND_LINE, path_of
from fastflow.core.errors import CompositionError
from fastflow.engine.dataset.folder import is_url
from fastflow.engine.grid import plan as planner
from fastflow.engine.grid.overrides import STUDIES, SWEEPER, first_of_groups, read_terms
from fastflow.engine.grid.run import Run, naming_errors

Execute = Callable[[Composer, Sequence[str], Run, Mapping[str, Any] | None, str], None]
"""A function that runs a planned grid: composer, overrides, plan, section `hydra.sweeper`, output."""
_MULTIRUN = RunMode.MULTIRUN.name


def check_single(composer: Composer, overrides: Sequence[str]) -> None:
    """Refuse a study without -m that does not set `hydra.mode`."""
    spans, file = composer.sweeper(first_of_groups(read_terms(composer, overrides, COMMAND_LINE)))
    if any(spans.values()):
        raise CompositionError(
            f"{file}: a study is a grid and needs -m (or `hydra.mode: MULTIRUN` in the file)"
        )


def run(
    composer: Composer,
    overrides: Sequence[str],
    sweeper: Mapping[str, Any] | None,
    folder: str,
    execute: Execute,
) -> None:
    """Run what Hydra composed; sweeper: the section `hydra.sweeper`, None for a point. Raises InputError."""
    planned = planner.plan(composer, overrides, sweeper or {}, _print_status)
    output = planned.output if is_url(planned.output) else folder  # Hydra takes a URL for a path
    _run(execute, composer, overrides, planned, sweeper, output)


def plan(composer: Composer, arguments: Namespace, execute: Execute) -> Callable[[], None] | None:
    """Plan a command line that Hydra need not see; returns what runs it, or None. Raises InputError."""
    sweeper = _study(composer, arguments.overrides) if arguments.multirun else None
    if sweeper is None and arguments.multirun:
        return None
    planned = planner.plan(composer, arguments.overrides, sweeper or {}, _print_status)
    if planned.grid.keys and not arguments.multirun:
        return None
    output = planned.output if arguments.multirun else shown_output(planned.output)
    return partial(_run, execute, composer, arguments.overrides, planned, sweeper, output)


def shown_output(output: str) -> str:
    """Return an output as messages show it."""
    return output if is_url(output) else path_of(Path(output).absolute())


def _study(composer: Composer, overrides: Sequence[str]) -> Mapping[str, Any] | None:
    """Return the section `hydra.sweeper` of a study among the overrides; None where it sets more of Hydra.

    Raises InputError.
    """
    terms = read_terms(composer, overrides, COMMAND_LINE)
    if not any(term.key == STUDIES for term in terms):
        return {}
    chosen = first_of_groups(terms)
    defaults, hydra_section = (dict(composer.hydra_settings(texts)) for texts in ((), chosen))
    sweeper = hydra_section.pop("sweeper", {})
    is_grid = hydra_section.pop("mode", _MULTIRUN) == _MULTIRUN
    return sweeper if is_grid and hydra_section == defaults and sweeper.keys() <= set(SWEEPER) else None


def _print_status(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _run(
    execute: Execute,
    composer: Composer,
    overrides: Sequence[str],
    planned: Run,
    sweeper: Mapping[str, Any] | None,
    output: str,
) -> None:
    """Run what was planned, and print the results; raises InputError."""
    with naming_errors(composer, planned):
        execute(composer, overrides, planned, sweeper, output)
