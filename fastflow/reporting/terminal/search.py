"""Output of a search: the best design compared with the chip's own breakdown, and the ranking."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from rich.table import Table as Sheet

from fastflow.analysis.search.optimizers.objective import OBJECTIVES
from fastflow.analysis.search.run import SearchResult
from fastflow.config.messages import counted
from fastflow.core import units
from fastflow.engine.dataset.schema import to_frame
from fastflow.reporting.terminal.equivalents import as_good
from fastflow.reporting.terminal.grid import assumed, kind_of_cost
from fastflow.reporting.terminal.progress import Progress
from fastflow.reporting.terminal.ranges import range_parts
from fastflow.reporting.terminal.ranking import front_sheet, labels_of, ranking_sheet
from fastflow.reporting.terminal.tables import (
    CLASS,
    Part,
    console,
    new_sheet,
    quantity,
    records,
    tell,
    validation_lines,
)

_OF_ITERATIONS = {
    "time_s": "time", "energy_J": "energy", "device_usd": "cost of a device",
    "iteration_usd": "cost of an iteration", "mfu": "mfu", "bound_by": "bound by",
}  # fmt: skip
_OF_SERVERS = {
    "ttft_s": "first token", "ttft_slo_s": "  for serve.slo",
    "tpot_s": "further token", "tpot_slo_s": "  for serve.slo",
    "tokens_per_s_per_device": "tokens of a device",
    "joules_per_token": "energy of a token", "device_usd": "cost of a device", "token_usd": "cost of tokens",
    "kv_room_B": "room for caches",
    "prefill_bound_by": "prompts bound by", "decode_bound_by": "decoding bound by",
}  # fmt: skip
_LESS = (
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
"""What is better where there is less of it."""
_BUDGETS = ("area", "power", "perimeter")


def found(answer: SearchResult, ranking: pa.Table, edge: pa.Table | None) -> None:
    """Print the best design beside the chip's own breakdown, the ranking, and the front if there is one."""
    out = console()
    heads = ranking.filter(pc.equal(ranking["rank"], 1))
    if heads.num_rows == 1:
        history = answer.history.table()
        row = heads.to_pylist()[0]
        own = history.slice(row["candidate"], 1).to_pylist()[0]
        options = answer.options
        out.print(title(row, int(answer.num_scored.sum()), options.rules.method))
        tell(best_parts(own, row, (options.objective, options.pareto), answer.candidates.space.keys))
        tell(range_parts(row, answer.ranges))
        out.print(kind_of_cost(answer.candidates.grid))
    if answer.candidates.point.size > 1:
        frame = to_frame([ranking])
        out.print(ranking_sheet(frame, ranking.schema))
        if heads.num_rows == 1:
            tell(
                as_good(records(frame), labels_of(ranking.schema.names), answer.ranges.tolerance, "candidate")
            )
    if edge is not None:
        out.print(front_sheet(to_frame([edge]), edge.schema))
    for line in assumed(answer.candidates.grid):
        out.print(line)
    for line in validation_lines(ranking.select([CLASS]).to_pylist()):
        out.print(line)
    left_out = int((answer.reason != "").sum())
    if left_out:
        first = next(reason for reason in answer.reason if reason)
        of_all = f"{left_out:,} of {counted(ranking.num_rows, 'candidate')}"
        out.print(f"{of_all} not searched; the first one: {first}")


def title(row: Mapping[str, Any], designs: int, method: str) -> str:
    """Say of which point a design is the best, among how many."""
    where = f"{row['devices']:,} x {row['chip']} ({row['tech']}, {row['mem']}, {row['net']})"
    spent = f"best of {counted(designs, 'design')} by {method}"
    return f"[bold]{row['model']}[/] on {where}, strategy {row['strategy']}: {spent}"


def best_parts(
    own: Mapping[str, Any],
    best: Mapping[str, Any],
    objectives: tuple[str, str | None],
    keys: Sequence[str],
) -> Iterator[Part]:
    """Yield how the best design differs from the chip's own; keys: of the shares that were searched."""
    yield _result(objectives, own, best)
    yield _breakdown(keys, own, best)
    if not best["feasible"]:
        yield f"not feasible: {best['reason']}"


def _result(objectives: tuple[str, str | None], own: Mapping[str, Any], best: Mapping[str, Any]) -> Sheet:
    """Put the objective and what goes with it side by side."""
    table = new_sheet("Result", [("", False), ("own", True), ("best", True), ("", True)])
    names = _OF_SERVERS if "tpot_s" in best else _OF_ITERATIONS
    names = {name: label for name, label in names.items() if own[name] is not None or best[name] is not None}
    options = dict(zip(("objective", "second_objective"), objectives, strict=True))
    for name, objective in options.items():
        if objective is not None and objective not in ("time", "energy"):
            before, after = own[name], best[name]
            values = [
                "-" if one is None else units.show(one, OBJECTIVES[objective]) for one in (before, after)
            ]
            table.add_row(objective, *values, _ratio(before, after))
    for name in [name for name in names if name in options.values()]:
        del names[name]  # it stands above
    for name, label in names.items():
        before, after = own[name], best[name]
        ratio = _ratio(before, after) if name in _LESS else ""
        table.add_row(label, quantity(name, before), quantity(name, after), ratio)
    return table


def _ratio(before: float | None, after: float | None) -> str:
    """Write how many times less there is of something; nothing where a design has no time."""
    return f"{before / after:.2f}x" if before and after else ""


def _breakdown(keys: Sequence[str], own: Mapping[str, Any], best: Mapping[str, Any]) -> Sheet:
    """Put the shares of every component side by side, and what they make."""
    names = [("component", False)]
    names += [(f"{budget}", True) for budget in _BUDGETS]
    table = new_sheet("Shares: own -> best", [*names, ("capacity", True), ("rate", True)])
    parts = dict.fromkeys(key.split(".")[2] for key in keys)
    for part in parts:
        shares = [_pair(own, best, f"chip.{budget}.{part}", "{:.1%}") for budget in _BUDGETS]
        capacity = "dram_capacity_B" if part == "dram" else f"{part}_B"
        rate = "compute_flops" if part == "core" else f"{part}_Bps"
        table.add_row(part, *shares, _quantities(own, best, capacity), _quantities(own, best, rate))
    table.add_section()
    unused = [f"{_unused(own, budget):.1%} -> {_unused(best, budget):.1%}" for budget in _BUDGETS]
    table.add_row("unused", *unused, "", "")
    return table


def _unused(row: Mapping[str, Any], budget: str) -> float:
    """Return the part of a budget that no component has."""
    used = sum(share for key, share in row.items() if key.startswith(f"chip.{budget}."))
    return max(0.0, 1.0 - float(used))


def _pair(own: Mapping[str, Any], best: Mapping[str, Any], key: str, form: str) -> str:
    return f"{form.format(own[key])} -> {form.format(best[key])}" if key in best else ""


def _quantities(own: Mapping[str, Any], best: Mapping[str, Any], name: str) -> str:
    if name not in best or not (best[name] or own[name]):
        return ""
    return f"{quantity(name, own[name])} -> {quantity(name, best[name])}"


def speed(answer: SearchResult, progress: Progress) -> None:
    """Print how many designs were scored, and how fast."""
    fresh = answer.history.num_consumed - answer.history.num_recorded
    if fresh:
        tried = answer.ranges.tried
        rate = (fresh + tried) / max(progress.seconds, 1e-9)
        around = f", and {tried:,} around the best," if tried else ""
        print(f"{counted(fresh, 'design')} scored{around} in {progress.seconds:.2f} s: {rate:,.0f} designs/s")
    else:
        known = answer.history.num_consumed
        print(f"{counted(known, 'design')} {'was' if known == 1 else 'were'} scored before")
