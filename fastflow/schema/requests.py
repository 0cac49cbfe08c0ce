"""Keys of `fastflow requests`, which generates traces of requests (docs/fleets.md)."""

from __future__ import annotations

from fastflow.core.field import Column, count, fraction, nonnegative, positive

GENERATED: tuple[Column, ...] = (
    count("sessions", "number of sessions; with turns=1, of requests", high=1e7),
    positive("rate", "1/s", "sessions that begin in a second, on average"),
    positive(
        "burstiness",
        "",
        "shape of the gamma distribution of times between sessions; 1: Poisson; less: burstier"
        " (--burstiness of vLLM's benchmark)",
    ),
    Column("peak_to_mean", "float", "", "highest rate of the day over the mean rate; 1: no day", 1.0, 2.0),
    Column("peak_hour", "float", "", "hour of the highest rate", 0.0, 24.0),
    Column("isl", "float", "", "new tokens of a turn, on average", 1.0, 1e9),
    Column("osl", "float", "", "tokens of an answer, on average", 1.0, 1e9),
    nonnegative("isl_median", "", "median of isl, instead of sigma; 0: sigma says it"),
    nonnegative("osl_median", "", "median of osl, instead of sigma; 0: sigma says it"),
    nonnegative(
        "sigma", "", "standard deviation of the logarithm of both lengths (log-normal); 0: all are equal"
    ),
    Column("turns", "float", "", "turns of a session, on average", 1.0, 1e4),
    nonnegative("think_time", "s", "mean time from the end of an answer to the next turn (exponential)"),
    fraction("tool_share", "share of later turns that follow a tool's call, after tool_time"),
    nonnegative("tool_time", "s", "mean time of a tool's call (exponential)"),
    count("shared_prefix", "tokens at the start of every session: serve.shared_prefix has as many", low=0),
    count("max_context", "most tokens of a prompt with its answer, where a session ends; 0: any", low=0),
    count("adapters", "adapters, or models, of which each session names one; 0: none", low=0, high=1e7),
    nonnegative("adapter_skew", "", "exponent of their popularity (power law); 0: all are alike"),
    count("seed", "seed of the random numbers", low=0),
)
DEFAULTS: dict[str, str | int | float] = {
    "sessions": 1000, "rate": "1 1/s", "burstiness": 1, "peak_to_mean": 1, "peak_hour": 14, "isl": 512,
    "osl": 256, "isl_median": 0, "osl_median": 0, "sigma": 0.7, "turns": 1, "think_time": "10 s",
    "tool_share": 0, "tool_time": "2 s", "shared_prefix": 0, "max_context": 0, "adapters": 0,
    "adapter_skew": 0, "seed": 0,
}  # fmt: skip
"""Values of keys that a command line does not have."""
