"""Results of searches, validations, calibrations, sensitivities and back-tests: tuples of named fields.

The HTML of a notebook is made when the notebook asks for it.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pandas as pd

from fastflow.analysis.backtest import study as backtest
from fastflow.analysis.sensitivity import study as sensitivity

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class Search(NamedTuple):
    """Results of `fastflow.search`.

    Objectives are in the units of docs/searches.md (`time` in s, `energy` in J), other columns in SI units;
    `fastflow.schema.SEARCH` and `fastflow.schema.RESULTS` describe them.

    - `best`: Series, the best design: the first row of `ranking`.
    - `ranking`: DataFrame, a row per candidate with its best design, the best first within a competition.
    - `history`: DataFrame, a row per scored design, in order.
    - `front`: DataFrame, a row per nondominated design; None without `pareto`.
    - `chips`: dict, the file of each best design for `chip=FILE.yaml` as a string, by its labels, "" for one.
    - `ranges`: DataFrame, a row per share of a best design: `best`, and `low` and `high` within `tolerance`
      of the best objective [share of the budget].

    `plot()` draws the convergence and the front. Errors are raised by `fastflow.search`.

    >>> found = fastflow.search(tech="n7", mem="hbm3", parallel__strategy="RC-1-16-d32", steps=5)
    >>> isinstance(found, fastflow.Search), len(found.ranking), found.front
    (True, 1, None)
    """

    best: pd.Series[Any]
    ranking: pd.DataFrame
    history: pd.DataFrame
    front: pd.DataFrame | None
    chips: dict[str, str]
    ranges: pd.DataFrame

    def _repr_html_(self) -> str:
        """Return the best design, the unchanged chip, and the first rows of the ranking."""
        from fastflow.api.notebook.result_cards import search_card

        return search_card(self.ranking, self.history, self.front)

    def plot(self) -> Figure:
        """Draw the convergence of the search, and its front if it has one; a matplotlib Figure."""
        from fastflow.analysis.search.optimizers.objective import OBJECTIVES
        from fastflow.api.notebook.result_cards import options_of
        from fastflow.reporting.charts.search import draw, labels_of
        from fastflow.reporting.charts.style import figure_style

        options = options_of(self.history)
        axes = [f"{name} [{OBJECTIVES[name]}]" for name in (options["objective"], options["pareto"]) if name]
        with figure_style():
            return draw(self.history, labels_of(list(map(str, self.history))), *axes)


class FleetSearch(NamedTuple):
    """Results of `fastflow.search` over fleets for a trace (`serve.trace`).

    Columns are in SI units; `fastflow.schema.FLEETS` and `fastflow.schema.RESULTS` describe them.

    - `best`: Series, the best fleet that meets the constraints; None where none does.
    - `ranking`: DataFrame, a row per simulated fleet: those that meet the constraints first, by objective.
    - `front`: DataFrame, the fleets that no other beats in both objectives; None without `pareto`.
    - `plan`: DataFrame, a row per period: its requests, its best fleet, and the fixed fleet; None without
      `plan`.
    - `totals`: DataFrame, device-hours, cost [USD] and energy [J] of the plan and of the fixed fleet; None
      without `plan`.
    - `points`: int, configurations that were compared; those without a row cannot be better.

    `plot()` draws the plan, or the front. Errors are raised by `fastflow.search`.

    >>> requests = pd.DataFrame({"arrival_time": range(100), "isl": 1000, "osl": 100})
    >>> requests.to_csv("requests.csv", index=False)
    >>> where = {"model": "llama3_8b", "system": "dgx_h100", "parallel.strategy": "TP-1"}
    >>> load = {"serve": "continuous", "server": "vllm", "serve.trace": "requests.csv"}
    >>> where |= {"system.devices": [1, 2, 4], "constraints": "ttft_p99_s<1 s"}
    >>> found = fastflow.search(**where, **load)
    >>> isinstance(found, fastflow.FleetSearch), int(found.best["devices"]), found.points
    (True, 1, 3)
    """

    best: pd.Series[Any] | None
    ranking: pd.DataFrame
    front: pd.DataFrame | None
    plan: pd.DataFrame | None
    totals: pd.DataFrame | None
    points: int

    def _repr_html_(self) -> str:
        """Return the best fleets or the front, and the plan."""
        from fastflow.api.notebook.result_cards import fleet_search_card

        return fleet_search_card(self.ranking, self.plan)

    def plot(self) -> Figure:
        """Draw the plan, or without a plan the front; a matplotlib Figure. Raises ValueError without both."""
        from fastflow.api.notebook.result_cards import about_fleets
        from fastflow.reporting.charts.fleet_search import draw_front, draw_plan
        from fastflow.reporting.charts.style import figure_style

        if self.plan is None and self.front is None:
            raise ValueError("there is no figure without pareto and without a plan")
        with figure_style():
            if self.plan is not None:
                return draw_plan(self.plan, about_fleets(self.plan))
            return draw_front(self.ranking, about_fleets(self.ranking))


class Validation(NamedTuple):
    """Results of `fastflow.validate`: predictions and measurements.

    - `rows`: DataFrame, a row per measurement, in the order of the file: its columns, `measured_s` and
      `predicted_s` [s], `error` (relative), the limiter, and a `reason` where nothing is predicted. A file
      with power or energy adds `measured_W`, `predicted_W`, `error_W` and `measured_J` and so on.
    - `errors`: DataFrame, a row for all measurements and a row per group (`by`, `value`): `rows`,
      `mean_error`, `median_error` and further relative errors, as shares; with power or energy a `quantity`.

    `attrs["units"]` of a frame names the units of its columns; `fastflow.schema.VALIDATION` describes them.
    `plot()` draws predicted over measured times. Errors are raised by `fastflow.validate`.

    >>> sizes = {"m": [1024, 4096], "k": 4096, "n": 4096, "time_s": [0.00015, 0.0006]}
    >>> pd.DataFrame(sizes).to_csv("measured.csv", index=False)
    >>> found = fastflow.validate(measurements="measured.csv", chip="a100")
    >>> isinstance(found, fastflow.Validation), found.rows["measured_s"].tolist()
    (True, [0.00015, 0.0006])
    """

    rows: pd.DataFrame
    errors: pd.DataFrame

    def _repr_html_(self) -> str:
        """Return the mean and median error, the errors by group, and the worst rows."""
        from fastflow.api.notebook.result_cards import validation_card

        return validation_card(self.rows, self.errors)

    def plot(self) -> Figure:
        """Draw predicted over measured times; a matplotlib Figure."""
        from fastflow.api.notebook.result_cards import validation_title
        from fastflow.reporting.charts.style import figure_style
        from fastflow.reporting.charts.validation import draw

        with figure_style():
            return draw(self.rows, validation_title(self.rows))


class Calibration(NamedTuple):
    """Results of `fastflow.calibrate`: a chip that is fitted to measurements.

    - `scalars`: DataFrame, a row per scalar: `scalar`, `before`, `after` and `standard_error` in its `unit`,
      and `state`.
    - `errors`: DataFrame, a row for the fitted and a row for the held-out measurements: mean relative errors
      `before` and `after`, as shares.
    - `text`: str, the chip file, which `chip=FILE.yaml` accepts.
    - `path`: Path of the written chip file; None if `output` was not given.

    `plot()` draws the changes of scalars, and the errors. Errors are raised by `fastflow.calibrate`.

    >>> gemms = pd.DataFrame({"m": [512, 1024, 2048, 4096, 8192, 16384], "k": 4096, "n": 4096})
    >>> gemms["time_s"] = 1.1 * fastflow.predict_gemm(gemms["m"], 4096, 4096, chip="a100")
    >>> gemms.to_csv("gemms.csv", index=False)
    >>> fitted = fastflow.calibrate(measurements="gemms.csv", chip="a100", fit="utilization")
    >>> isinstance(fitted, fastflow.Calibration), fitted.scalars["scalar"].tolist(), fitted.path
    (True, ['utilization'], None)
    """

    scalars: pd.DataFrame
    errors: pd.DataFrame
    text: str
    path: Path | None

    def _repr_html_(self) -> str:
        """Return the errors on held-out rows, and the scalars before and after."""
        from fastflow.api.notebook.result_cards import calibration_card

        return calibration_card(self.scalars, self.errors, self.path)

    def plot(self) -> Figure:
        """Draw the changes of scalars, and the errors before and after; a matplotlib Figure."""
        from fastflow.reporting.charts.calibration import draw
        from fastflow.reporting.charts.style import figure_style

        with figure_style():
            return draw(self.scalars, self.errors)


class ServerCalibration(NamedTuple):
    """Results of `fastflow.calibrate` with `requests`: a server whose host is fitted to benchmarks.

    - `runs`: DataFrame, a row per run of a benchmark: `run`, `tool`, `requests`, `failed`, how they arrive
      (`arrivals`), and mean, p50 and p99 of lengths [tokens] and of measured times [s].
    - `times`: DataFrame, a row per statistic of a time of each run: `measured_s`, `before_s` and `after_s`.
    - `figures`: DataFrame, a row per figure of the host: `before`, `after` and `standard_error` [s], `state`.
    - `errors`: DataFrame, a row per statistic of a time: mean relative errors over all runs, `before` and
      `after`, as shares.
    - `text`: str, the server's file, which `server=FILE.yaml` accepts.
    - `path`: Path of the written file; None if `output` was not given.

    Errors are raised by `fastflow.calibrate`.

    >>> run = {"tokenizer_id": "llama", "request_rate": "inf", "max_concurrency": 1}
    >>> run |= {"input_lens": [512] * 8, "output_lens": [64] * 8}
    >>> run |= {"ttfts": [0.07] * 8, "itls": [[0.01] * 63] * 8}
    >>> pd.Series(run).to_json("run.json")
    >>> where = {"model": "llama3_8b", "chip": "h100_sxm", "system.devices": 1, "fit": "step_overhead"}
    >>> fitted = fastflow.calibrate(server="vllm", requests="run.json", **where)
    >>> isinstance(fitted, fastflow.ServerCalibration), fitted.figures["figure"].tolist(), fitted.path
    (True, ['step_overhead'], None)
    """

    runs: pd.DataFrame
    times: pd.DataFrame
    figures: pd.DataFrame
    errors: pd.DataFrame
    text: str
    path: Path | None

    def _repr_html_(self) -> str:
        """Return the errors, what was read, times before and after, and figures."""
        from fastflow.api.notebook.result_cards import server_calibration_card

        return server_calibration_card(self.runs, self.figures, self.times, self.errors, self.path)


class Sensitivity(sensitivity.Sensitivity):
    """Results of `fastflow.sensitivity`: which parameters a result depends on.

    - `parameters`: DataFrame, a row per parameter, sorted by the larger of its one-sided elasticities:
      `parameter`, `parameter_value` in its `unit`, `elasticity`, and why less and more of it differ.
    - `objective`: str, the name of the result column; `value`: float, its value at the point [SI units].
    - `points`: int, points for Sobol's indices, 0 for none; `failed`: int, those without a result.
    - `assumptions`, `validation_class`: str, the result columns of these names at the point.

    `fastflow.schema.SENSITIVITY` describes the columns. `plot()` draws the effect of less and more of each
    parameter. Errors are raised by `fastflow.sensitivity`.

    >>> found = fastflow.sensitivity(tech="n7", mem="hbm3")
    >>> isinstance(found, fastflow.Sensitivity), found.objective, round(found.value, 2)
    (True, 'time_s', 1.42)
    """

    __slots__ = ()

    def _repr_html_(self) -> str:
        """Return the parameters with the largest effect, and the number of the others."""
        from fastflow.api.notebook.result_cards import sensitivity_card

        return sensitivity_card(self)

    def plot(self) -> Figure:
        """Draw the effect of less or more of each parameter; a matplotlib Figure."""
        from fastflow.reporting.charts.sensitivity import draw
        from fastflow.reporting.charts.style import figure_style

        with figure_style():
            return draw(self.parameters, self.objective, self.value)


class Backtest(backtest.Backtest):
    """Results of `fastflow.backtest`: chips that exist, and chips generated from their budgets.

    - `chips`: DataFrame, a row per quantity of each chip and scaling: `real` and `generated` [SI units], and
      their relative `difference`.
    - `gains`: DataFrame, a row per workload and generation: gains in time, real, generated, and extrapolated
      from the known chips alone.
    - `files`: DataFrame, a row per file of measurements and device: relative errors with real and with
      generated chips; no rows without `backtest.measurements`.
    - `measured`: DataFrame, a row per pair of files with rows in common: measured and predicted gains.

    `fastflow.schema.BACKTEST` describes the columns. `plot()` draws the gain of each generation. Errors are
    raised by `fastflow.backtest`.

    >>> found = fastflow.backtest()
    >>> isinstance(found, fastflow.Backtest), found.chips["chip"].nunique(), len(found.files)
    (True, 19, 0)
    """

    __slots__ = ()

    def _repr_html_(self) -> str:
        """Return the summary, then the differences of every chip, gains and errors."""
        from fastflow.api.notebook.result_cards import backtest_card

        return backtest_card(self)

    def plot(self) -> Figure:
        """Draw the gain of each generation, real and predicted; a matplotlib Figure."""
        from fastflow.api.notebook.result_cards import known_chips
        from fastflow.reporting.charts.backtest import draw
        from fastflow.reporting.charts.style import figure_style

        with figure_style():
            return draw(self.gains, known_chips(self))
