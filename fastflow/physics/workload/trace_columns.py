"""Columns of files of requests with sessions, turns and hashes: their names, and what they say.

Sources of the names: Mooncake's traces (Qin et al., FAST 2025: hash_ids, blocks of 512 tokens, no size of a
block in the file); NVIDIA AIPerf, `MooncakeTrace` (session_id; delay [ms], after the turn before) and
`BailianTrace` (chat_id, parent_chat_id, turn; timestamp [s], blocks of 16 tokens); NVIDIA Dynamo's replay
(delay_ms, priority, policy_class).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any

import numpy as np

from fastflow.core.tables import Ints, narrow
from fastflow.core.yaml_file import MistakeError
from fastflow.physics.workload.request_file import (
    MILLI,
    NAMES,
    PARENT,
    TIME,
    Part,
    column_of,
    columns_of,
    given_of,
    invalid_cell,
    times_given,
    token_counts,
    whole_numbers,
)
from fastflow.physics.workload.request_order import NONE, Requests

SESSIONS = ("session", "session_id", "conversation_id", "chat_id")
TURNS = ("turn", "turn_id", "turn_index", "turn_number")
WAITS = {"think_time": 1.0, "think_time_ms": MILLI, "delay": MILLI, "delay_ms": MILLI}
"""Time since the end of the turn before, and its unit [s]."""
HASHES = ("hash_ids",)
BLOCKS = ("block_size",)
ADAPTERS = ("adapter", "lora", "lora_name", "model")
DEADLINES = {"deadline": 1.0, "deadline_ms": MILLI}
"""Longest time to the first token, and its unit [s]."""
CLASSES = ("class", "service_class", "priority", "policy_class")
COLUMNS = NAMES | {*SESSIONS, *TURNS, *WAITS, *HASHES, *BLOCKS, *CLASSES, *ADAPTERS, *DEADLINES}
BLOCK_TOKENS = 512  # Mooncake's
BAILIAN_BLOCK_TOKENS = 16
_HASH_BITS = 64


class TraceColumns:
    """What the parts of a file have in common: numbers of sessions and classes, and the size of a block."""

    def __init__(self) -> None:
        """Begin with nothing known."""
        self._sessions, self._classes, self._adapters = _Texts(), _Texts(), _Texts()
        self._parents: list[Ints] = []  # of Bailian's traces: the chat that each turn goes on from
        self._block_tokens = 0
        self._names: dict[str, str] = {}  # of the columns that the file has, by the first name of a kind

    def requests(self, part: Part) -> Requests:
        """Return the requests of some lines; raises MistakeError."""
        lengths = columns_of(part)
        session, turn, wait, hashes, block, service_class, adapter, deadline = (
            self._name(part, kind)
            for kind in (
                SESSIONS, TURNS, tuple(WAITS), HASHES, BLOCKS, CLASSES, ADAPTERS, tuple(DEADLINES),
            )
        )  # fmt: skip
        if PARENT in part.values:
            values = [None if str(value) == "-1" else value for value in part.values[PARENT]]
            self._parents.append(self._sessions.numbers(values, part.lines, PARENT))
        self._read_block_tokens(part, block)
        arrivals = times_given(part, lengths.time, 0.0, f"{TIME}, from 0")
        waits = times_given(part, wait, 0.0, "times from 0, as numbers", dates=False)
        deadlines = times_given(part, deadline, 0.0, "times from 0, as numbers", dates=False)
        isl, osl = (token_counts(part, name) for name in lengths.tokens)
        counts, ids = _hashes(part, hashes)
        return Requests(
            narrow(np.array(part.lines, dtype=np.int64)),
            narrow(isl),
            narrow(osl),
            lengths.scale * arrivals,
            WAITS.get(wait, 1.0) * waits,
            narrow(self._sessions.numbers(column_of(part, session), part.lines, session)),
            narrow(_optional(part, turn, 0, "whole numbers")),
            narrow(self._classes.numbers(column_of(part, service_class), part.lines, service_class)),
            narrow(self._adapters.numbers(column_of(part, adapter), part.lines, adapter)),
            DEADLINES.get(deadline, 1.0) * deadlines,
            narrow(counts),
            ids,
        )

    def whole(self, requests: Requests) -> Requests:
        """Return the requests of all parts, with the sessions that chats belong to; raises MistakeError."""
        if not self._parents:
            return requests
        sessions = _roots(requests.session, np.concatenate(self._parents))
        # a chat may branch, so turns have the order of their arrivals
        return requests._replace(session=sessions, turn=np.full_like(requests.turn, NONE))

    def block_tokens(self) -> int:
        """Return the tokens of a block that has a hash."""
        return self._block_tokens or (BAILIAN_BLOCK_TOKENS if self._parents else BLOCK_TOKENS)

    def class_names(self) -> tuple[str, ...]:
        """Return the names of classes of service."""
        return self._classes.texts()

    def _name(self, part: Part, kind: Sequence[str]) -> str:
        """Return the column of a kind, "" for none; later parts of JSON Lines may be the first to have it."""
        if kind[0] not in self._names:
            name = next((name for name in kind if name in part.values), "")
            if not name:
                return ""
            self._names[kind[0]] = name
        return self._names[kind[0]]

    def _read_block_tokens(self, part: Part, name: str) -> None:
        for tokens in np.unique(_optional(part, name, 1, "whole numbers of tokens")).tolist():
            if tokens != NONE and self._block_tokens not in (0, tokens):
                raise MistakeError(
                    f"a file with one {name} in all lines, not {self._block_tokens} and {tokens}"
                )
            self._block_tokens = self._block_tokens if tokens == NONE else tokens


class _Texts:
    """Numbers of texts, from 0 by first use; NONE for nothing."""

    def __init__(self) -> None:
        self._numbers: dict[object, int] = {None: NONE, "": NONE}

    def numbers(self, values: list[Any], lines: list[int], name: str) -> Ints:
        """Return the numbers of the values of a column, (lines,); raises MistakeError."""
        types = set(map(type, values))
        if odd := types - {str, int, type(None)}:
            value, line = next(pair for pair in zip(values, lines, strict=True) if type(pair[0]) in odd)
            raise invalid_cell(name, "texts or whole numbers", line, value)
        if int in types:
            values = [str(value) if type(value) is int else value for value in values]
        if types <= {type(None)}:  # most files have no classes, and many have no sessions
            return np.full(len(values), NONE)
        numbers = self._numbers
        return np.array([numbers.setdefault(value, len(numbers) - 2) for value in values], dtype=np.int64)

    def texts(self) -> tuple[str, ...]:
        """Return the texts by number."""
        return tuple(str(text) for text in [*self._numbers][2:])


def _optional(part: Part, name: str, least: int, what: str) -> Ints:
    """Return whole numbers of a column, NONE for nothing, (lines,); raises MistakeError."""
    given, values, lines = given_of(part, name)
    result = np.full(given.size, NONE)
    result[given] = whole_numbers(values, lines, name, least, what)
    return result


def _hashes(part: Part, name: str) -> tuple[Ints, Ints]:
    """Return how many hashes each line has, (lines,), and all of them, (hashes,); raises MistakeError."""
    given, values, lines = given_of(part, name)
    lists: list[Any] = [_numbers(value) if isinstance(value, str) else value for value in values]
    for numbers, value, line in zip(lists, values, lines, strict=True):
        if not (isinstance(numbers, list) and set(map(type, numbers)) <= {int}):
            raise invalid_cell(name, "lists of whole numbers, as [0, 1, 2]", line, value)
    counts = np.zeros(given.size, dtype=np.int64)
    counts[given] = list(map(len, lists))
    flat = list(chain.from_iterable(lists))
    try:
        return counts, np.array(flat, dtype=np.int64)
    except OverflowError:  # hashes of 64 bits without sign, as of xxHash: all that counts is which are equal
        return counts, np.array([value % 2**_HASH_BITS for value in flat], dtype=np.uint64).view(np.int64)


def _numbers(text: str) -> list[int] | None:
    """Return the numbers of a cell, with brackets and commas or without; None where it has others."""
    words = text.strip().removeprefix("[").removesuffix("]").replace(",", " ").split()
    try:
        return list(map(int, words))
    except ValueError:
        return None


def _roots(chat: Ints, parent: Ints) -> Ints:
    """Return the first chat of the chain of each, (lines,); raises MistakeError where one goes in a circle.

    chat: number of the chat of each line; parent: of the one that it goes on from, NONE for none.
    """
    before = np.arange(max(chat.max(initial=0), parent.max(initial=0)) + 1)
    before[chat[parent >= 0]] = parent[parent >= 0]
    root, further = before, before[before]  # steps of doubled length
    for _ in range(_HASH_BITS):
        if (further == root).all():
            break
        root, further = further, further[further]
    if (before[root] != root).any():
        raise MistakeError(f"a file whose chains of {PARENT} end")
    return root[chat]
