"""`python -m fastflow.search` over fleets: with progress; its results go to the screen and to files."""

from __future__ import annotations

import json
import shlex
import sys
from typing import Any

import pyarrow as pa

from fastflow.analysis.search.fleets.options import read_fleet_options
from fastflow.analysis.search.fleets.study import check_output, search_fleets, write_tables
from fastflow.analysis.search.fleets.tables import ABOUT
from fastflow.cli.run.grid import PlannedGrid
from fastflow.config.messages import key_of
from fastflow.config.model_inputs import NOT_OF_THE_MODEL
from fastflow.engine.dataset.folder import PLAN
from fastflow.engine.dataset.schema import to_frame
from fastflow.engine.grid.plan import overrides_of
from fastflow.engine.grid.run import naming_errors, refuse_others


def search(planned: PlannedGrid) -> None:
    """Search over the fleets of a grid; raises InputError."""
    from fastflow.cli.run.report import save_figure
    from fastflow.reporting.charts.fleet_search import draw_front, draw_plan
    from fastflow.reporting.terminal import fleet_search as shown
    from fastflow.reporting.terminal.grid import cost_note, grid_assumptions
    from fastflow.reporting.terminal.progress import Progress
    from fastflow.reporting.terminal.tables import print_parts

    refuse_others(planned.run, "search")
    with naming_errors(planned.composer, planned.run):
        options = read_fleet_options(planned.run)
    check_output(planned.output, options)
    with naming_errors(planned.composer, planned.run), Progress() as progress:
        tables = search_fleets(planned.run, options, progress)
    write_tables(planned.output, tables)
    ranking, about = to_frame([tables.ranking]), about_of(tables.ranking)
    plan = None if tables.plan is None else to_frame([tables.plan])
    of_plan = {} if tables.plan is None else about_of(tables.plan)
    shown.show(ranking, about, plan, of_plan)
    print_parts([cost_note(planned.run.grid), *grid_assumptions(planned.run.grid)])
    if options.has_front:
        save_figure(planned.output, "front", lambda: draw_front(ranking, about))
    if plan is not None:
        save_figure(planned.output, "plan", lambda: draw_plan(plan, of_plan))
    if len(ranking) and ranking["meets_constraints"].iloc[0]:
        print(_command(planned, int(ranking["point"].iloc[0])))
    if plan is not None:
        print(f"Plan: {planned.output}{PLAN}")
    print(f"Dataset: {planned.output}")
    sys.stdout.flush()


def about_of(table: pa.Table) -> dict[str, Any]:
    """Return what a table says of its search."""
    about: dict[str, Any] = json.loads(table.schema.metadata[ABOUT.encode()])
    return about


def _command(planned: PlannedGrid, point: int) -> str:
    """Return the command that predicts a point of the grid."""
    texts = overrides_of(planned.composer, planned.overrides, planned.sweeper, point) or ()
    kept = [text for text in texts if key_of(text) not in NOT_OF_THE_MODEL]
    switches = ("--config-dir", planned.composer.config_dir) if planned.composer.config_dir else ()
    return f"python -m fastflow.sweep {shlex.join((*switches, *kept))}"
