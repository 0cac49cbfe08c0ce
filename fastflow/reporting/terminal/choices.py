"""How well a validation's predictions choose, in words and as a table by model."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fastflow.analysis.measurements.choices import Choice
from fastflow.analysis.measurements.read import choices, job_columns
from fastflow.analysis.validation.layout_choice import layout_choice
from fastflow.analysis.validation.throughput_choice import ThroughputChoice, throughput_choice
from fastflow.config.messages import pluralize
from fastflow.reporting.terminal.tables import new_sheet

if TYPE_CHECKING:
    import pandas as pd
    from rich.table import Table as Sheet


def choice_lines(rows: pd.DataFrame, kind: str) -> dict[str, str]:
    """Return how well predictions choose, by what is chosen; nothing of files without such choices."""
    lines = {"layouts": _layout_line(rows, kind)}
    lines |= {choice.of: _throughput_line(rows, choice) for choice in choices(kind)}
    return {name: line for name, line in lines.items() if line}


def _layout_line(rows: pd.DataFrame, kind: str) -> str:
    """Say how well the fastest layout of a job is chosen; "" of kinds and files without several."""
    choice = layout_choice(rows, job_columns(kind))
    if choice is None:
        return ""
    return (
        f"of {pluralize(choice.jobs, 'job')} with {choice.rows:,} rows, the layout that is predicted fastest"
        f" was measured {choice.mean_regret:.1%} slower than the best in the mean"
        f" (median {choice.median_regret:.1%}, at most {choice.max_regret:.1%}){_tau_text(choice.tau)};"
        f" ratios of two layouts' times are {choice.comparison_error:.1%} off in the median"
    )


def _tau_text(tau: float) -> str:
    return "" if tau != tau else f"; Kendall's tau {tau:.2f}"


def _throughput_line(rows: pd.DataFrame, choice: Choice) -> str:
    """Say how well the candidate of the highest throughput is chosen; "" of files without several."""
    ranking = throughput_choice(rows, choice)
    if ranking is None:
        return ""
    return (
        f"of {pluralize(ranking.jobs, 'job')} with {ranking.candidates:,} {choice.of} at {choice.condition},"
        " the one with the most predicted tokens a second and device was measured"
        f" {ranking.mean_regret:.1%} below the best in the mean (median {ranking.median_regret:.1%}, at most"
        f" {ranking.max_regret:.1%}){_tau_text(ranking.tau)}"
    )


def choice_sheet(rows: pd.DataFrame, kind: str) -> Sheet | None:
    """Return the mean regret and Kendall's tau of choices by model as a table; None without choices."""
    of_kind = choices(kind)
    lines = []
    for model in sorted(map(str, rows["model"].dropna().unique())) if of_kind and "model" in rows else ():
        rankings = [throughput_choice(rows[rows["model"] == model], choice) for choice in of_kind]
        if any(rankings):
            lines.append([model, *(text for ranking in rankings for text in _cells(ranking))])
    if not lines:
        return None
    columns = [("", False)]
    for choice in of_kind:
        columns += [(f"jobs of {choice.of}", True), ("regret", True), ("tau", True)]
    sheet = new_sheet("Choices by model: mean regret, Kendall's tau", columns)
    for line in lines:
        sheet.add_row(*line)
    return sheet


def _cells(ranking: ThroughputChoice | None) -> tuple[str, str, str]:
    """Return the number of jobs, the mean regret and tau as texts."""
    if ranking is None:
        return "-", "-", "-"
    tau = "-" if ranking.tau != ranking.tau else f"{ranking.tau:.2f}"
    return f"{ranking.jobs:,}", f"{ranking.mean_regret:.1%}", tau
