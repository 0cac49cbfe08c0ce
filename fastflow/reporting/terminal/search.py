"""Output of a search: the best design compared with the unchanged chip, and the ranking."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from rich.table import Table as Sheet

from fastflow.analysis.search.optimizers.design_space import BUDGET_LABELS
from fastflow.analysis.search.optimizers.objective import OBJECTIVES
from fastflow.analysis.search.run import SearchResult
from fastflow.config.messages import pluralize
from fastflow.core import units
from fastflow.engine.dataset.schema import to_frame
from fastflow.reporting.charts.search import labels_of
from fastflow.reporting.terminal.equivalents import equivalent_candidates
from fastflow.reporting.terminal.grid import cost_note, grid_assumptions
from fastflow.reporting.terminal.power_limits import LIMITED
from fastflow.reporting.terminal.progress import Progress
from fastflow.reporting.terminal.ranges import range_parts
from fastflow.reporting.terminal.ranking import front_sheet, ranking_sheet
from fastflow.reporting.terminal.tables import (
    VALIDATION_CLASS,
    Part,
    console,
    new_sheet,
    point_title,
    print_parts,
    quantity,
    records,
    validation_lines,
)

_ITERATION_LABELS = {
    "time_s": "time", "energy_J": "energy", "device_usd": "cost of a device",
    "iteration_usd": "cost of an iteration", "tokens_per_s_per_MW": "tokens per megawatt",
    "mfu": "mfu", "bound_by": "bound by",
}  # fmt: skip
_SERVER_LABELS = {
    "ttft_s": "time to first token", "ttft_slo_s": "  for serve.slo",
    "tpot_s": "time per further token", "tpot_slo_s": "  for serve.slo",
    "tokens_per_s_per_device": "tokens per device",
    "tokens_per_s_per_MW": "tokens per megawatt",
    "joules_per_token": "energy of a token", "device_usd": "cost of a device", "token_usd": "cost of tokens",
    "kv_cache_capacity_B": "KV cache capacity",
    "prefill_bound_by": "prefill bound by", "decode_bound_by": "decode bound by",
}  # fmt: skip
_LESS_IS_BETTER = (
    "time_s",
    "energy_J",
    "device_usd",
    "iteration_usd",
    "token_usd",
    "ttft_s",
    "ttft_slo_s",
    "tpot_s",
    "tpot_slo_s",
    "joules_per_token",
)
"""Columns of which less is better."""
_BUDGETS = ("area", "power", "perimeter")


def show(answer: SearchResult, ranking: pa.Table, front: pa.Table | None) -> None:
    """Print the best design and the unchanged chip, the ranking, and the front if it exists."""
    out = console()
    heads = ranking.filter(pc.equal(ranking["rank"], 1))
    if heads.num_rows == 1:
        history = answer.history.table()
        row = heads.to_pylist()[0]
        baseline = history.slice(row["candidate"], 1).to_pylist()[0]
        options = answer.options
        out.print(title(row, int(answer.num_scored.sum()), options.rules.method))
        print_parts(
            best_parts(baseline, row, (options.objective, options.pareto), answer.candidates.space.keys)
        )
        print_parts(range_parts(row, answer.ranges))
        out.print(cost_note(answer.candidates.grid))
    if answer.candidates.point.size > 1:
        frame = to_frame([ranking])
        out.print(ranking_sheet(frame, ranking.schema))
        if heads.num_rows == 1:
            print_parts(
                equivalent_candidates(
                    records(frame), labels_of(ranking.schema.names), answer.ranges.tolerance, "candidate"
                )
            )
    if front is not None:
        out.print(front_sheet(to_frame([front]), front.schema))
    print_parts(grid_assumptions(answer.candidates.grid))
    print_parts(validation_lines(ranking.select([VALIDATION_CLASS]).to_pylist()))
    num_skipped = int(answer.is_left_out.sum())
    if num_skipped:
        first = next(filter(None, answer.left_out["reason"]))
        share = f"{num_skipped:,} of {pluralize(ranking.num_rows, 'candidate')}"
        out.print(f"{share} not searched; the first one: {first}")


def title(row: Mapping[str, Any], designs: int, method: str) -> str:
    """Return the title of a best design: its point, and the number of designs."""
    return f"{point_title(row)}: best of {pluralize(designs, 'design')} by {method}"


def best_parts(
    baseline: Mapping[str, Any],
    best: Mapping[str, Any],
    objectives: tuple[str, str | None],
    keys: Sequence[str],
) -> Iterator[Part]:
    """Yield tables that compare the best design with the unchanged chip; keys: of the searched shares."""
    yield _result(objectives, baseline, best)
    yield _breakdown(keys, baseline, best)
    if not best["feasible"]:
        yield f"not feasible: {best['reason']}"


def _result(
    objectives: tuple[str, str | None], baseline: Mapping[str, Any], best: Mapping[str, Any]
) -> Sheet:
    """Return the objectives and the other results of both designs as a table."""
    table = new_sheet("Result", [("", False), ("baseline", True), ("best", True), ("", True)])
    names = _SERVER_LABELS if "tpot_s" in best else _ITERATION_LABELS
    names = {
        name: label
        for name, label in names.items()
        if baseline.get(name) is not None or best.get(name) is not None
    }
    names |= {
        name: f"power of {words}" for words, (name, limit) in LIMITED.items() if best.get(limit) is not None
    }
    options = dict(zip(("objective", "second_objective"), objectives, strict=True))
    for name, objective in options.items():
        if objective is not None and objective not in ("time", "energy"):
            before, after = baseline[name], best[name]
            values = [
                "-" if value is None else units.show(value, OBJECTIVES[objective])
                for value in (before, after)
            ]
            table.add_row(objective, *values, _ratio(before, after))
    for name in [name for name in names if name in options.values()]:
        del names[name]  # shown above
    for name, label in names.items():
        before, after = baseline[name], best[name]
        ratio = _ratio(before, after) if name in _LESS_IS_BETTER else ""
        table.add_row(label, quantity(name, before), quantity(name, after), ratio)
    return table


def _ratio(before: float | None, after: float | None) -> str:
    """Write the ratio of two values; "" if a design has no time."""
    return f"{before / after:.2f}x" if before and after else ""


def _breakdown(keys: Sequence[str], baseline: Mapping[str, Any], best: Mapping[str, Any]) -> Sheet:
    """Return the shares of every component of both designs as a table, with capacities and rates."""
    names = [("component", False)]
    names += [(BUDGET_LABELS[budget], True) for budget in _BUDGETS]
    table = new_sheet("Shares: baseline -> best", [*names, ("capacity", True), ("rate", True)])
    parts = dict.fromkeys(key.split(".")[2] for key in keys)
    for part in parts:
        shares = [_format_shares(baseline, best, f"chip.{budget}.{part}", "{:.1%}") for budget in _BUDGETS]
        capacity = "dram_capacity_B" if part == "dram" else f"{part}_B"
        rate = "compute_flops" if part == "core" else f"{part}_Bps"
        table.add_row(
            part,
            *shares,
            _format_quantities(baseline, best, capacity),
            _format_quantities(baseline, best, rate),
        )
    table.add_section()
    unused = [
        f"{_unused_share(baseline, budget):.1%} -> {_unused_share(best, budget):.1%}" for budget in _BUDGETS
    ]
    table.add_row("unused", *unused, "", "")
    return table


def _unused_share(row: Mapping[str, Any], budget: str) -> float:
    """Return the share of a budget that no component uses."""
    used = sum(share for key, share in row.items() if key.startswith(f"chip.{budget}."))
    return max(0.0, 1.0 - float(used))


def _format_shares(baseline: Mapping[str, Any], best: Mapping[str, Any], key: str, form: str) -> str:
    return f"{form.format(baseline[key])} -> {form.format(best[key])}" if key in best else ""


def _format_quantities(baseline: Mapping[str, Any], best: Mapping[str, Any], name: str) -> str:
    if name not in best or not (best[name] or baseline[name]):
        return ""
    return f"{quantity(name, baseline[name])} -> {quantity(name, best[name])}"


def print_speed(answer: SearchResult, progress: Progress) -> None:
    """Print the number of scored designs, and the rate."""
    scored = answer.history.num_consumed - answer.history.num_recorded
    if scored:
        num_neighbours = answer.ranges.tried
        rate = (scored + num_neighbours) / max(progress.seconds, 1e-9)
        others = f", and {num_neighbours:,} around the best," if num_neighbours else ""
        print(
            f"{pluralize(scored, 'design')} scored{others} in {progress.seconds:.2f} s: {rate:,.0f} designs/s"
        )
    else:
        num_known = answer.history.num_consumed
        print(f"{pluralize(num_known, 'design')} {'was' if num_known == 1 else 'were'} scored before")
