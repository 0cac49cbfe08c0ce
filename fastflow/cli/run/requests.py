"""Generated requests: drawn, written and summarised."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fastflow.config.messages import COMMAND_LINE
from fastflow.core.errors import InputError
from fastflow.physics.workload.trace_distributions import (
    Arrivals,
    Independent,
    Lognormal,
    sigma_of,
    sinusoidal,
)
from fastflow.physics.workload.trace_file import write_trace
from fastflow.physics.workload.trace_generators import Sessions, generate_trace
from fastflow.reporting.terminal.requests import show_requests


def run(path: str, values: Mapping[str, Any], published: Mapping[str, float]) -> None:
    """Write the requests that keys of `schema.requests` describe, and print what they are.

    published: statistics of the trace that a preset describes. Raises InputError for a file that cannot be
    written, and for sessions that never fit max_context.
    """
    peak = float(values["peak_to_mean"])
    profile = sinusoidal(peak, float(values["peak_hour"])) if peak > 1.0 else ()
    arrivals = Arrivals(values["rate"], values["burstiness"], profile)
    lengths = Independent(*(Lognormal(values[name], _sigma(values, name)) for name in ("isl", "osl")))
    sessions = Sessions(
        turns=values["turns"], think_time=values["think_time"], tool_share=values["tool_share"],
        tool_time=values["tool_time"], max_context=values["max_context"], adapters=values["adapters"],
        adapter_skew=values["adapter_skew"],
    )  # fmt: skip
    trace = generate_trace(
        values["sessions"], arrivals, lengths, sessions, shared_prefix=values["shared_prefix"],
        seed=values["seed"],
    )  # fmt: skip
    try:
        write_trace(trace, path)
    except OSError as error:
        raise InputError("output", path, f"a file that can be written ({error.strerror or error})") from None
    show_requests(trace, path, values["shared_prefix"], published)


def _sigma(values: Mapping[str, Any], name: str) -> float:
    """Return the sigma of a length: that of its median, where there is one; raises InputError."""
    key = f"{name}_median"
    mean, median = values[name], values[key]
    if not median:
        return float(values["sigma"])
    if median > mean:
        allowed = f"at most {name}, {mean:g}, as of all log-normal lengths"
        raise InputError(key, f"{median:g}", allowed, COMMAND_LINE)
    return sigma_of(mean, median)
