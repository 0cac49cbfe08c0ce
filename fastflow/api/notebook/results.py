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
from fastflow.config.messages import counted
from fastflow.engine.dataset.schema import field_of
from fastflow.reporting.terminal.tables import Part, quantity, records

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_TOP, _FIGURES, _WORST = 5, 10, 5


class Search(NamedTuple):
    """What a search has found; frames hold units in `attrs`, as those of `fastflow.evaluate`."""

    best: pd.Series[Any]
    """The best design of all: the first row of the ranking."""
    ranking: pd.DataFrame
    """The best design of every candidate, those that compete together, the best first."""
    history: pd.DataFrame
    """Every design that was scored, in order."""
    front: pd.DataFrame | None
    """With `pareto`: the designs that no other beats in both objectives."""
    chips: dict[str, str]
    """The best designs as texts of files that `chip=FILE` accepts, by what tells them apart, or ""."""
    ranges: pd.DataFrame
    """What each share of the best designs may be alone within `tolerance` of the best objective."""

    def _repr_html_(self) -> str:
        """Return the best design beside the chip's own, and the first of the ranking."""
        from fastflow.reporting.terminal.equivalents import as_good
        from fastflow.reporting.terminal.ranges import range_parts
        from fastflow.reporting.terminal.ranking import front_sheet, labels_of, sheet_of
        from fastflow.reporting.terminal.search import best_parts, title

        said, within = self._said, read_ranges(self.ranking.attrs.get(KEY, ""))
        best, own = (_known(row_of(frame, place)) for frame, place in self._places)
        objectives, schema = (said["objective"], said["pareto"]), self._schema
        line = title(best, int(self.ranking["designs"].sum()), said["method"])
        parts: list[Part] = [line]
        if best["objective"] is not None:
            parts += best_parts(own, best, objectives, self._shares)
            parts += range_parts(best, within)
        if len(self.ranking) > 1:
            shown = f", the first {_TOP}" if len(self.ranking) > _TOP else ""
            heading = f"Ranking of {counted(len(self.ranking), 'candidate')}{shown}"
            parts.append(sheet_of(heading, self.ranking, self.ranking.head(_TOP), schema))
            if best["objective"] is not None and (self.ranking["rank"] == 1).sum() == 1:
                labels = labels_of(list(map(str, self.ranking)))
                parts += as_good(records(self.ranking), labels, within.tolerance, "candidate")
        more = [] if self.front is None else [("Front", [front_sheet(self.front, schema)])]
        return card(self._headline(best), parts, more)

    def _headline(self, best: Mapping[str, Any]) -> str:
        """Say what the best design comes to, and how much better it is than the chip's own."""
        if best["objective"] is None:
            return f"[bold red]No design has a time[/]: {escape(str(best['reason']))}"
        gain = best["gain"]
        than = f", {gain:.2f}x better than the chip's own breakdown" if gain is not None else ""
        fits = "" if best["feasible"] else ", [bold red]not feasible[/]"
        value = _with_unit(best["objective"], OBJECTIVES[self._said["objective"]])
        return f"Best {self._said['objective']} [bold]{value}[/]{than}{fits}"

    @property
    def _said(self) -> dict[str, Any]:
        """What the search was told: `method`, `objective`, `pareto` and so on."""
        said = dict(text.split("=", 1) for text in self.history.attrs["fastflow.search"].split(" "))
        return said | {"pareto": None if said["pareto"] == "null" else said["pareto"]}

    @property
    def _places(self) -> tuple[tuple[pd.DataFrame, int], tuple[pd.DataFrame, int]]:
        """Where the best design is, and that of the chip's own shares: the history begins with these."""
        return (self.ranking, 0), (self.history, int(self.best["candidate"]))

    @property
    def _shares(self) -> list[str]:
        """The keys of the shares that were searched."""
        from fastflow.reporting.charts.search import columns_of

        return [name for name in columns_of(list(map(str, self.history))) if name.startswith("chip.")]

    @property
    def _schema(self) -> pa.Schema:
        """Of the objectives: what they are, and their units."""
        named = zip(
            ("objective", "second_objective"), (self._said["objective"], self._said["pareto"]), strict=True
        )
        return pa.schema(
            field_of(column, "float").with_metadata({"meaning": name, "unit": OBJECTIVES[name]})
            for column, name in named
            if name is not None
        )

    def plot(self) -> Figure:
        """Draw how the search came to its best design, and its front if it has one; a matplotlib Figure."""
        from fastflow.reporting.charts.search import draw
        from fastflow.reporting.charts.style import styled
        from fastflow.reporting.terminal.ranking import labels_of

        axes = [
            f"{name} [{OBJECTIVES[name]}]" for name in (self._said["objective"], self._said["pareto"]) if name
        ]
        with styled():
            return draw(self.history, labels_of(list(map(str, self.history))), *axes)


class Validation(NamedTuple):
    """Predictions beside measurements; frames hold units in `attrs`, as those of `fastflow.evaluate`."""

    rows: pd.DataFrame
    """Every measurement with what was predicted of it, in the order of the file."""
    errors: pd.DataFrame
    """Errors of all rows, by size, by limiter and by the file's own categories."""

    def _repr_html_(self) -> str:
        """Return the mean and median error, the errors by group, and the worst rows."""
        from fastflow.analysis.validation.error_metrics import ALL
        from fastflow.reporting.terminal.validation import error_sheet, what_is_explained, worst

        whole = self.errors[self.errors["by"] == ALL].iloc[0]
        line = f"Mean relative error [bold]{whole['mean_error']:.1%}[/], median {whole['median_error']:.1%}"
        parts: list[Part] = [
            f"{counted(len(self.rows), 'row')} {escape(self._title)}",
            error_sheet(self.errors),
        ]
        lost = self.rows[self.rows["predicted_s"].isna()]
        if len(lost):
            first = f"line {lost['line'].iloc[0]}: {lost['reason'].iloc[0]}"
            parts.insert(1, Text(f"{counted(len(lost), 'row')} cannot be predicted; {first}"))
        lines = [Text(line) for lines in worst(self.rows, self._naming, _WORST) for line in lines]
        return card(line, parts, [(f"Worst rows: {what_is_explained(self.rows)}", lines)])

    @property
    def _title(self) -> str:
        from fastflow.reporting.terminal.validation import title_of

        return title_of(*(self.rows.attrs[f"fastflow.{name}"] for name in ("measurements", "kind", "where")))

    @property
    def _naming(self) -> list[str]:
        """The columns that say what a row is: those of its kind, or the file's own."""
        from fastflow.analysis.measurements.read import naming_columns

        names = list(map(str, self.rows))
        own = names[1 : names.index("measured_s")]
        return list(naming_columns(self.rows.attrs["fastflow.kind"], own))

    def plot(self) -> Figure:
        """Draw predicted over measured times; a matplotlib Figure."""
        from fastflow.reporting.charts.style import styled
        from fastflow.reporting.charts.validation import draw

        with styled():
            return draw(self.rows, self._title)


class Calibration(NamedTuple):
    """What measurements say of a chip."""

    scalars: pd.DataFrame
    """A row a scalar: `scalar`, `before`, `after`, `standard_error`, their `unit`, and `state`."""
    errors: pd.DataFrame
    """A row each for the rows that were fitted and those held back: mean relative errors."""
    text: str
    """The chip file, which `chip=FILE.yaml` accepts."""
    path: Path | None
    """Where it was written, if it was."""

    def _repr_html_(self) -> str:
        """Return the errors on rows held back, and the scalars before and after."""
        from fastflow.reporting.terminal.calibration import parts, summary

        where = [] if self.path is None else [Text(f"Chip: {self.path}")]
        return card(f"[bold]{summary(self.errors)}[/]", [*parts(self.scalars, self.errors), *where])

    def plot(self) -> Figure:
        """Draw what changed, and the errors before and after; a matplotlib Figure."""
        from fastflow.reporting.charts.calibration import draw
        from fastflow.reporting.charts.style import styled

        with styled():
            return draw(self.scalars, self.errors)


class Sensitivity(sensitivity.Sensitivity):
    """What a result hangs on; see `fastflow.sensitivity`."""

    __slots__ = ()

    def _repr_html_(self) -> str:
        """Return the figures that move the result most, and how many do not."""
        from fastflow.reporting.terminal.sensitivity import parts

        return card(self._headline, islice(parts(self, _FIGURES), 1, None))

    @property
    def _headline(self) -> str:
        value, first = quantity(self.objective, self.value), self.figures.iloc[0]
        most = (
            f"; most of all it hangs on [bold]{escape(str(first['figure']))}[/]" if not first["flat"] else ""
        )
        return f"{self.objective} is [bold]{value}[/]{most}"

    def plot(self) -> Figure:
        """Draw what each figure, less or more of it, does to the result; a matplotlib Figure."""
        from fastflow.reporting.charts.sensitivity import draw
        from fastflow.reporting.charts.style import styled

        with styled():
            return draw(self.figures, self.objective, self.value)


class Backtest(backtest.Backtest):
    """What a back-test found; see `fastflow.backtest`."""

    __slots__ = ()

    def _repr_html_(self) -> str:
        """Return how many quantities come out, then the differences of every chip, gains and errors."""
        from fastflow.reporting.terminal.backtest import parts, said

        first, *others = said(self, self._generations)
        sheet, *more = parts(self, self._generations, self._known)
        folded = [("The other scaling, values, gains, and errors on measurements", more)]
        return card(f"[bold]{escape(first)}[/]", [*map(Text, others), sheet], folded)

    @property
    def _generations(self) -> list[str]:
        """The chips of whose generations gains are told."""
        return list(dict.fromkeys([*self.gains["before"], *self.gains["after"]]))

    @property
    def _known(self) -> list[str]:
        """The chips that foresight knows."""
        return [str(name) for name in self.gains.attrs["known"]]

    def plot(self) -> Figure:
        """Draw what each generation gains, real and predicted; a matplotlib Figure."""
        from fastflow.reporting.charts.backtest import draw
        from fastflow.reporting.charts.style import styled

        with styled():
            return draw(self.gains, self._known)


def _known(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row with None for what it lacks, as the tables of the screen have it."""
    return {name: None if value != value else value for name, value in row.items()}


def _with_unit(value: float, unit: str) -> str:
    from fastflow.core import units

    return units.show(value, unit)
