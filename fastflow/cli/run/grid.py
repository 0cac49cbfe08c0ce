"""Points and grids of `sweep` and `search`: planned from a command line, then run."""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from hydra.types import RunMode

from fastflow.config.catalog import SWEEPS
from fastflow.config.composer import Composer
from fastflow.config.messages import COMMAND_LINE
from fastflow.core.errors import CompositionError
from fastflow.engine.dataset.folder import shown_output, url_or_folder
from fastflow.engine.grid import plan as planner
from fastflow.engine.grid.overrides import SWEEPER, first_of_groups, read_terms
from fastflow.engine.grid.run import Run

_MULTIRUN = RunMode.MULTIRUN.name


class PlannedGrid(NamedTuple):
    """A planned point or grid of a command line."""

    composer: Composer
    overrides: Sequence[str]
    run: Run
    sweeper: Mapping[str, Any] | None
    """The section `hydra.sweeper`; None for a point."""
    output: str


def check_single(composer: Composer, overrides: Sequence[str]) -> None:
    """Refuse a study without -m that does not set `hydra.mode`."""
    spans, file = composer.sweeper(first_of_groups(read_terms(composer, overrides, COMMAND_LINE)))
    if any(spans.values()):
        raise CompositionError(
            f"{file}: a study is a grid and needs -m (or `hydra.mode: MULTIRUN` in the file)"
        )


def plan_composed(
    composer: Composer, overrides: Sequence[str], sweeper: Mapping[str, Any] | None, folder: str
) -> PlannedGrid:
    """Plan what Hydra composed; raises InputError."""
    run = planner.plan(composer, overrides, sweeper or {}, _print_status)
    return PlannedGrid(composer, overrides, run, sweeper, url_or_folder(run.output, folder))


def plan_arguments(composer: Composer, arguments: Namespace) -> PlannedGrid | None:
    """Plan a command line; None where Hydra needs to compose it. Raises InputError."""
    sweeper = _study(composer, arguments.overrides) if arguments.multirun else None
    if sweeper is None and arguments.multirun:
        return None
    run = planner.plan(composer, arguments.overrides, sweeper or {}, _print_status)
    if run.grid.keys and not arguments.multirun:
        return None
    output = run.output if arguments.multirun else shown_output(run.output)
    return PlannedGrid(composer, arguments.overrides, run, sweeper, output)


def _study(composer: Composer, overrides: Sequence[str]) -> Mapping[str, Any] | None:
    """Return the section `hydra.sweeper` of a study among the overrides; None where it sets more of Hydra.

    Raises InputError.
    """
    terms = read_terms(composer, overrides, COMMAND_LINE)
    if not any(term.key == SWEEPS for term in terms):
        return {}
    chosen = first_of_groups(terms)
    defaults, hydra_section = (dict(composer.hydra_settings(texts)) for texts in ((), chosen))
    sweeper = hydra_section.pop("sweeper", {})
    is_grid = hydra_section.pop("mode", _MULTIRUN) == _MULTIRUN
    return sweeper if is_grid and hydra_section == defaults and sweeper.keys() <= set(SWEEPER) else None


def _print_status(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
