"""Results of serving a model: latencies, rates, the breakdown of time, limiters, memory, energy."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from rich.table import Table as Sheet

from fastflow.core import units
from fastflow.core.reasons.codes import Code
from fastflow.core.tables import Inputs
from fastflow.performance.serving.requests.lengths import REQUESTS, arrivals_of_files, file_key, read_requests
from fastflow.performance.serving.requests.load import longest
from fastflow.performance.serving.slo import PERCENTILE, needs_requests, ordinal
from fastflow.physics.workload.request_trace import KEY as TRACE
from fastflow.reporting.terminal.carbon import carbon_lines
from fastflow.reporting.terminal.cost import cost_sheet
from fastflow.reporting.terminal.latencies import Limits, group_sheets, latency_sheet, limits_of
from fastflow.reporting.terminal.percentiles import band_sheet, has_bands
from fastflow.reporting.terminal.point import chip_sheet, num_levels
from fastflow.reporting.terminal.power_limits import device_limits, site_limit_lines
from fastflow.reporting.terminal.tables import (
    Part,
    assumption_lines,
    console,
    has_value,
    new_sheet,
    no_effect_lines,
    point_title,
    print_parts,
    quantity,
    validation_lines,
)
from fastflow.schema import OF_ATTENTION, OF_ENCODER, OF_PREFILL
from fastflow.schema.routing import KEY as ROUTER
from fastflow.schema.serving import CONTINUOUS, DISAGGREGATED, ONE_DECODE, ONE_PREFILL

_RATES = (
    ("output tokens", "tokens_per_s"),
    ("  per device", "tokens_per_s_per_device"),
    ("  per user", "tokens_per_s_per_user"),
    ("prompt tokens", "prefill_tokens_per_s"),
    ("requests", "requests_per_s"),
)
_PARTS = {"exchange": "communication", "serve_host": "host"}
_LIMITERS = {
    "compute": "arithmetic",
    "dram": "main memory",
    "network": "communication between devices",
    "launch": "kernel launches",
    "weight_tiers": "weights from lower tiers of memory",
    "host": "the server's own work between steps",
}


def show_served(
    row: Mapping[str, Any], inputs: Mapping[str, Any], chips: Mapping[str, Mapping[str, Any]]
) -> None:
    """Print one point that serves; inputs: of the point, scalars by dotted key.

    chips: result columns of further chips, those of `schema.OTHER_CHIPS` that the point has.
    """
    out = console()
    out.print(title(row))
    for line in load_of(inputs, bool(has_value(row, "simulated") and row["simulated"])):
        out.print(line)
    for line in image_lines(row, inputs):
        out.print(line)
    limits = limits_of(inputs)
    # memory for caches is that of the devices of attention, where there are any
    shown = {**row, "dram_offered_B": chips.get(OF_ATTENTION, row)["dram_offered_B"]}
    times, *others = served_sheets(shown, limits, float(inputs["serve.request_rate"]))
    print_parts((times, *group_sheets(row), *others))
    out.print(chip_sheet(row, num_levels(row), chip_title(row)))
    for prefix, chip in chips.items():
        out.print(chip_sheet(chip, num_levels(chip), f"{_CHIP_TITLE} of {_OTHER_CHIPS[prefix]}"))
    out.print(cost_sheet(row, inputs))
    if has_bands(row):
        out.print(band_sheet(row))
    out.print()
    print_parts(conclusion(row, inputs))
    print_parts(stationarity_lines(row, int(inputs["serve.num_requests"])))
    out.print()


def title(row: Mapping[str, Any]) -> str:
    """Return the title of a point that serves."""
    return f"{point_title(row)}{', ' if row.get('dtype') else ''}{row.get('dtype') or ''}"


_CHIP_TITLE = "Chip"
_OTHER_CHIPS = {OF_PREFILL: "prefill", OF_ATTENTION: "attention", OF_ENCODER: "encoders"}


def chip_title(row: Mapping[str, Any]) -> str:
    """Return the title of the chip of a row: the decode chip of a disaggregated system."""
    return (
        f"{_CHIP_TITLE} of decode"
        if has_value(row, "prefill_devices") and row["prefill_devices"] > 0
        else _CHIP_TITLE
    )


def served_sheets(row: Mapping[str, Any], limits: Limits, rate: float = 0.0) -> tuple[Sheet, ...]:
    """Return the latencies, the rates, the time of a step and the memory of a point that serves.

    rate: of requests at random times [1/s], 0 if unknown.
    """
    return latency_sheet(row, limits), _rates(row, rate), _time(row), _memory(row)


def stationarity_lines(row: Mapping[str, Any], requests: int) -> Iterator[Part]:
    """Yield a line on an open loop that is not stationary; requests: of serve.num_requests."""
    if not has_value(row, "stationary") or row["stationary"]:
        return
    if row["reason_code"] == Code.OVERLOAD.label:
        yield "Times are those seen so far: they grow for as long as requests are sent"
    elif requests > 0:
        yield (
            f"[bold red]Not stationary[/] after {requests:,} requests:"
            " serve.num_requests=0 goes on until it is"
        )
    else:
        yield (
            "[bold red]Not stationary[/] in the longest run, so times may still grow: a larger"
            " serve.num_requests goes on for longer; at a lower serve.request_rate it takes less"
        )


_BENCHMARK_RATIO = 0.2  # serve.length_range_ratio of conf/serve
_BATCHES = {CONTINUOUS: "continuous batching", DISAGGREGATED: "disaggregated prefill and decode"}


def load_of(inputs: Mapping[str, Any], simulated: bool = False) -> Iterator[str]:
    """Yield lines on the load of servers, and on arrival times that are not used.

    inputs: of one point, with the mean lengths of its file. simulated: whether every step was simulated.
    """
    mode, isl, osl, batch = (inputs[f"serve.{name}"] for name in ("mode", "isl", "osl", "batch"))
    if mode == ONE_PREFILL:
        yield f"One pass over {batch:,} x {isl:,.0f} tokens of prompts"
    elif mode == ONE_DECODE:
        context = inputs["serve.context"] or isl + osl / 2.0
        yield f"One pass that decodes {batch:,} requests with {context:,.0f} tokens each in the cache"
    else:
        *lengths, distribution = _lengths(inputs)
        yield from lengths
        router = f"; router {inputs[ROUTER]}" if TRACE in inputs else ""
        method = f"{_BATCHES[mode]}, {_method(inputs, simulated)}"
        yield f"{distribution}, {_arrival_text(inputs)}{router}; {method}"
        if simulated:
            yield from _percentile_lines(inputs)
        elif _needs_requests(inputs):
            yield "serve.slo is compared with means: percentiles need a long simulation (serve.simulate=true)"
    yield from unused_arrival_lines(inputs)


def image_lines(row: Mapping[str, Any], inputs: Mapping[str, Any]) -> Iterator[str]:
    """Yield a line on the images of a request: their tokens, and the time of their pass."""
    images = inputs.get("serve.images", 0)
    if images and has_value(row, "encode_s"):
        count = "an image" if images == 1 else f"{images:,} images"
        sides = f"{inputs['serve.image_size']} pixels" + ("" if images == 1 else " each")
        in_prompt = "among those of the file" if file_key(inputs) else "more tokens of the prompt"
        seconds = quantity("encode_s", row["encode_s"])
        yield (
            f"With {count} of {sides}: {row['image_tokens']:,.0f} {in_prompt},"
            f" {seconds} of the vision tower (encode_s)"
        )
        if devices := int(row.get("encoder_devices") or 0):
            wait, sending = (quantity(name, row[name]) for name in ("encode_wait_s", "embedding_transfer_s"))
            yield (
                f"Encoders: {devices:,} {'device' if devices == 1 else 'devices'}, busy"
                f" {row['encoder_utilization']:.0%}; a request waits {wait} for one,"
                f" its embeddings take {sending} to a server"
            )


def _percentile_lines(inputs: Mapping[str, Any]) -> Iterator[str]:
    """Yield a line if a percentile has too few requests, as the 99th of fewer than 100."""
    percentile, requests = inputs[PERCENTILE], inputs["serve.num_requests"] or _num_replayed(inputs)
    requests = requests or REQUESTS * inputs["serve.concurrency"]  # 0: an open loop, of hundreds
    needed = math.ceil(100.0 / (100.0 - percentile) - 1e-6) if percentile < 100.0 else 0
    if 0 < requests < needed and _needs_requests(inputs):
        limit = f"the {ordinal(percentile)} percentile of {requests:,} requests"
        yield f"serve.slo is compared with {limit}, near their maximum: it takes {needed:,}"


def _method(inputs: Mapping[str, Any], simulated: bool) -> str:
    """Return the method of prediction, and its reason."""
    if not simulated:
        return "analytic estimate"
    if inputs["serve.simulate"] or _num_replayed(inputs):
        return "every step simulated"
    if _needs_requests(inputs):
        return "simulated for serve.slo"
    return "simulated: the analytic estimate may be far off"


def _needs_requests(inputs: Mapping[str, Any]) -> bool:
    """Return whether a limit is on a percentile of requests."""
    return bool(needs_requests(_serving_inputs(inputs))[0])


def _serving_inputs(inputs: Mapping[str, Any]) -> Inputs:
    """Return the inputs of a point's servers as columns."""
    return {key: np.array([value]) for key, value in inputs.items() if key.startswith("serve.")}


def unused_arrival_lines(inputs: Mapping[str, Any]) -> Iterator[str]:
    """Yield a line if the arrival times of a point's file are not used, with the options that use them."""
    if not _num_arrival_times(inputs) or _num_replayed(inputs):
        return
    needed = [] if inputs["serve.mode"] in _BATCHES else ["serve=continuous"]
    needed += (
        []
        if TRACE in inputs
        else [
            "serve.concurrency=0",
            *(["serve.request_rate='0 1/s'"] if inputs["serve.request_rate"] > 0.0 else []),
        ]
    )
    file = inputs[file_key(inputs)]
    yield f"Times of arrival in {file} are not used: {' '.join(needed)} sends requests then"


def _num_arrival_times(inputs: Mapping[str, Any]) -> int:
    """Return the number of requests of a point's file with arrival times."""
    key = file_key(inputs)
    return read_requests(key, str(inputs[key])).sent.size if key else 0


def _num_replayed(inputs: Mapping[str, Any]) -> int:
    """Return the number of requests that a point sends at the arrival times of its file, 0 for none."""
    return int(arrivals_of_files(_serving_inputs(inputs))[0])


def _arrival_text(inputs: Mapping[str, Any]) -> str:
    """Return the arrivals of requests in words."""
    concurrency, rate = inputs["serve.concurrency"], inputs["serve.request_rate"]
    count, arrivals = _num_replayed(inputs), _num_arrival_times(inputs)
    if count:
        share = f"the first {count:,} of {arrivals:,}" if count < arrivals else f"all {count:,}"
        return f"{share} as they arrive"
    return f"{concurrency:,} at a time" if concurrency > 0 else f"{rate:.4g} a second, at random times"


def _lengths(inputs: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the lengths of requests in one or two lines."""
    isl, osl, range_ratio = (float(inputs[f"serve.{name}"]) for name in ("isl", "osl", "length_range_ratio"))
    if key := file_key(inputs):
        file = read_requests(key, str(inputs[key]))
        ranges = [f"{column.min():,} to {column.max():,}" for column in (file.isl, file.osl)]
        source = f"those of {inputs[key]}"
    elif range_ratio == 0.0:
        return (
            f"Requests of {isl:,.0f} tokens with answers of {osl:,.0f}, all alike"
            " (serve.length_range_ratio=0)",
        )
    else:
        longest_lengths = [float(longest(mean, range_ratio)) for mean in (isl, osl)]
        ranges = [
            f"{max(1.0, (1.0 - range_ratio) * longest_length):,.0f} to {longest_length:,.0f}"
            for longest_length in longest_lengths
        ]
        source = "as benchmarks draw them" if range_ratio == _BENCHMARK_RATIO else "evenly between"
        source = f"{source} (serve.length_range_ratio={range_ratio:g})"
    return (
        f"Requests of {isl:,.0f} tokens on average ({ranges[0]}), answers of {osl:,.0f} ({ranges[1]})",
        source,
    )


def _rates(row: Mapping[str, Any], rate: float) -> Sheet:
    sheet = new_sheet("Rates", [("", False), ("", True), ("", False)])
    replicas = int(row["replicas"])
    for label, name in _RATES:
        if has_value(row, name):
            notes = []
            if name == "requests_per_s":
                notes += [f"of {quantity(name, rate)} that are sent"] if rate > 0.0 else []
                notes += ["stationary"] if has_value(row, "stationary") and row["stationary"] else []
            sheet.add_row(label, quantity(name, row[name]), ", ".join(notes))
    if has_value(row, "goodput_per_s"):
        share = row["goodput_per_s"] / row["requests_per_s"]
        sheet.add_row("  within serve.slo", quantity("goodput_per_s", row["goodput_per_s"]), f"{share:.1%}")
    max_text = f"the KV cache has room for {row['max_concurrent_requests']:,.0f}"
    sheet.add_row("requests in flight", f"{row['running_requests']:,.1f}", max_text)
    if replicas > 1:
        kind = "servers behind a router" if has_value(row, "prefix_hit_rate") else "independent servers"
        sheet.add_row("", "", f"on {replicas:,} {kind}")
    if has_value(row, "waiting_requests"):
        sheet.add_row("requests waiting", f"{row['waiting_requests']:,.2f}", "to start")
    if has_value(row, "prefix_hit_rate"):
        read = f"of all tokens of prompts; {row['tier_hit_rate']:.1%} read from lower tiers"
        sheet.add_row("prompts in the cache", f"{row['prefix_hit_rate']:.1%}", read)
    if has_value(row, "preemptions"):
        sheet.add_row("preemptions", f"{row['preemptions']:,.0f}", "requests put back into the queue")
    return sheet


def _is_prefill(row: Mapping[str, Any]) -> bool:
    """Return whether a point is one pass of prefill, which has no output tokens."""
    return not has_value(row, "tpot_s")


def _time(row: Mapping[str, Any]) -> Sheet:
    """Return the parts of the time of a step as a table."""
    is_prefill = _is_prefill(row)
    title = "Where a pass over prompts spends its time" if is_prefill else "Where a step spends its time"
    sheet = new_sheet(title, [("", False), ("time", True), ("share", True), ("", False)])
    total = row["time_s"]
    others = {"exchange": "exposed: kernels wait for it", "serve_host": "the server's own work"}
    is_stalled = row.get("pipeline_stall_s", 0.0) > 0.0
    if is_stalled:
        others["pipeline_stall"] = "waits for the slowest stage, until it is done with the other batches"
    if row.get("weight_read_s", 0.0) > 0.0:
        read = quantity("weight_read_B", row["weight_read_B"])
        others["weight_read"] = f"waits for {read} of weights from lower tiers of memory"
    kernels_s = total - sum(row[f"{name}_s"] for name in others)
    note = "of all pipeline stages, one after the other" if is_stalled else ""
    sheet.add_row("kernels", units.show(float(kernels_s), "s"), f"{kernels_s / total:.1%}", note)
    for name, note in others.items():
        label = _PARTS.get(name, name.replace("_", " "))
        sheet.add_row(label, quantity(f"{name}_s", row[f"{name}_s"]), f"{row[f'{name}_s'] / total:.1%}", note)
    sheet.add_section()
    sheet.add_row("total", quantity("time_s", total), "", "" if is_prefill else "of a step without prompts")
    if has_value(row, "prefill_share"):
        sheet.add_row("", "", "", f"{row['prefill_share']:.1%} of the steps process prompts too")
    return sheet


_BESIDE = {
    "workspace": "workspace", "libraries": "library", "graphs": "graph", "communicators": "communicator",
    "context": "context",
}  # fmt: skip


def _in_lower_tiers(row: Mapping[str, Any]) -> str:
    """Return how many more weights are in lower tiers of memory, "" for none."""
    offloaded = row.get("offloaded_B", 0.0)
    return f"{quantity('offloaded_B', offloaded)} more in lower tiers" if offloaded > 0.0 else ""


def _memory(row: Mapping[str, Any]) -> Sheet:
    others = float(row.get("other_devices_footprint_B") or 0.0)
    which = "Memory of a device" + (" of attention" if others > 0.0 else "")
    sheet = new_sheet(which, [("", False), ("memory", True), ("share", True), ("", False)])
    capacity, kv_capacity = row["dram_offered_B"], row["kv_cache_capacity_B"]
    token = f"{quantity('kv_token_B', row['kv_token_B'])} per token"
    if row["kv_window_token_B"] > 0.0:
        token += f", of which {quantity('kv_window_token_B', row['kv_window_token_B'])} within the window"
    if row["kv_state_B"] > 0.0:
        token += f", {quantity('kv_state_B', row['kv_state_B'])} of states per request"
    for label, size, note in (
        ("weights", row["weight_B"], _in_lower_tiers(row)),
        ("KV cache in use", row["kv_B"], f"{token}; capacity {quantity('kv_cache_capacity_B', kv_capacity)}"),
        *((name, row[f"{column}_B"], "") for name, column in _BESIDE.items() if row.get(f"{column}_B")),
    ):
        sheet.add_row(label, units.show(float(size), "B"), f"{size / capacity:.1%}", note)
    sheet.add_section()
    total = quantity("footprint_B", row["footprint_B"])
    label = f"total of {quantity('dram_offered_B', capacity)} that programs are offered"
    sheet.add_row(label, total, f"{row['footprint_B'] / capacity:.1%}", "")
    if others > 0.0:
        weights = quantity("other_devices_weight_B", row["other_devices_weight_B"])
        sheet.add_row("another device", units.show(others, "B"), "", f"weights {weights}")
    return sheet


def conclusion(row: Mapping[str, Any], inputs: Mapping[str, Any]) -> Iterator[Part]:
    """Yield the limiters of servers, their energy and carbon, their accuracy, and whether they are feasible.

    inputs: of the point, as for `carbon_lines`.
    """
    bounds = []
    for phase in ("prefill", "decode"):
        limiter = str(row[f"{phase}_bound_by"]) if f"{phase}_bound_by" in row else ""
        if limiter and limiter not in ("None", "--"):
            bounds.append(
                f"{phase} by {limiter}" + (f" ({_LIMITERS[limiter]})" if limiter in _LIMITERS else "")
            )
    yield f"Bound by     {', '.join(bounds)}"
    unit = "a token of a prompt" if _is_prefill(row) else "an output token"
    power = f"{quantity('power_W', row['power_W'])} per device"
    power += device_limits(row)
    if has_value(row, "system_W"):
        power += f"; {quantity('system_W', row['system_W'])} at the site"
    yield f"Energy       {quantity('joules_per_token', row['joules_per_token'])} for {unit}, {power}"
    if has_value(row, "throttled_frac") and row["throttled_frac"] > 0.0:
        yield f"Power        the limit slows down {row['throttled_frac']:.0%} of kernel time"
    yield from site_limit_lines(row)
    yield from carbon_lines(row, inputs)
    if has_value(row, "meets_slo") and row["meets_slo"]:
        yield "Times        within serve.slo"
    yield from assumption_lines([row])
    yield from no_effect_lines(row)
    yield from validation_lines([row])
    if not row["feasible"]:
        yield f"[bold red]Not feasible[/] {row['reason']}"
