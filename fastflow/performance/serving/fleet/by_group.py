"""Results of groups of requests, as one text a point: of classes of service, and of turns of sessions."""

from __future__ import annotations

import json

import numpy as np

from fastflow.core.tables import Bools
from fastflow.performance.serving.fleet.run import RequestResults
from fastflow.physics.workload.request_order import RequestTrace

PERCENTILES = (50, 90, 95, 99)
TURNS = {"1": (0, 1), "2": (1, 2), "3-5": (2, 5), "6+": (5, None)}
"""Turns of a session that are one group: the first one, counted from 0, and the one after the last."""


def by_class(file: RequestTrace, results: RequestResults, duration: float) -> str:
    """Return the results of each class of service as JSON; "" where the requests have no classes.

    file: whose first requests were sent; duration: of the run [s]. An object for each class has `requests`,
    their number; `ttft_p50_s` and so on [s], without those of a time that no request has; `goodput_per_s`,
    requests within the limits a second; `prefix_hit_rate` and `tier_hit_rate`, shares of the tokens of their
    prompts.
    """
    return _as_json(groups_by_class(file, results.isl.size), results, duration)


def by_turn(file: RequestTrace, results: RequestResults, duration: float) -> str:
    """Return the results of requests by their turn, as TURNS names them, as JSON; "" without sessions.

    file, duration: as of `by_class`.
    """
    return _as_json(groups_by_turn(file, results.isl.size), results, duration)


def groups_by_class(file: RequestTrace, count: int) -> dict[str, Bools]:
    """Return which of a file's first requests are of each class of service, (count,)."""
    return {name: file.service_class[:count] == i for i, name in enumerate(file.class_names)}


def groups_by_turn(file: RequestTrace, count: int) -> dict[str, Bools]:
    """Return which of a file's first requests are of each group of turns of sessions, (count,)."""
    turn, has_session = file.turn[:count], file.session[:count] >= 0
    return {
        name: has_session & (turn >= first) & (turn < (np.inf if end is None else end))
        for name, (first, end) in TURNS.items()
    }


def _as_json(groups: dict[str, Bools], results: RequestResults, duration: float) -> str:
    """Return the results of groups that have requests; "" where none has."""
    groups = {name: rows for name, rows in groups.items() if rows.any()}
    statistics: dict[str, dict[str, float]] = {
        name: {"requests": int(rows.sum())} for name, rows in groups.items()
    }
    for time in ("ttft", "tpot", "e2e"):
        column = getattr(results, f"{time}_s")
        for name, rows in groups.items():
            values = column[rows & ~np.isnan(column)]
            if values.size:
                percentiles = np.percentile(values, PERCENTILES).tolist()
                statistics[name] |= {
                    f"{time}_p{p}_s": s for p, s in zip(PERCENTILES, percentiles, strict=True)
                }
    for name, rows in groups.items():
        prompts = results.isl[rows].sum()
        statistics[name] |= {
            "goodput_per_s": float(results.within[rows].sum() / duration),
            "prefix_hit_rate": float(results.cached[rows].sum() / prompts),
            "tier_hit_rate": float(results.read[rows].sum() / prompts),
        }
    return json.dumps(statistics) if statistics else ""
