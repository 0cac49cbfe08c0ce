"""The code behind the functions of `import fastflow`: compose, run, and return a result for a notebook.

Each function has the arguments of the public function of its name, which documents them.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from fastflow.config.composer import Composer
from fastflow.config.keyword_overrides import as_overrides
from fastflow.config.library import hydra_rules
from fastflow.config.messages import pluralize, sets
from fastflow.engine.grid import limits
from fastflow.engine.grid.plan import plan
from fastflow.engine.grid.run import Run, naming_errors, refuse_others
from fastflow.engine.run.progress import SILENT, Listener

if TYPE_CHECKING:
    import pandas as pd

    from fastflow.api.notebook.results import (
        Backtest,
        Calibration,
        FleetSearch,
        Search,
        Sensitivity,
        ServerCalibration,
        Validation,
    )

Folder = str | os.PathLike[str] | None
_FRAME_LIMIT = "points in memory; fastflow.sweep(..., output=DIR) stores any number"


class _Call(NamedTuple):
    """A call of a function."""

    composer: Composer
    overrides: tuple[str, ...]
    output: Folder
    listener: Listener

    def folder(self, configured: str | None) -> str | None:
        """Return the output folder: the argument, or else the override; None without both."""
        if self.output is not None:
            return str(self.output)
        return configured if sets(self.overrides, "output") else None


def ipython_shell() -> Any:
    """Return the running IPython shell, None outside of IPython."""
    ipython = sys.modules.get("IPython")
    return None if ipython is None else ipython.get_ipython()


@contextmanager
def _notebook_listener() -> Iterator[Listener]:
    """Yield the listener of a call's progress: a bar in a notebook, a silent listener elsewhere."""
    if not hasattr(ipython_shell(), "kernel"):
        yield SILENT
        return
    from fastflow.performance import precompile
    from fastflow.reporting.terminal.progress import Compiling, InNotebook

    precompile.on_compile(Compiling())
    with InNotebook() as progress:
        yield progress


@contextmanager
def _open_call(
    overrides: Sequence[str], choices: Mapping[str, Any], config_dir: Folder, output: Folder = None,
    config_name: str = "config",
) -> Iterator[_Call]:  # fmt: skip
    """Yield a call with checked arguments, keywords as overrides, and a composer; raises InputError."""
    texts = as_overrides(overrides, choices, output, config_dir)
    with _notebook_listener() as listener, hydra_rules():
        yield _Call(Composer.of_library(config_dir, config_name=config_name), texts, output, listener)


def evaluate(*overrides: str, config_dir: Folder = None, **choices: Any) -> pd.DataFrame:
    """Predict the points that overrides span; see `fastflow.evaluate`."""
    from fastflow.api.notebook.frames import Points
    from fastflow.engine.dataset.schema import frame_of
    from fastflow.engine.run.execute import collect

    with _open_call(overrides, choices, config_dir) as call:
        run = plan(call.composer, call.overrides)
        refuse_others(run)
        limits.check("points", f"{run.grid.points:,}", run.grid.points, limits.MAX_COLLECTED, _FRAME_LIMIT)
        with naming_errors(call.composer, run):
            return Points.of(frame_of(*collect(run, call.listener)))


def rank_strategies(*overrides: str, config_dir: Folder = None, **choices: Any) -> pd.DataFrame:
    """Predict a point under every strategy; see `fastflow.rank_strategies`."""
    from fastflow.api.notebook.frames import Points
    from fastflow.engine.dataset.schema import schema_of, to_arrow, to_frame
    from fastflow.engine.run.ranking import ranking_of

    with _open_call(overrides, choices, config_dir) as call:
        run = plan(call.composer, call.overrides)
        refuse_others(run)
        with naming_errors(call.composer, run):
            ranking = ranking_of(run)
            return Points.of(to_frame([to_arrow(ranking.table, schema_of(ranking.run.grid))]))


def fits(*overrides: str, config_dir: Folder = None, **choices: Any) -> pd.DataFrame:
    """Return on how few devices a point fits, in every way; see `fastflow.fits`."""
    from fastflow.analysis.fits import study

    with _open_call(overrides, choices, config_dir, config_name=study.CONFIG) as call:
        return study.fits(call.composer, call.overrides, call.listener).rows


def probability_better(
    *overrides: str, objective: str = "time_s", config_dir: Folder = None, **choices: Any
) -> pd.DataFrame:
    """Return the chance that each point is better than each other; see `fastflow.probability_better`."""
    from fastflow.analysis.pairwise import chances_of
    from fastflow.api.notebook.frames import Chances

    with _open_call(overrides, choices, config_dir) as call:
        return Chances.of(chances_of(call.composer, call.overrides, objective))


def sweep(*overrides: str, output: Folder = None, config_dir: Folder = None, **choices: Any) -> Path | str:
    """Predict the points that overrides span into a dataset; see `fastflow.sweep`."""
    from fastflow.engine.dataset.folder import is_url
    from fastflow.engine.run.execute import store

    with _open_call(overrides, choices, config_dir, output) as call:
        run = plan(call.composer, call.overrides)
        refuse_others(run)
        target = run.output if output is None else output
        begin = partial(call.listener.start, run.grid.describe(), run.grid.points, "points")
        with naming_errors(call.composer, run):
            store(run, target, begin, call.listener.advance)
    return str(target) if is_url(target) else Path(target)


def search(
    *overrides: str, output: Folder = None, config_dir: Folder = None, **choices: Any
) -> Search | FleetSearch:
    """Search the best designs or fleets; see `fastflow.search`."""
    from fastflow.analysis.search.fleets.options import is_of_fleets
    from fastflow.analysis.search.results import chips, front, ranking
    from fastflow.analysis.search.run import search_designs
    from fastflow.analysis.search.study import prepare_search, ranges_frame, write_results
    from fastflow.api.notebook.results import Search
    from fastflow.engine.dataset.schema import to_frame

    with _open_call(overrides, choices, config_dir, output, "search") as call:
        run = plan(call.composer, call.overrides)
        with call.composer.naming_origins(run.first):
            of_fleets = is_of_fleets(run)
        if of_fleets:
            return _search_fleets(call, run)
        where = call.folder(run.output)
        with naming_errors(call.composer, run):
            options = prepare_search(call.composer, run, where)

            def begin(candidates: int, steps: int, there: int) -> None:
                call.listener.start(f"{pluralize(candidates, 'candidate')} of a search", steps, "steps")

            answer = search_designs(run, options, where, begin, call.listener.advance)
            best = chips(answer, call.composer, call.overrides, None)
            table, edge = ranking(answer), front(answer) if options.pareto else None
            if where is not None:
                write_results(where, table, edge, best)
    frame = to_frame([table])
    return Search(
        best=frame.iloc[0],
        ranking=frame,
        history=to_frame([answer.history.table()]),
        front=None if edge is None else to_frame([edge]),
        chips={chip.name: chip.text for chip in best},
        ranges=ranges_frame(answer.ranges, frame),
    )


def _search_fleets(call: _Call, run: Run) -> FleetSearch:
    """Search over the fleets of a run."""
    from fastflow.analysis.search.fleets.options import read_fleet_options
    from fastflow.analysis.search.fleets.study import check_output, search_fleets, write_tables
    from fastflow.api.notebook.results import FleetSearch
    from fastflow.engine.dataset.schema import to_frame
    from fastflow.reporting.terminal.fleet_search import totals_of

    refuse_others(run, "search")
    with naming_errors(call.composer, run):
        options = read_fleet_options(run)
    where = call.folder(run.output)
    if where is not None:
        check_output(where, options)
    with naming_errors(call.composer, run):
        tables = search_fleets(run, options, call.listener)
    if where is not None:
        write_tables(where, tables)
    ranking = to_frame([tables.ranking])
    meets = ranking[ranking["meets_constraints"]]
    planned = None if tables.plan is None else to_frame([tables.plan])
    return FleetSearch(
        best=meets.iloc[0] if len(meets) else None,
        ranking=ranking,
        front=meets[meets["on_front"]] if options.has_front else None,
        plan=planned,
        totals=None if planned is None else totals_of(planned),
        points=run.grid.points,
    )


def validate(*overrides: str, output: Folder = None, config_dir: Folder = None, **choices: Any) -> Validation:
    """Predict the rows of a file of measurements; see `fastflow.validate`."""
    from fastflow.analysis.measurements.plan import plan_file
    from fastflow.analysis.validation.tables import check_validation_output, predicted_tables, write_tables
    from fastflow.api.notebook.results import Validation
    from fastflow.engine.dataset.schema import to_frame

    with _open_call(overrides, choices, config_dir, output, "validate") as call:
        planned = plan_file(call.composer, call.overrides)
        where = call.folder(planned.run.output)
        if where is not None:
            check_validation_output(where)
        measurements = planned.measurements
        call.listener.start(f"rows of {measurements.file.path}", measurements.rows, "rows")
        with naming_errors(call.composer, planned.run):
            tables = predicted_tables(planned, call.listener.advance)
        if where is not None:
            write_tables(where, tables)
    return Validation(to_frame([tables.rows]), to_frame([tables.errors]))


def calibrate(
    *overrides: str, output: Folder = None, config_dir: Folder = None, **choices: Any
) -> Calibration | ServerCalibration:
    """Fit a chip to measurements, or a server to benchmarks; see `fastflow.calibrate`."""
    from fastflow.analysis.calibration.fitted_chip import error_frame, scalar_frame
    from fastflow.analysis.calibration.servers.task import is_of_server
    from fastflow.analysis.calibration.study import fit_and_write
    from fastflow.analysis.calibration.task import LISTS, plan_calibration
    from fastflow.api.notebook.results import Calibration
    from fastflow.config.list_keys import as_lists

    with _open_call(overrides, choices, config_dir, output, "calibrate") as call:
        folder = None if output is None else str(output)
        texts = as_lists(call.overrides, LISTS)
        if is_of_server(call.composer, texts):
            return _calibrate_server(call, texts, folder)
        task, where = plan_calibration(call.composer, texts, folder)
        fitted, text = fit_and_write(call.composer, task, where, call.listener)
    path = None if where is None else Path(where)
    return Calibration(scalars=scalar_frame(fitted), errors=error_frame(fitted), text=text, path=path)


def _calibrate_server(call: _Call, overrides: Sequence[str], output: str | None) -> ServerCalibration:
    """Fit the host of a server to benchmarks; output: the file of the server."""
    from fastflow.analysis.calibration.servers import fitted_server
    from fastflow.analysis.calibration.servers.study import calibrate_server
    from fastflow.api.notebook.results import ServerCalibration

    result = calibrate_server(call.composer, overrides, output, False, call.listener)
    fitted = result.fitted
    return ServerCalibration(
        runs=fitted_server.run_frame(fitted),
        times=fitted_server.time_frame(fitted),
        figures=fitted_server.figure_frame(fitted),
        errors=fitted_server.error_frame(fitted),
        text=result.text,
        path=None if result.path is None else Path(result.path),
    )


def sensitivity(
    *overrides: str, output: Folder = None, config_dir: Folder = None, **choices: Any
) -> Sensitivity:
    """Return the sensitivity of a result to parameters; see `fastflow.sensitivity`."""
    from fastflow.analysis.sensitivity.study import CONFIG, analyse, read_options
    from fastflow.api.notebook.results import Sensitivity
    from fastflow.engine.dataset.kinds import SENSITIVITY
    from fastflow.engine.dataset.store import check_table, write_table

    with _open_call(overrides, choices, config_dir, output, CONFIG) as call:
        options = read_options(call.composer, call.overrides)
        where = call.folder(options.output)
        if where is not None:
            check_table(where, SENSITIVITY)
        with naming_errors(call.composer, options.run):
            table, answer = analyse(options, call.listener)
        if where is not None:
            write_table(where, table)
    return Sensitivity(*answer)


def backtest(*overrides: str, output: Folder = None, config_dir: Folder = None, **choices: Any) -> Backtest:
    """Try the generator on chips that exist; see `fastflow.backtest`."""
    from fastflow.analysis.backtest.measured_kernels import files_in
    from fastflow.analysis.backtest.study import CONFIG, check, read_options, run_backtest, write
    from fastflow.api.notebook.results import Backtest

    with _open_call(overrides, choices, config_dir, output, CONFIG) as call:
        options, devices = read_options(call.composer, call.overrides)
        where = call.folder(options.output)
        if where is not None:
            check(where)
        files = [] if options.measurements is None else files_in(options.measurements)
        call.listener.start(f"{len(options.chips)} chips", 2 + len(files), "tables")
        answer = run_backtest(call.composer, options, devices, lambda step: call.listener.advance(1))
        if where is not None:
            write(where, answer, options)
    return Backtest(*answer)
