"""Servers of the tests: small random ones, and realistic ones with made-up times."""

import numpy as np

from fastflow.serving.iterations import Servers
from fastflow.serving.load import Loads
from fastflow.serving.pass_times import PassTimes

PLAIN = {
    "times": 0, "ranks": 1, "slots": 1, "iteration_s": 1e-3, "row_s": 5e-6, "request_s": 5e-3, "budget": 8192,
    "most": 1024, "capacity": 1_000_000, "mixes": False, "chunks": True, "reserves": False, "per_pass": 1.0,
    "queries": 1, "draft_s": 0.0,
}  # fmt: skip
LOAD = {
    "isl": 1024.0, "osl": 1024.0, "spread": 0.0, "prefix": 0.0, "concurrency": 64, "rate": 0.0,
    "requests": 640,
}  # fmt: skip


def columns(cls, defaults, rows):
    """Return a table of points, each of which says where it differs from the defaults."""
    return cls(*(np.array([(defaults | row)[name] for row in rows]) for name in cls._fields))


def servers(*rows):
    return columns(Servers, PLAIN, rows)


def loads(*rows):
    return columns(Loads, LOAD, rows)


def powers(low, high):
    return 2 ** np.arange(np.log2(low), np.log2(high) + 1).astype(np.int64)


def realistic():
    """Two servers: like a model of 70e9 weights on four devices, and like one of 8e9 on one device."""
    tokens, requests, context = powers(1, 16384), powers(1, 1024), powers(1, 131072)
    chunk, before = powers(1, 16384), np.array([0, *powers(256, 131072)])
    shared, head, decode, prefill = [], [], [], []
    for floor, token, row, pair in ((12e-3, 2e-5, 1e-8, 2.5e-10), (5e-3, 8e-6, 1e-8, 1.2e-10)):
        shared.append(np.maximum(floor, tokens * token) + 1e-3)
        head.append(2e-4 + np.maximum(1e-4, tokens * 4e-7))
        held = np.multiply.outer(requests, context)
        decode.append(4e-4 + requests[:, None] * 4e-6 + held * row)
        pairs = chunk[:, None] * (before[None, :] + chunk[:, None] / 2)
        prefill.append(3e-4 + pairs * pair)
    more = [table - 2e-4 for table in prefill]
    tables = (np.array(table) for table in (decode, prefill, more))
    a, b, c = tables
    return PassTimes(tokens, np.array(shared), np.array(head), requests, context, a, chunk, before, b, c)
