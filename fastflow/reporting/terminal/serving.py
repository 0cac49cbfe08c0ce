"""What people who serve a model look for: latencies, rates, where time goes, what limits, memory, energy."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
from rich.table import Table as Sheet

from fastflow.core import units
from fastflow.core.tables import Inputs
from fastflow.performance.serving.overload import is_overload
from fastflow.performance.serving.requests.lengths import REQUESTS, arrivals_of_files
from fastflow.performance.serving.requests.load import longest
from fastflow.performance.serving.scenario import CONTINUOUS, DISAGGREGATED, ONE_DECODE, ONE_PREFILL
from fastflow.performance.serving.slo import COMPARED, LIMITS, PERCENTILE, needs_requests, ordinal
from fastflow.physics.workload.request_lengths import KEY as LENGTHS
from fastflow.physics.workload.request_lengths import read_lengths
from fastflow.reporting.terminal.cost import cost_sheet
from fastflow.reporting.terminal.percentiles import band_sheet, has_bands
from fastflow.reporting.terminal.point import chip_sheet, levels_of
from fastflow.reporting.terminal.tables import (
    Part,
    assumption_lines,
    console,
    new_sheet,
    no_effect,
    quantity,
    tell,
    validation_lines,
)

_LATENCIES = {"ttft": "to the first token", "tpot": "per further token"}
_RATES = (
    ("output tokens", "tokens_per_s"),
    ("  a device", "tokens_per_s_per_device"),
    ("  a user", "tokens_per_s_per_user"),
    ("prompt tokens", "prefill_tokens_per_s"),
    ("requests", "requests_per_s"),
)
_LIMITERS = {
    "compute": "arithmetic",
    "dram": "main memory",
    "network": "exchanges between devices",
    "launch": "launches of kernels",
    "host": "the server's own work between iterations",
}


def show_served(
    row: Mapping[str, Any], inputs: Mapping[str, Any], prefill_chip: Mapping[str, Any] | None = None
) -> None:
    """Print one point that serves; inputs: its own, scalars by dotted key.

    prefill_chip: result columns of the chip that prefills alone, where there is one.
    """
    out = console()
    out.print(title(row))
    for line in load_of(inputs, bool(_has(row, "simulated") and row["simulated"])):
        out.print(line)
    limits = limits_of(inputs)
    tell(served_sheets(row, limits, float(inputs["serve.rate"])))
    out.print(chip_sheet(row, levels_of(row), chip_title(row)))
    if prefill_chip is not None:
        out.print(chip_sheet(prefill_chip, levels_of(prefill_chip), f"{_CHIP} of prefill"))
    out.print(cost_sheet(row, inputs))
    if has_bands(row):
        out.print(band_sheet(row))
    out.print()
    tell(conclusion(row))
    tell(state_of(row, int(inputs["serve.requests"])))
    out.print()


class Limits(NamedTuple):
    """What `serve.slo` allows of a point."""

    most: Mapping[str, float]  # of each latency [s]; 0: any
    percentile: float  # of requests; 0: their mean


NO_LIMITS = Limits(dict.fromkeys(_LATENCIES, 0.0), 0.0)


def limits_of(inputs: Mapping[str, Any]) -> Limits:
    """Return what `serve.slo` allows; inputs: of one point."""
    return Limits({name: float(inputs[LIMITS[name]]) for name in _LATENCIES}, float(inputs[PERCENTILE]))


def title(row: Mapping[str, Any]) -> str:
    """Say what a point that serves is."""
    return (
        f"[bold]{row['model']}[/] on {row['devices']:,} x {row['chip']}"
        f" ({row['tech']}, {row['mem']}, {row['net']}), strategy {row['strategy']}"
        f"{', ' if row.get('dtype') else ''}{row.get('dtype') or ''}"
    )


_CHIP = "Chip generated"


def chip_title(row: Mapping[str, Any]) -> str:
    """Return the title of the chip that a row has columns of: that which decodes, where another prefills."""
    return f"{_CHIP} of decode" if _has(row, "prefill_devices") and row["prefill_devices"] > 0 else _CHIP


def served_sheets(row: Mapping[str, Any], limits: Limits, rate: float = 0.0) -> tuple[Sheet, ...]:
    """Return the latencies, the rates, the time of an iteration and the memory of a point that serves.

    rate: of sending at random times [1/s], where it is known.
    """
    return _latencies(row, limits), _rates(row, rate), _time(row), _memory(row)


def state_of(row: Mapping[str, Any], requests: int) -> Iterator[Part]:
    """Yield what to know of an open loop that is not stationary; requests: that are asked for."""
    if not _has(row, "stationary") or row["stationary"]:
        return
    if is_overload(str(row["reason"])):
        yield "Times are those seen so far: they grow for as long as requests are sent"
    elif requests > 0:
        yield (
            f"[bold red]Not stationary[/] after {requests:,} requests: serve.requests=0 goes on until it is"
        )
    else:
        yield (
            "[bold red]Not stationary[/] in the longest run, so times may still grow: a larger serve.requests"
            " goes on for longer; at a lower serve.rate it takes less"
        )


_BENCHMARKS = 0.2  # the spread of conf/serve
_BATCHES = {CONTINUOUS: "continuous batching", DISAGGREGATED: "prefill and decoding apart"}


def load_of(inputs: Mapping[str, Any], simulated: bool = False) -> Iterator[str]:
    """Say in a line or two what is asked of servers, and in another which times of arrival are not used.

    inputs: of one point, with the mean lengths of its file. simulated: every iteration was.
    """
    mode, isl, osl, batch = (inputs[f"serve.{name}"] for name in ("mode", "isl", "osl", "batch"))
    if mode == ONE_PREFILL:
        yield f"One pass over {batch:,} x {isl:,.0f} tokens of prompts"
    elif mode == ONE_DECODE:
        context = inputs["serve.context"] or isl + osl / 2.0
        yield f"One pass that decodes {batch:,} requests with {context:,.0f} tokens each in the cache"
    else:
        *first, last = _lengths(inputs)
        yield from first
        yield f"{last}, {_pace(inputs)}; {_BATCHES[mode]}, {_form(inputs, simulated)}"
        if simulated:
            yield from _few(inputs)
        elif _needs_requests(inputs):
            yield "serve.slo is compared with means: percentiles need a long simulation (serve.simulate=true)"
    yield from unused_arrivals(inputs)


def _few(inputs: Mapping[str, Any]) -> Iterator[str]:
    """Say of a percentile that it is of too few requests, as the 99th is of fewer than 100."""
    percentile, requests = inputs[PERCENTILE], inputs["serve.requests"] or _followed(inputs)
    requests = requests or REQUESTS * inputs["serve.concurrency"]  # 0: an open loop, of hundreds
    needed = math.ceil(100.0 / (100.0 - percentile) - 1e-6) if percentile < 100.0 else 0
    if 0 < requests < needed and _needs_requests(inputs):
        limit = f"the {ordinal(percentile)} percentile of {requests:,} requests"
        yield f"serve.slo is compared with {limit}, near their maximum: it takes {needed:,}"


def _form(inputs: Mapping[str, Any], simulated: bool) -> str:
    """Say in which form a point is predicted, and why."""
    if not simulated:
        return "fast form"
    if inputs["serve.simulate"] or _followed(inputs):
        return "every iteration simulated"
    if _needs_requests(inputs):
        return "simulated for serve.slo"
    return "simulated: the fast form may be far off"


def _needs_requests(inputs: Mapping[str, Any]) -> bool:
    """Say whether a limit is of a percentile of requests."""
    return bool(needs_requests(_serving(inputs))[0])


def _serving(inputs: Mapping[str, Any]) -> Inputs:
    """Return what is asked of a point's servers as columns."""
    return {key: np.array([value]) for key, value in inputs.items() if key.startswith("serve.")}


def unused_arrivals(inputs: Mapping[str, Any]) -> Iterator[str]:
    """Say of a point's file with times of arrival that these are not used, and what uses them."""
    if not _arrivals(inputs) or _followed(inputs):
        return
    needed = [] if inputs["serve.mode"] in _BATCHES else ["serve=continuous"]
    needed += ["serve.concurrency=0", *(["serve.rate='0 1/s'"] if inputs["serve.rate"] > 0.0 else [])]
    yield f"Times of arrival in {inputs[LENGTHS]} are not used: {' '.join(needed)} sends requests then"


def _arrivals(inputs: Mapping[str, Any]) -> int:
    """Return how many requests of a point's file have times of arrival."""
    return read_lengths(str(inputs[LENGTHS])).sent.size if LENGTHS in inputs else 0


def _followed(inputs: Mapping[str, Any]) -> int:
    """Return how many requests a point sends when its file says, 0 where it does not."""
    return int(arrivals_of_files(_serving(inputs))[0])


def _pace(inputs: Mapping[str, Any]) -> str:
    """Say when requests are sent."""
    at_once, rate = inputs["serve.concurrency"], inputs["serve.rate"]
    count, arrivals = _followed(inputs), _arrivals(inputs)
    if count:
        part = f"the first {count:,} of {arrivals:,}" if count < arrivals else f"all {count:,}"
        return f"{part} as they arrive"
    return f"{at_once:,} at a time" if at_once > 0 else f"{rate:.4g} a second, at random times"


def _lengths(inputs: Mapping[str, Any]) -> tuple[str, ...]:
    """Say how long requests are, in a line or two."""
    isl, osl, spread = (float(inputs[f"serve.{name}"]) for name in ("isl", "osl", "spread"))
    if LENGTHS in inputs:
        file = read_lengths(str(inputs[LENGTHS]))
        ends = [f"{column.min():,} to {column.max():,}" for column in (file.isl, file.osl)]
        how = f"those of {inputs[LENGTHS]}"
    elif spread == 0.0:
        return (f"Requests of {isl:,.0f} tokens with answers of {osl:,.0f}, all alike (serve.spread=0)",)
    else:
        tops = [float(longest(mean, spread)) for mean in (isl, osl)]
        ends = [f"{max(1.0, (1.0 - spread) * top):,.0f} to {top:,.0f}" for top in tops]
        how = "as benchmarks draw them" if spread == _BENCHMARKS else "evenly between"
        how = f"{how} (serve.spread={spread:g})"
    return f"Requests of {isl:,.0f} tokens on average ({ends[0]}), answers of {osl:,.0f} ({ends[1]})", how


def _has(row: Mapping[str, Any], name: str) -> bool:
    """Say whether a point has a value of a column."""
    value = row.get(name)
    return value is not None and value is not np.ma.masked and value == value


def _latencies(row: Mapping[str, Any], limits: Limits) -> Sheet:
    """Tell how long requests take; what limits are compared with stands last, beside what is allowed."""
    is_simulated = any(_has(row, f"{name}_p99_s") for name in _LATENCIES)
    parts = {"mean": "", "median": "_median", "99%": "_p99"} if is_simulated else {"mean": ""}
    limited = any(most > 0.0 for most in limits.most.values())
    met_so_far = "[bold red]met so far[/]" if is_overload(str(row["reason"])) else "met"
    if limited:
        at = f"{limits.percentile:g}%" if is_simulated and limits.percentile > 0.0 else "mean"
        at = "median" if at == "50%" else at
        parts[at] = parts.pop(at, "_slo")
    allowed = [("allowed", True), ("", False)] if limited else []
    names = [("", False), *((name, True) for name in parts), *allowed]
    sheet = new_sheet("Time that a request takes", names)
    for name, what in _LATENCIES.items():
        if not _has(row, f"{name}_s"):
            continue
        cells = [quantity(f"{name}{part}_s", row[f"{name}{part}_s"]) for part in parts.values()]
        if limited:
            most = limits.most[name]
            met = "[bold red]missed[/]" if row[COMPARED[name]] > most else met_so_far
            cells += [units.show(most, "s"), met] if most > 0.0 else ["any", ""]
        sheet.add_row(f"{what} ({name}_s)", *cells)
    return sheet


def _rates(row: Mapping[str, Any], rate: float) -> Sheet:
    sheet = new_sheet("Rates", [("", False), ("", True), ("", False)])
    replicas = int(row["replicas"])
    for label, name in _RATES:
        if _has(row, name):
            notes = []
            if name == "requests_per_s":
                notes += [f"of {quantity(name, rate)} that are sent"] if rate > 0.0 else []
                notes += ["stationary"] if _has(row, "stationary") and row["stationary"] else []
            sheet.add_row(label, quantity(name, row[name]), ", ".join(notes))
    most = f"of at most {row['most_requests']:,.0f} that caches hold"
    sheet.add_row("requests in flight", f"{row['batch_in_flight']:,.1f}", most)
    if replicas > 1:
        sheet.add_row("", "", f"on {replicas:,} servers that share nothing")
    if _has(row, "queue"):
        sheet.add_row("requests waiting", f"{row['queue']:,.2f}", "to start")
    if _has(row, "preemptions"):
        sheet.add_row("preemptions", f"{row['preemptions']:,.0f}", "requests that gave their places up")
    return sheet


def _of_prompts(row: Mapping[str, Any]) -> bool:
    """Say whether a point is one pass over prompts, which makes no tokens of its own."""
    return not _has(row, "tpot_s")


def _time(row: Mapping[str, Any]) -> Sheet:
    """Tell what an iteration is made of, and what limits those of each kind."""
    of_prompts = _of_prompts(row)
    title = (
        "Where a pass over prompts spends its time" if of_prompts else "Where an iteration spends its time"
    )
    sheet = new_sheet(title, [("", False), ("time", True), ("share", True), ("", False)])
    total = row["time_s"]
    parts = {"exchange": "waits for the network", "serve_host": "the server's own work"}
    is_stalled = row.get("pipeline_stall_s", 0.0) > 0.0
    if is_stalled:
        parts["pipeline_stall"] = "waits for the slowest stage, until it is done with the other batches"
    rest = total - sum(row[f"{name}_s"] for name in parts)
    note = "of all pipeline stages, one after the other" if is_stalled else ""
    sheet.add_row("kernels", units.show(float(rest), "s"), f"{rest / total:.1%}", note)
    for name, note in parts.items():
        label = name.removeprefix("serve_").replace("_", " ")
        sheet.add_row(label, quantity(f"{name}_s", row[f"{name}_s"]), f"{row[f'{name}_s'] / total:.1%}", note)
    sheet.add_section()
    sheet.add_row("total", quantity("time_s", total), "", "" if of_prompts else "without prompts")
    if _has(row, "prefill_share"):
        sheet.add_row("", "", "", f"{row['prefill_share']:.1%} of the iterations work on prompts too")
    return sheet


def _memory(row: Mapping[str, Any]) -> Sheet:
    sheet = new_sheet("Memory of a device", [("", False), ("memory", True), ("share", True), ("", False)])
    there, room = row["dram_capacity_B"], row["kv_room_B"]
    token = f"{quantity('kv_token_B', row['kv_token_B'])} a token"
    rest = row["footprint_B"] - row["weight_B"] - row["kv_B"]
    for label, size, note in (
        ("weights", row["weight_B"], ""),
        ("caches in use", row["kv_B"], f"{token}; room for {quantity('kv_room_B', room)}"),
        ("work space", rest, ""),
    ):
        sheet.add_row(label, units.show(float(size), "B"), f"{size / there:.1%}", note)
    sheet.add_section()
    total = quantity("footprint_B", row["footprint_B"])
    label = f"total of {quantity('dram_capacity_B', there)}"
    sheet.add_row(label, total, f"{row['footprint_B'] / there:.1%}", "")
    return sheet


def conclusion(row: Mapping[str, Any]) -> Iterator[Part]:
    """Yield what limits servers, what they take, how far such answers were off, and if they are feasible."""
    bounds = []
    for phase in ("prefill", "decode"):
        by = str(row[f"{phase}_bound_by"]) if f"{phase}_bound_by" in row else ""
        if by and by not in ("None", "--"):
            bounds.append(f"{phase} by {by}" + (f" ({_LIMITERS[by]})" if by in _LIMITERS else ""))
    yield f"Bound by     {', '.join(bounds)}"
    each = "a token of a prompt" if _of_prompts(row) else "an output token"
    power = f"{quantity('power_W', row['power_W'])} a device"
    yield f"Energy       {quantity('joules_per_token', row['joules_per_token'])} for {each}, {power}"
    if _has(row, "meets_slo") and row["meets_slo"]:
        yield "Times        within serve.slo"
    yield from assumption_lines([row])
    yield from no_effect(row)
    yield from validation_lines([row])
    if not row["feasible"]:
        yield f"[bold red]Not feasible[/] {row['reason']}"
