"""Answers of searches, validations, calibrations, sensitivities and back-tests in a notebook.

Each is the tuple that its function returns, with `_repr_html_` for the essential and `plot` for the figure.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pandas as pd
import pyarrow as pa
from rich.markup import escape
from rich.text import Text

from fastflow.analysis.backtest import study as backtest
from fastflow.analysis.search.optimizers.objective import OBJECTIVES
from fastflow.analysis.search.ranges import KEY, read_ranges
from fastflow.analysis.sensitivity import study as sensitivity
from fastflow.api.notebook.cards import row_of
from fastflow.api.notebook.markup import card
from fastflow.config.messages import pluralize
from fastflow.engine.dataset.schema import field_of
from fastflow.reporting.terminal.tables import Part, quantity, records

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_TOP, _PARAMETERS, _WORST = 5, 10, 5


class Search(NamedTuple):
    """Results of a search; frames hold units in `attrs`, as those of `fastflow.evaluate`."""

    best: pd.Series[Any]
    """The best design of all: the first row of the ranking."""
    ranking: pd.DataFrame
    """The best design of every candidate, the best first within a competition."""
    history: pd.DataFrame
    """Every design that was scored, in order."""
    front: pd.DataFrame | None
    """With `pareto`: the nondominated designs."""
    chips: dict[str, str]
    """The best designs as texts of files for `chip=FILE`, by their labels, or ""."""
    ranges: pd.DataFrame
    """Range of each share of the best designs within `tolerance` of the best objective."""

    def _repr_html_(self) -> str:
        """Return the best design, the unchanged chip, and the first rows of the ranking."""
        from fastflow.reporting.charts.search import labels_of
        from fastflow.reporting.terminal.equivalents import equivalent_candidates
        from fastflow.reporting.terminal.ranges import range_parts
        from fastflow.reporting.terminal.ranking import front_sheet, sheet_of
        from fastflow.reporting.terminal.search import best_parts, title

        options, within = self._options, read_ranges(self.ranking.attrs.get(KEY, ""))
        best, baseline = (_without_nan(row_of(frame, index)) for frame, index in self._best_and_baseline)
        objectives, schema = (options["objective"], options["pareto"]), self._schema
        headline = title(best, int(self.ranking["designs"].sum()), options["method"])
        parts: list[Part] = [headline]
        if best["objective"] is not None:
            parts += best_parts(baseline, best, objectives, self._shares)
            parts += range_parts(best, within)
        if len(self.ranking) > 1:
            count_note = f", the first {_TOP}" if len(self.ranking) > _TOP else ""
            heading = f"Ranking of {pluralize(len(self.ranking), 'candidate')}{count_note}"
            parts.append(sheet_of(heading, self.ranking, self.ranking.head(_TOP), schema))
            if best["objective"] is not None and (self.ranking["rank"] == 1).sum() == 1:
                labels = labels_of(list(map(str, self.ranking)))
                parts += equivalent_candidates(records(self.ranking), labels, within.tolerance, "candidate")
        folded = [] if self.front is None else [("Front", [front_sheet(self.front, schema)])]
        return card(self._headline(best), parts, folded)

    def _headline(self, best: Mapping[str, Any]) -> str:
        """Return the objective of the best design, and its gain over the unchanged chip."""
        if best["objective"] is None:
            return f"[bold red]No design has a time[/]: {escape(str(best['reason']))}"
        gain = best["gain"]
        gain_note = f", {gain:.2f}x better than the unchanged chip" if gain is not None else ""
        note = "" if best["feasible"] else ", [bold red]not feasible[/]"
        value = _with_unit(best["objective"], OBJECTIVES[self._options["objective"]])
        return f"Best {self._options['objective']} [bold]{value}[/]{gain_note}{note}"

    @property
    def _options(self) -> dict[str, Any]:
        """The options of the search: `method`, `objective`, `pareto` and so on."""
        options = dict(text.split("=") for text in self.history.attrs["fastflow.search"].split(" "))
        return options | {"pareto": None if options["pareto"] == "null" else options["pareto"]}

    @property
    def _best_and_baseline(self) -> tuple[tuple[pd.DataFrame, int], tuple[pd.DataFrame, int]]:
        """Frame and row of the best design and of its unchanged chip, at the start of the history."""
        return (self.ranking, 0), (self.history, int(self.best["candidate"]))

    @property
    def _shares(self) -> list[str]:
        """The keys of the shares that were searched."""
        from fastflow.reporting.charts.search import columns_of

        return [name for name in columns_of(list(map(str, self.history))) if name.startswith("chip.")]

    @property
    def _schema(self) -> pa.Schema:
        """The schema of the objectives, with their names and units."""
        objectives = zip(
            ("objective", "second_objective"),
            (self._options["objective"], self._options["pareto"]),
            strict=True,
        )
        return pa.schema(
            field_of(column, "float").with_metadata({"meaning": name, "unit": OBJECTIVES[name]})
            for column, name in objectives
            if name is not None
        )

    def plot(self) -> Figure:
        """Draw the convergence of the search, and its front if it has one; a matplotlib Figure."""
        from fastflow.reporting.charts.search import draw, labels_of
        from fastflow.reporting.charts.style import figure_style

        axes = [
            f"{name} [{OBJECTIVES[name]}]"
            for name in (self._options["objective"], self._options["pareto"])
            if name
        ]
        with figure_style():
            return draw(self.history, labels_of(list(map(str, self.history))), *axes)


class Validation(NamedTuple):
    """Predictions and measurements; frames hold units in `attrs`, as those of `fastflow.evaluate`."""

    rows: pd.DataFrame
    """Every measurement with its prediction, in the order of the file."""
    errors: pd.DataFrame
    """Errors of all rows, by size, by limiter and by the file's own categories."""

    def _repr_html_(self) -> str:
        """Return the mean and median error, the errors by group, and the worst rows."""
        from fastflow.analysis.validation.error_metrics import ALL
        from fastflow.reporting.terminal.validation import error_sheet, explanation_title, worst_rows

        total = self.errors[self.errors["by"] == ALL].iloc[0]
        line = f"Mean relative error [bold]{total['mean_error']:.1%}[/], median {total['median_error']:.1%}"
        parts: list[Part] = [
            f"{pluralize(len(self.rows), 'row')} {escape(self._title)}",
            error_sheet(self.errors),
        ]
        failed = self.rows[self.rows["predicted_s"].isna()]
        if len(failed):
            first = f"line {failed['line'].iloc[0]}: {failed['reason'].iloc[0]}"
            parts.insert(1, Text(f"{pluralize(len(failed), 'row')} cannot be predicted; {first}"))
        lines = [Text(line) for lines in worst_rows(self.rows, self._naming, _WORST) for line in lines]
        return card(line, parts, [(f"Worst rows: {explanation_title(self.rows)}", lines)])

    @property
    def _title(self) -> str:
        from fastflow.reporting.terminal.validation import title_of

        return title_of(
            *(self.rows.attrs[f"fastflow.{name}"] for name in ("measurements", "measured", "where"))
        )

    @property
    def _naming(self) -> list[str]:
        """The columns that name a row: those of its kind, or those of the file."""
        from fastflow.analysis.measurements.read import naming_columns

        names = list(map(str, self.rows))
        file_columns = names[1 : names.index("measured_s")]
        return list(naming_columns(self.rows.attrs["fastflow.measured"], file_columns))

    def plot(self) -> Figure:
        """Draw predicted over measured times; a matplotlib Figure."""
        from fastflow.reporting.charts.style import figure_style
        from fastflow.reporting.charts.validation import draw

        with figure_style():
            return draw(self.rows, self._title)


class Calibration(NamedTuple):
    """Results of a calibration of a chip to measurements."""

    scalars: pd.DataFrame
    """A row a scalar: `scalar`, `before`, `after`, `standard_error`, their `unit`, and `state`."""
    errors: pd.DataFrame
    """Mean relative errors: a row for the fitted rows and one for the held-out rows."""
    text: str
    """The chip file, which `chip=FILE.yaml` accepts."""
    path: Path | None
    """Path of the written chip file, None if it was not written."""

    def _repr_html_(self) -> str:
        """Return the errors on held-out rows, and the scalars before and after."""
        from fastflow.reporting.terminal.calibration import parts, summary

        where = [] if self.path is None else [Text(f"Chip: {self.path}")]
        return card(f"[bold]{summary(self.errors)}[/]", [*parts(self.scalars, self.errors), *where])

    def plot(self) -> Figure:
        """Draw the changes of scalars, and the errors before and after; a matplotlib Figure."""
        from fastflow.reporting.charts.calibration import draw
        from fastflow.reporting.charts.style import figure_style

        with figure_style():
            return draw(self.scalars, self.errors)


class Sensitivity(sensitivity.Sensitivity):
    """The sensitivity of a result; see `fastflow.sensitivity`."""

    __slots__ = ()

    def _repr_html_(self) -> str:
        """Return the parameters with the largest effect, and the number of the others."""
        from fastflow.reporting.terminal.sensitivity import parts

        return card(self._headline, islice(parts(self, _PARAMETERS), 1, None))

    @property
    def _headline(self) -> str:
        value, first = quantity(self.objective, self.value), self.parameters.iloc[0]
        note = (
            f"; it depends most on [bold]{escape(str(first['parameter']))}[/]"
            if not first["insensitive"]
            else ""
        )
        return f"{self.objective} is [bold]{value}[/]{note}"

    def plot(self) -> Figure:
        """Draw the effect of less or more of each parameter; a matplotlib Figure."""
        from fastflow.reporting.charts.sensitivity import draw
        from fastflow.reporting.charts.style import figure_style

        with figure_style():
            return draw(self.parameters, self.objective, self.value)


class Backtest(backtest.Backtest):
    """The results of a back-test; see `fastflow.backtest`."""

    __slots__ = ()

    def _repr_html_(self) -> str:
        """Return the summary, then the differences of every chip, gains and errors."""
        from fastflow.reporting.terminal.backtest import parts, summary_lines

        first, *others = summary_lines(self, self._generations)
        sheet, *further_sheets = parts(self, self._generations, self._known_chips)
        sections = [("The other scaling, values, gains, and errors on measurements", further_sheets)]
        return card(f"[bold]{escape(first)}[/]", [*map(Text, others), sheet], sections)

    @property
    def _generations(self) -> list[str]:
        """The chips whose generations have gains."""
        return list(dict.fromkeys([*self.gains["before"], *self.gains["after"]]))

    @property
    def _known_chips(self) -> list[str]:
        """The chips that foresight extrapolates from."""
        return [str(name) for name in self.gains.attrs["known"]]

    def plot(self) -> Figure:
        """Draw the gain of each generation, real and predicted; a matplotlib Figure."""
        from fastflow.reporting.charts.backtest import draw
        from fastflow.reporting.charts.style import figure_style

        with figure_style():
            return draw(self.gains, self._known_chips)


def _without_nan(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row with None for NaN, as the tables of the screen have it."""
    return {name: None if value != value else value for name, value in row.items()}


def _with_unit(value: float, unit: str) -> str:
    from fastflow.core import units

    return units.show(value, unit)
