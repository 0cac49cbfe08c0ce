"""Generated requests: sessions that arrive at random, each with turns that follow one another.

>>> from fastflow.physics.workload.trace_distributions import Arrivals, Independent, Lognormal, Uniform
>>> lengths = Independent(Lognormal(mean=500, sigma=1.0), Uniform(50, 150))
>>> trace = generate_trace(100, Arrivals(rate=2.0), lengths, Sessions(turns=4.0, think_time=10.0), seed=1)
>>> int((trace.turn == 0).sum())
100
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fastflow.core.tables import Floats, Ints
from fastflow.physics.workload.request_order import NONE, Requests, RequestTrace, order_requests
from fastflow.physics.workload.trace_columns import BLOCK_TOKENS
from fastflow.physics.workload.trace_distributions import Arrivals, Lengths

MAX_TURNS = 10_000  # of a session
MAX_REQUESTS = 50_000_000


class Sessions(NamedTuple):
    """Turns of sessions. Each turn but the first is sent some time after the answer before it has ended.

    turns: mean number of turns of a session. fixed: whether each session has this number, rounded; else
    it is geometric: after each turn the session goes on with probability 1 - 1 / turns.
    think_time: mean of the exponential time that a user takes before the next turn [s].
    tool_share: share of turns after the first that send the result of a tool, 0 to 1, each turn by chance.
    tool_time: mean of the exponential time that a tool takes [s].
    max_context: prompt and answer of a turn have at most this many tokens; a session ends before a turn that
    would have more. 0: no limit. A first turn is sent whatever its length.
    adapters: each session names one of so many; 0: none. adapter_skew: the k-th is drawn with a probability
    in proportion to k^-skew; 0: all alike.
    """

    turns: float = 1.0
    fixed: bool = False
    think_time: float = 0.0
    tool_share: float = 0.0
    tool_time: float = 0.0
    max_context: int = 0
    adapters: int = 0
    adapter_skew: float = 0.0


SINGLE = Sessions()
"""Requests without sessions."""


def generate_trace(
    count: int,
    arrivals: Arrivals,
    lengths: Lengths,
    sessions: Sessions = SINGLE,
    later: Lengths | None = None,
    shared_prefix: int = 0,
    seed: int = 0,
) -> RequestTrace:
    """Return generated requests by time of arrival; raises ValueError, or InputError of a file of lengths.

    count: number of sessions; without sessions, of requests. arrivals: of their first turns. lengths: of the
    first prompt, without the shared prefix, and its answer. later: of the new tokens of each later prompt and
    its answer; None: as `lengths`. shared_prefix: tokens that begin all prompts, as a system prompt does;
    give `prompt_texts` the same. seed: of NumPy's generator; equal arguments give equal traces.
    """
    _check(count, sessions, shared_prefix)
    random = np.random.default_rng(seed)
    started = arrivals.draw(count, random)
    turns = _turns(count, sessions, random)
    if turns.sum() > MAX_REQUESTS:
        raise ValueError(f"expected at most {MAX_REQUESTS:,} requests, not {turns.sum():,}")
    session = np.repeat(np.arange(count), turns)
    first = np.cumsum(turns) - turns
    turn = np.arange(session.size) - first[session]
    isl, osl = (lengths if later is None else later).draw(session.size, random)
    if later is not None:
        isl[first], osl[first] = lengths.draw(count, random)
    isl[first] += shared_prefix
    before = np.cumsum(isl + osl) - (isl + osl)
    isl = isl + before - before[first][session]  # the new tokens after all earlier ones
    wait = _waits(session.size, sessions, random)
    adapter = _adapters(count, sessions, random)[session]
    arrival = np.where(turn == 0, started[session], np.nan)
    if sessions.max_context:  # prompts of a session grow, so that all turns after a left out one are left out
        kept = (turn == 0) | (isl + osl <= sessions.max_context)
        session, turn, isl, osl, wait, arrival, adapter = (
            column[kept] for column in (session, turn, isl, osl, wait, arrival, adapter)
        )
    rows, none = session.size, np.full(session.size, NONE)
    is_single = sessions.turns == 1
    requests = Requests(
        line=np.arange(rows) + 1,
        isl=isl,
        osl=osl,
        arrival=arrival,
        wait=wait,
        session=none if is_single else session,
        turn=none if is_single else turn,
        service_class=none,
        adapter=adapter,
        deadline=np.full(rows, np.nan),
        hashes=np.zeros(rows, dtype=np.int64),
        hash_ids=np.zeros(0, dtype=np.int64),
    )
    return order_requests(requests, BLOCK_TOKENS)


def _check(count: int, sessions: Sessions, shared_prefix: int) -> None:
    """Raise ValueError for a parameter out of range."""
    for is_valid, allowed, value in (
        (1 <= count <= MAX_REQUESTS, f"1 to {MAX_REQUESTS:.0e} sessions", count),
        (1 <= sessions.turns <= MAX_TURNS, f"1 to {MAX_TURNS:,} turns on average", sessions.turns),
        (0 <= sessions.tool_share <= 1, "a share of tools from 0 to 1", sessions.tool_share),
        (sessions.think_time >= 0, "a think time from 0 s", sessions.think_time),
        (sessions.tool_time >= 0, "a time of tools from 0 s", sessions.tool_time),
        (sessions.max_context >= 0, "a limit of the context from 0 tokens", sessions.max_context),
        (0 <= sessions.adapters <= MAX_REQUESTS, f"0 to {MAX_REQUESTS:.0e} adapters", sessions.adapters),
        (sessions.adapter_skew >= 0, "a skew of adapters from 0", sessions.adapter_skew),
        (shared_prefix >= 0, "a shared prefix from 0 tokens", shared_prefix),
    ):
        if not is_valid:
            raise ValueError(f"expected {allowed}, not {value}")


def _turns(count: int, sessions: Sessions, random: np.random.Generator) -> Ints:
    """Return the number of turns of each session, (count,)."""
    if sessions.fixed:
        return np.full(count, round(sessions.turns))
    return np.minimum(random.geometric(1.0 / sessions.turns, count), MAX_TURNS)


def _adapters(count: int, sessions: Sessions, random: np.random.Generator) -> Ints:
    """Return the adapter of each session, (count,); NONE where there are none."""
    if sessions.adapters == 0:
        return np.full(count, NONE)
    share = np.arange(1.0, sessions.adapters + 1.0) ** -sessions.adapter_skew
    return random.choice(sessions.adapters, count, p=share / share.sum())


def _waits(rows: int, sessions: Sessions, random: np.random.Generator) -> Floats:
    """Return the time before each turn [s], (rows,); those of first turns are not used."""
    is_tool = random.random(rows) < sessions.tool_share
    return random.exponential(1.0, rows) * np.where(is_tool, sessions.tool_time, sessions.think_time)
