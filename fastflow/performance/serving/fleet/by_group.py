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

    file: whose first requests were sent; duration: of the run [s]. An object for each class is as
    `_statistics` says.
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
    statistics = {name: _statistics(results, rows, duration) for name, rows in groups.items() if rows.any()}
    return json.dumps(statistics) if statistics else ""


def _statistics(results: RequestResults, rows: Bools, duration: float) -> dict[str, float]:
    """Return the results of some requests.

    `requests`, their number; `ttft_p50_s` and so on [s], without those of a time that no request has;
    `goodput_per_s`, requests within the limits a second; `prefix_hit_rate` and `tier_hit_rate`, shares of
    the tokens of their prompts.
    """
    statistics: dict[str, float] = {"requests": int(rows.sum())}
    for name, column in (("ttft", results.ttft_s), ("tpot", results.tpot_s), ("e2e", results.e2e_s)):
        values = column[rows & ~np.isnan(column)]
        if values.size:
            percentiles = np.percentile(values, PERCENTILES).tolist()
            statistics |= {f"{name}_p{p}_s": value for p, value in zip(PERCENTILES, percentiles, strict=True)}
    prompts = results.isl[rows].sum()
    return statistics | {
        "goodput_per_s": float(results.within[rows].sum() / duration),
        "prefix_hit_rate": float(results.cached[rows].sum() / prompts),
        "tier_hit_rate": float(results.read[rows].sum() / prompts),
    }
