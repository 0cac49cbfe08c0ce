"""The requests of a fleet as a trace: what waits and runs on each rank, and the state of the fleet.

The format is Chrome's trace events as JSON, which ui.perfetto.dev opens: a process for each server, with a
request as a bar from its first start to its end, and a process for the fleet with counters.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from fastflow.performance.serving.fleet.run import FleetRun

Event = dict[str, Any]
MAX_REQUESTS = 20_000
"""Requests that are drawn: of longer traces, the first ones. A browser shows no more."""
_MICRO = 1e6


def trace_fleet(run: FleetRun) -> list[Event]:
    """Return the events of a simulated fleet, ready to be written as JSON."""
    return [*_names(run), *_requests(run), *_counters(run)]


def _names(run: FleetRun) -> Iterator[Event]:
    yield _name(0, "fleet")
    for server in range(run.members.pool.size):
        kind = ("prefill ", "decode ")[run.members.pool[server]] if run.is_split else ""
        yield _name(server + 1, f"{kind}server {server}")


def _name(process: int, name: str) -> Event:
    return {"ph": "M", "pid": process, "name": "process_name", "args": {"name": name}}


def _requests(run: FleetRun) -> Iterator[Event]:
    """Yield two bars for each request: until its first token, and until its end."""
    requests, served, count = run.result.requests, run.result.served, run.trace.isl.size
    for i in np.argsort(served.arrived, kind="stable")[:MAX_REQUESTS].tolist():
        process, track = int(served.rank[i]) // run.ranks + 1, i
        about = {
            "request": i % count, "prompt": int(requests.isl[i]), "answer": int(requests.osl[i]),
            "cached": int(served.cached[i]), "read": int(served.read[i]),
            "session": int(run.trace.session[i % count]),
        }  # fmt: skip
        times = (
            ("waits", served.arrived[i], requests.admitted[i]),
            ("prompt", requests.admitted[i], requests.first[i]),
            ("answer", requests.first[i], requests.end[i]),
        )
        for name, start, end in times:
            yield {
                "ph": "b", "cat": "request", "id": track, "pid": process, "name": name,
                "ts": float(start) * _MICRO, "args": about,
            }  # fmt: skip
            yield {
                "ph": "e", "cat": "request", "id": track, "pid": process, "name": name,
                "ts": float(end) * _MICRO,
            }  # fmt: skip


def _counters(run: FleetRun) -> Iterator[Event]:
    """Yield the state of the fleet over time."""
    timeline = run.result.timeline
    for i, at in enumerate(timeline.time.tolist()):
        tiers = {
            f"kept: {name}": float(tokens)
            for name, tokens in zip(run.tiers, timeline.cached_tokens[i], strict=True)
        }
        counters = {
            "requests": {"waiting": float(timeline.waiting[i]), "running": float(timeline.running[i])},
            "servers": {"open": float(timeline.open[i]), "starting": float(timeline.starting[i])},
            "tokens in caches": {"in use": float(timeline.used_tokens[i])} | tiers,
        }
        for name, values in counters.items():
            yield {"ph": "C", "pid": 0, "name": name, "ts": at * _MICRO, "args": values}
