"""A search over fleets: configurations are simulated in the order of bounds until no other can be better."""

from __future__ import annotations

from typing import NamedTuple

import pyarrow as pa

from fastflow.analysis.search.fleets.options import FleetOptions
from fastflow.analysis.search.fleets.plan import make_plan
from fastflow.analysis.search.fleets.simulated import Problem, Simulated, Workers
from fastflow.analysis.search.fleets.tables import plan_table, ranking_table
from fastflow.config.messages import pluralize
from fastflow.engine.dataset.folder import PLAN
from fastflow.engine.dataset.kinds import FLEETS
from fastflow.engine.dataset.kinds import PLAN as KIND_OF_PLAN
from fastflow.engine.dataset.store import check_table, write_table
from fastflow.engine.grid.run import Run
from fastflow.engine.run.progress import SILENT, Listener
from fastflow.engine.run.workers import CancellationToken, ThreadPool, interruptible
from fastflow.performance.precompile import compile_ahead


class FleetTables(NamedTuple):
    """Results of a search over fleets."""

    ranking: pa.Table
    """A row for each simulated configuration, as `ranking_table` orders them."""
    plan: pa.Table | None
    """A row for each period; None without a plan."""


def search_fleets(run: Run, options: FleetOptions, listener: Listener = SILENT) -> FleetTables:
    """Search over the fleets of a grid; raises InputError.

    listener: gets the number of configurations, of those that are simulated or excluded, and then the same
    of the plan's periods.
    """
    grid = run.grid._replace(unset={})  # keys without an effect are not looked for
    compile_ahead(grid.first_inputs())
    token, plan = CancellationToken(), None
    with interruptible(token), ThreadPool(run.settings) as pool:
        workers, problem = Workers(pool, token), Problem(grid, options.measures, options.constraints)
        listener.start(pluralize(grid.points, "configuration"), grid.points, "configurations")
        simulated = Simulated(problem, workers, {})
        simulated.search(listener.advance)
        ranking = ranking_table(simulated, options)
        if options.period_s:
            plan = make_plan(
                problem,
                workers,
                options.period_s,
                lambda periods: listener.start("a plan: the fixed fleet, then its periods", periods, "steps"),
                listener.advance,
            )
            plan = plan_table(plan, grid, options)
    return FleetTables(ranking, plan)


def check_output(output: str, options: FleetOptions) -> None:
    """Refuse an output that holds anything but results of such a search; raises InputError."""
    check_table(output, FLEETS)
    if options.period_s:
        check_table(output + PLAN, KIND_OF_PLAN)


def write_tables(output: str, tables: FleetTables) -> None:
    """Write the tables as datasets."""
    write_table(output, tables.ranking)
    if tables.plan is not None:
        write_table(output + PLAN, tables.plan)
