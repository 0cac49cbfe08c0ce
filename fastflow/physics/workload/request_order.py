"""Requests of sessions in the order of their arrivals, each with the request that is sent after its end."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fastflow.core.tables import Bools, Floats, Ints, compact, narrow
from fastflow.core.yaml_file import MistakeError

NONE = -1
"""Stands for no session, no follower, no class of service."""


class Requests(NamedTuple):
    """Requests in any order, as a file has them; shape (rows,) but for the hashes."""

    line: Ints  # a line of a file, which messages name
    isl: Ints  # tokens of the prompt
    osl: Ints  # tokens of the answer
    arrival: Floats  # [s]; NaN for a turn that is sent after the turn before it has ended
    wait: Floats  # from the end of the turn before to this one [s]; not read where there is an arrival
    session: Ints  # any numbers from 0; NONE for none
    turn: Ints  # any numbers from 0 that order a session; NONE: by time of arrival, or else line
    service_class: Ints  # an index of names; NONE for none
    adapter: Ints  # any numbers from 0 of adapters or models; NONE for none
    deadline: Floats  # longest time to the first token [s]; NaN for none of its own
    hashes: Ints  # how many blocks of the prompt have one
    hash_ids: Ints  # of all requests, (hashes of all,)


class RequestTrace(NamedTuple):
    """Requests by time of arrival; shape (rows,) but for the hashes and the names.

    Columns of whole numbers are of 32 bits where their values are, and other columns than lengths and times
    take no memory where all rows have the same value: a trace may have millions of requests.

    A turn that is sent after the end of the turn before it has the time of arrival of the last turn before
    it that has one, and comes after it. Turns of a session are in their order.
    """

    isl: Ints  # tokens of the whole prompt, all turns before this one included
    osl: Ints  # tokens of the answer
    sent: Floats  # after the first arrival [s]; where `waits`, after the end of the turn before [s]
    session: Ints  # from 0, by first arrival; NONE for none
    turn: Ints  # from 0, of its session
    follower: Ints  # index of the request that is sent after this one has ended; NONE for none
    waits: Bools  # whether it is the follower of another request
    hash_offsets: Ints  # of the first hash of each request, and their number, (rows + 1,)
    hash_ids: Ints  # of blocks of prompts; equal ones after equal ones are the same tokens, (hashes,)
    block_tokens: int  # of a block that has a hash; the last one of a prompt may be shorter
    service_class: Ints  # index of class_names; NONE for none
    adapter: Ints  # from 0, by first arrival; NONE for none
    deadline: Floats  # longest time to the first token [s]; NaN for none of its own
    class_names: tuple[str, ...]  # by first arrival


def order_requests(requests: Requests, block_tokens: int, class_names: tuple[str, ...] = ()) -> RequestTrace:
    """Return requests by time of arrival, and which one is sent after which; raises MistakeError.

    block_tokens: tokens of a block that has a hash. class_names: of `requests.service_class`.
    """
    _check(requests, block_tokens)
    order, session, base = _ordered(requests)

    def taken(column: Ints) -> Ints:
        return narrow(column[order])

    waits = np.isnan(requests.arrival)[order]
    sent = np.where(waits, requests.wait[order], requests.arrival[order] - base)
    before, turn = _turns(taken(session))
    follower = np.full(order.size, NONE, dtype=before.dtype)
    follower[before[waits]] = np.flatnonzero(waits)
    del before, session
    offsets = np.concatenate(([0], np.cumsum(taken(requests.hashes))))
    starts = (np.cumsum(requests.hashes) - requests.hashes)[order]
    ids = np.repeat(starts - offsets[:-1], taken(requests.hashes)) + np.arange(offsets[-1])
    named, names = _by_first_use(taken(requests.service_class))
    return RequestTrace(
        isl=taken(requests.isl),
        osl=taken(requests.osl),
        sent=sent,
        session=compact(narrow(_by_first_use(taken(requests.session))[0])),
        turn=compact(turn),
        follower=compact(follower),
        waits=compact(waits),
        hash_offsets=compact(offsets),
        hash_ids=requests.hash_ids[ids],
        block_tokens=block_tokens,
        service_class=compact(narrow(named)),
        adapter=compact(narrow(_by_first_use(taken(requests.adapter))[0])),
        deadline=compact(requests.deadline[order]),
        class_names=tuple(class_names[i] for i in names),
    )


def _ordered(requests: Requests) -> tuple[Ints, Ints, float]:
    """Return (requests by time of arrival, the session of each one, the first arrival [s]).

    A request without session is a session of its own. Raises MistakeError.
    """
    rows = requests.line.size
    session = np.where(requests.session < 0, requests.session.max(initial=0) + 1 + np.arange(rows), 0)
    session = narrow(session + np.maximum(requests.session, 0))
    in_session = np.lexsort((requests.turn, session))  # stable
    _check_turns(requests, session, in_session)
    base = np.empty(rows)
    base[in_session] = _arrival_before(requests.arrival[in_session])
    in_session = in_session[np.lexsort((base[in_session], session[in_session]))]  # stable
    return narrow(_by_arrival(requests.line, session, base, in_session)), session, float(base.min())


def previous_turns(trace: RequestTrace) -> Ints:
    """Return the index of the turn before each request in its session, (rows,); NONE for first turns."""
    alone = trace.session.max(initial=0) + 1 + np.arange(trace.session.size)
    return _turns(np.where(trace.session < 0, alone, trace.session))[0]


def _check(requests: Requests, block_tokens: int) -> None:
    """Raise MistakeError for a request that can never be sent, or that has too many hashes."""
    is_open = np.isnan(requests.arrival)
    for wrong, allowed, is_wrong in (
        (
            is_open & np.isnan(requests.wait),
            "a time of arrival in each line, or the time since the turn before",
            "has neither",
        ),
        (
            is_open & (requests.session < 0),
            "a session in each line without a time of arrival",
            "has none",
        ),
        (
            (requests.hashes.astype(np.int64) - 1) * block_tokens
            >= np.where(requests.hashes > 0, requests.isl, 1),
            f"at most one hash for each {block_tokens} tokens of a prompt",
            "has more",
        ),
    ):
        if wrong.any():
            raise MistakeError(f"a file with {allowed}; line {requests.line[wrong.argmax()]} {is_wrong}")


def _check_turns(requests: Requests, session: Ints, in_session: Ints) -> None:
    """Raise MistakeError for turns that have no order, or another one than that of their arrivals."""
    line, turn = requests.line[in_session], requests.turn[in_session]
    arrival = requests.arrival[in_session]
    is_later = np.diff(session[in_session], prepend=NONE) == 0
    is_numbered = turn >= 0
    before = np.concatenate(([NONE], turn[:-1]))
    first_open = ~is_later & np.isnan(arrival)
    if first_open.any():
        first = line[first_open].min()
        raise MistakeError(
            f"a file with a time of arrival for the first turn of each session; line {first} has none"
        )
    if (wrong := is_later & is_numbered & (before < 0)).any():
        i = wrong.argmax() - 1
        raise MistakeError(f"a file that numbers all turns of a session; line {line[i]} has no turn")
    if (wrong := is_later & is_numbered & (before == turn)).any():
        i = wrong.argmax()
        raise MistakeError(
            f"a file with each turn of a session once; line {line[i]} has that of line {line[i - 1]}"
        )
    base = _arrival_before(arrival)
    if (wrong := is_later & is_numbered & (np.diff(base, prepend=0.0) < 0)).any():
        raise MistakeError(
            "a file whose turns arrive in their order;"
            f" line {line[wrong.argmax()]} arrives before an earlier turn of its session"
        )


def _arrival_before(arrival: Floats) -> Floats:
    """Return for each row the last arrival that is not NaN, at it or before it; the first has one."""
    return arrival[np.maximum.accumulate(np.where(np.isnan(arrival), 0, np.arange(arrival.size)))]


def _by_arrival(line: Ints, session: Ints, base: Floats, in_session: Ints) -> Ints:
    """Return the order of all requests, from that by session and arrival.

    Of sessions that arrive at the same time, the one that has the first line comes first. So the order does
    not change where the requests are written in it and read back.
    """
    by_session, by_base = session[in_session], base[in_session]
    starts = np.ones(line.size, dtype=bool)
    starts[1:] = (by_session[1:] != by_session[:-1]) | (by_base[1:] != by_base[:-1])
    first = np.minimum.reduceat(line[in_session], np.flatnonzero(starts))
    return in_session[np.lexsort((first[np.cumsum(starts) - 1], by_base))]


def _turns(session: Ints) -> tuple[Ints, Ints]:
    """Return the row of the turn before, NONE for none, and the number of the turn; both (rows,)."""
    rows = narrow(np.argsort(session, kind="stable"))
    is_later = np.diff(session[rows], prepend=NONE) == 0
    before, turn = np.full(rows.size, NONE, dtype=rows.dtype), np.empty_like(rows)
    before[rows[1:]] = np.where(is_later[1:], rows[:-1], NONE)
    count = np.arange(rows.size, dtype=rows.dtype)
    turn[rows] = count - np.maximum.accumulate(np.where(is_later, 0, count))
    return before, turn


def _by_first_use(numbers: Ints) -> tuple[Ints, Ints]:
    """Return numbers counted from 0 by first use, NONE kept, and the number that each of them stands for."""
    used, first, which = np.unique(numbers, return_index=True, return_inverse=True)
    first = np.where(used < 0, NONE, first)
    old = used[np.argsort(first)]
    rank = np.argsort(np.argsort(first))
    has_none = int((used < 0).any())
    return rank[which] - has_none, old[has_none:]
