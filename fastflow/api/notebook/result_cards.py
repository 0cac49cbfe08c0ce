"""Results of searches, validations, calibrations, sensitivities and back-tests as HTML for a notebook."""

from __future__ import annotations

import json
from collections.abc import Mapping
from itertools import islice
from typing import TYPE_CHECKING, Any

import pandas as pd
import pyarrow as pa
from rich.markup import escape
from rich.text import Text

from fastflow.analysis.search.optimizers.objective import OBJECTIVES
from fastflow.analysis.search.ranges import KEY, read_ranges
from fastflow.api.notebook.cards import row_of
from fastflow.api.notebook.markup import card
from fastflow.config.messages import pluralize
from fastflow.core import units
from fastflow.engine.dataset.schema import field_of
from fastflow.reporting.terminal.tables import Part, quantity, records

if TYPE_CHECKING:
    from pathlib import Path

    from fastflow.analysis.backtest.study import Backtest
    from fastflow.analysis.sensitivity.study import Sensitivity

_TOP, _PARAMETERS, _WORST = 5, 10, 5


def search_card(ranking: pd.DataFrame, history: pd.DataFrame, front: pd.DataFrame | None) -> str:
    """Return the best design, the unchanged chip, and the first rows of the ranking."""
    from fastflow.reporting.charts.search import labels_of
    from fastflow.reporting.terminal.equivalents import equivalent_candidates
    from fastflow.reporting.terminal.ranges import range_parts
    from fastflow.reporting.terminal.ranking import front_sheet, sheet_of
    from fastflow.reporting.terminal.search import best_parts, title

    options, within = options_of(history), read_ranges(ranking.attrs.get(KEY, ""))
    best = _without_nan(row_of(ranking, 0))
    baseline = _without_nan(row_of(history, int(best["candidate"])))  # unchanged chips come first
    objectives, schema = (options["objective"], options["pareto"]), _schema(history)
    headline = title(best, int(ranking["designs"].sum()), options["method"])
    parts: list[Part] = [headline]
    if best["objective"] is not None:
        parts += best_parts(baseline, best, objectives, _shares(history))
        parts += range_parts(best, within)
    if len(ranking) > 1:
        count_note = f", the first {_TOP}" if len(ranking) > _TOP else ""
        heading = f"Ranking of {pluralize(len(ranking), 'candidate')}{count_note}"
        parts.append(sheet_of(heading, ranking, ranking.head(_TOP), schema))
        if best["objective"] is not None and (ranking["rank"] == 1).sum() == 1:
            labels = labels_of(list(map(str, ranking)))
            parts += equivalent_candidates(records(ranking), labels, within.tolerance, "candidate")
    folded = [] if front is None else [("Front", [front_sheet(front, schema)])]
    return card(_search_headline(options["objective"], best), parts, folded)


def about_fleets(frame: pd.DataFrame) -> dict[str, Any]:
    """Return what a table of a search over fleets says of it."""
    about: dict[str, Any] = json.loads(frame.attrs["fastflow.fleets"])
    return about


def fleet_search_card(ranking: pd.DataFrame, plan: pd.DataFrame | None) -> str:
    """Return the best fleets or the front, and the plan in a part to unfold."""
    from fastflow.reporting.terminal.fleet_search import plan_parts, ranking_parts

    about = about_fleets(ranking)
    folded = [] if plan is None else [("Plan", list(plan_parts(plan, about_fleets(plan))))]
    headline = f"Fleets by [bold]{about['objective']}[/]"
    return card(headline, list(ranking_parts(ranking, about)), folded)


def _search_headline(objective: str, best: Mapping[str, Any]) -> str:
    """Return the objective of the best design, and its gain over the unchanged chip."""
    if best["objective"] is None:
        return f"[bold red]No design has a time[/]: {escape(str(best['reason']))}"
    gain = best["gain"]
    gain_note = f", {gain:.2f}x better than the unchanged chip" if gain is not None else ""
    note = "" if best["feasible"] else ", [bold red]not feasible[/]"
    value = units.show(best["objective"], OBJECTIVES[objective])
    return f"Best {objective} [bold]{value}[/]{gain_note}{note}"


def options_of(history: pd.DataFrame) -> dict[str, Any]:
    """Return the options of a search: `method`, `objective`, `pareto` and so on."""
    options = dict(text.split("=") for text in history.attrs["fastflow.search"].split(" "))
    return options | {"pareto": None if options["pareto"] == "null" else options["pareto"]}


def _shares(history: pd.DataFrame) -> list[str]:
    """Return the keys of the shares that were searched."""
    from fastflow.reporting.charts.search import columns_of

    return [name for name in columns_of(list(map(str, history))) if name.startswith("chip.")]


def _schema(history: pd.DataFrame) -> pa.Schema:
    """Return the schema of the objectives, with their names and units."""
    options = options_of(history)
    objectives = (("objective", options["objective"]), ("second_objective", options["pareto"]))
    return pa.schema(
        field_of(column, "float").with_metadata({"meaning": name, "unit": OBJECTIVES[name]})
        for column, name in objectives
        if name is not None
    )


def validation_card(rows: pd.DataFrame, errors: pd.DataFrame) -> str:
    """Return the mean and median error, the errors by group, and the worst rows."""
    from fastflow.analysis.validation.error_metrics import ALL, errors_of, measured_quantities
    from fastflow.reporting.terminal.choices import choice_lines
    from fastflow.reporting.terminal.validation import (
        error_sheets,
        explanation_title,
        mean_error_lines,
        worst_rows,
    )

    kind, quantities = str(rows.attrs["fastflow.measured"]), measured_quantities(rows)
    of_times = errors_of(errors, quantities[0])
    total = of_times[of_times["by"] == ALL].iloc[0]
    line = f"Mean relative error [bold]{total['mean_error']:.1%}[/], median {total['median_error']:.1%}"
    parts: list[Part] = [
        f"{pluralize(len(rows), 'row')} {escape(validation_title(rows))}",
        *error_sheets(errors, quantities),
        *map(Text, mean_error_lines(rows, errors, kind)),
    ]
    choices = choice_lines(rows, kind).items()
    parts += [Text(f"Choice of {chosen}: {text}") for chosen, text in choices]
    failed = rows[rows["predicted_s"].isna()]
    if len(failed):
        first = f"line {failed['line'].iloc[0]}: {failed['reason'].iloc[0]}"
        parts.insert(1, Text(f"{pluralize(len(failed), 'row')} cannot be predicted; {first}"))
    lines = [Text(line) for lines in worst_rows(rows, _naming(rows), _WORST) for line in lines]
    return card(line, parts, [(f"Worst rows: {explanation_title(rows)}", lines)])


def validation_title(rows: pd.DataFrame) -> str:
    """Return the file, the kind and the hardware of the rows of a validation."""
    from fastflow.reporting.terminal.validation import title_of

    return title_of(*(rows.attrs[f"fastflow.{name}"] for name in ("measurements", "measured", "where")))


def _naming(rows: pd.DataFrame) -> list[str]:
    """Return the columns that name a row: those of its kind, or those of the file."""
    from fastflow.analysis.measurements.read import naming_columns

    names = list(map(str, rows))
    file_columns = names[1 : names.index("measured_s")]
    return list(naming_columns(rows.attrs["fastflow.measured"], file_columns))


def calibration_card(scalars: pd.DataFrame, errors: pd.DataFrame, path: Path | None) -> str:
    """Return the errors on held-out rows, and the scalars before and after."""
    from fastflow.reporting.terminal.calibration import parts, summary

    where = [] if path is None else [Text(f"Chip: {path}")]
    return card(f"[bold]{summary(errors)}[/]", [*parts(scalars, errors), *where])


def server_calibration_card(
    runs: pd.DataFrame,
    figures: pd.DataFrame,
    times: pd.DataFrame,
    errors: pd.DataFrame,
    path: Path | None,
) -> str:
    """Return the errors, what was read, times before and after, and figures."""
    from fastflow.reporting.terminal.server_calibration import parts, summary

    where = [] if path is None else [Text(f"Server: {path}")]
    return card(f"[bold]{summary(errors)}[/]", [*parts(runs, figures, times, errors), *where])


def sensitivity_card(sensitivity: Sensitivity) -> str:
    """Return the parameters with the largest effect, and the number of the others."""
    from fastflow.reporting.terminal.sensitivity import parts

    return card(_sensitivity_headline(sensitivity), islice(parts(sensitivity, _PARAMETERS), 1, None))


def _sensitivity_headline(sensitivity: Sensitivity) -> str:
    """Return the result, and the parameter with the largest effect."""
    value, first = quantity(sensitivity.objective, sensitivity.value), sensitivity.parameters.iloc[0]
    note = (
        f"; it depends most on [bold]{escape(str(first['parameter']))}[/]" if not first["insensitive"] else ""
    )
    return f"{sensitivity.objective} is [bold]{value}[/]{note}"


def backtest_card(answer: Backtest) -> str:
    """Return the summary, then the differences of every chip, gains and errors."""
    from fastflow.reporting.terminal.backtest import parts, summary_lines

    first, *others = summary_lines(answer, _generations(answer))
    sheet, *further_sheets = parts(answer, _generations(answer), known_chips(answer))
    sections = [("The other scaling, values, gains, and errors on measurements", further_sheets)]
    return card(f"[bold]{escape(first)}[/]", [*map(Text, others), sheet], sections)


def _generations(answer: Backtest) -> list[str]:
    """Return the chips whose generations have gains."""
    return list(dict.fromkeys([*answer.gains["before"], *answer.gains["after"]]))


def known_chips(answer: Backtest) -> list[str]:
    """Return the chips that foresight extrapolates from."""
    return [str(name) for name in answer.gains.attrs["known"]]


def _without_nan(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row with None for NaN, as the tables of the screen have it."""
    return {name: None if value != value else value for name, value in row.items()}
