"""A trace of requests on the screen: how many, when, and their lengths."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from fastflow.core import units
from fastflow.core.tables import Floats, Ints
from fastflow.physics.workload.request_order import RequestTrace
from fastflow.physics.workload.trace_statistics import reuse
from fastflow.reporting.terminal.tables import console, new_sheet

_STATISTICS = ("mean", "median", "90%", "99%", "longest")


def show_requests(trace: RequestTrace, path: str, shared_prefix: int, published: Mapping[str, float]) -> None:
    """Print what requests of a file are.

    shared_prefix: tokens at the start of each session. published: statistics of `Preset`.
    """
    out, arrivals = console(), trace.sent[~trace.waits]
    sessions = np.unique(trace.session[trace.session >= 0]).size
    of_sessions = f" in {sessions:,} sessions" if sessions else ""
    span = units.show(float(arrivals.max(initial=0.0)), "s")
    out.print(f"{trace.isl.size:,} requests{of_sessions}, whose first ones arrive within {span}")
    sheet = new_sheet("Lengths [tokens]", [("", False), *((name, True) for name in _STATISTICS)])
    for name, key, tokens in (("prompt", "isl", trace.isl), ("answer", "osl", trace.osl)):
        sheet.add_row(name, *(f"{value:,.0f}" for value in _statistics(tokens)))
        said = [published.get(f"{key}_{statistic}") for statistic in _STATISTICS]
        if any(said):
            sheet.add_row("  published", *("" if value is None else f"{value:,.0f}" for value in said))
    out.print(sheet)
    share = reuse(trace, shared_prefix)
    if share:
        of_trace = f"; published: {published['reuse']:.1%}" if "reuse" in published else ""
        out.print(f"Of the prompts' tokens, a cache of any size has {share:.1%}{of_trace}")
    prefix = f" serve.shared_prefix={shared_prefix}" if shared_prefix else ""
    out.print(f"Requests: {path}; serve=continuous serve.trace={path}{prefix} sends them")


def _statistics(tokens: Ints) -> Floats:
    return np.array([tokens.mean(), *np.percentile(tokens, (50, 90, 99)), tokens.max()])
