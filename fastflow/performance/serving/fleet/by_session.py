"""Results of sessions as a whole: how long they last, and how long their users wait for answers."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fastflow.core.tables import Floats
from fastflow.performance.serving.fleet.run import RequestResults
from fastflow.physics.workload.request_order import RequestTrace


class SessionTimes(NamedTuple):
    """Times of sessions [s]; (sessions,), those without a request that was sent left out."""

    duration: Floats  # from sending its first request to the last token of its last answer
    wait: Floats  # of its requests from sending to their last tokens, all together


def session_times(file: RequestTrace, results: RequestResults) -> SessionTimes:
    """Return the times of sessions; file: whose first requests were sent."""
    session = file.session[: results.isl.size]
    rows, count = session >= 0, int(session.max(initial=-1)) + 1
    of, sent, e2e = session[rows], results.ended.sent[rows], results.e2e_s[rows]
    first, last, wait = np.full(count, np.inf), np.full(count, -np.inf), np.zeros(count)
    np.minimum.at(first, of, sent)
    np.maximum.at(last, of, sent + e2e)
    np.add.at(wait, of, e2e)
    is_sent = first < np.inf
    return SessionTimes((last - first)[is_sent], wait[is_sent])


def later_hit_rate(file: RequestTrace, results: RequestResults) -> float:
    """Return the share of the prompts of later turns that the cache has, over all their tokens; NaN: none."""
    later = file.turn[: results.isl.size] > 0  # of a session: a request without one is a first turn
    prompts = int(results.isl[later].sum())
    return float(results.cached[later].sum() / prompts) if prompts else np.nan
