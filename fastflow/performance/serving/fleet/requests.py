"""The requests of a point's fleet: those of its trace, and their texts."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from fastflow.core.tables import Floats, Inputs, narrow, take
from fastflow.performance.serving.fleet.state import NONE, Texts, Trace, is_follower
from fastflow.physics.workload.prompt_texts import prompt_texts
from fastflow.physics.workload.request_order import RequestTrace
from fastflow.physics.workload.request_trace import KEY as TRACE
from fastflow.physics.workload.request_trace import read_trace

PREFILL_POOL, DECODE_POOL = 0, 1
"""Pools of disaggregated servers. Other servers are one pool."""
_MAX_TRACES = 4


def requests_of(inputs: Inputs, point: int) -> tuple[Trace, Texts]:
    """Return the requests that a point sends, and their texts; raises InputError."""
    path, requests = str(inputs[TRACE][point]), int(inputs["serve.num_requests"][point])
    caches = bool(inputs["server.enable_prefix_caching"][point])
    prefix = int(inputs["serve.shared_prefix"][point])
    trace, texts = _read_requests(path, read_trace(path).isl.size, prefix, caches)
    if 0 < requests < trace.isl.size:
        trace = take(trace, np.arange(requests))
        trace = trace._replace(follower=np.where(trace.follower < requests, trace.follower, NONE))
    speed = float(inputs["serve.trace_speed"][point])
    if speed == 1.0:
        return trace, texts
    return trace._replace(sent=trace.sent / np.where(is_follower(trace), 1.0, speed)), texts


@lru_cache(maxsize=_MAX_TRACES)
def _read_requests(path: str, requests: int, prefix: int, caches: bool) -> tuple[Trace, Texts]:
    """Return the requests of a file and their texts; requests: that it has, for files that change.

    prefix: tokens that new sessions share; caches: whether prompts share texts.
    """
    file = read_trace(path)
    zero, none, false = (np.broadcast_to(value, requests) for value in (0, NONE, False))
    trace = Trace(
        file.isl, file.osl, _priorities(file), file.sent, narrow(np.arange(requests)), none, file.session,
        file.follower, zero, false,
    )  # fmt: skip
    if not caches:
        return trace, Texts(narrow(none), file.isl, narrow(zero))
    forest = prompt_texts(file, prefix)
    texts = Texts(forest.parent, forest.tokens, forest.before)
    return trace._replace(text=forest.text, answer=forest.answer), texts


def _priorities(file: RequestTrace) -> Floats:
    """Return the priority of each request: its class where it is a number, or else the order of the names.

    Requests without a class have 0.
    """
    if not file.class_names:
        return np.broadcast_to(0.0, file.isl.size)
    try:
        values = np.array([float(name) for name in file.class_names])
    except ValueError:
        values = np.full(len(file.class_names), np.nan)
    if not np.isfinite(values).all():
        values = np.argsort(np.argsort(np.array(file.class_names))).astype(np.float64)
    return np.append(values, 0.0)[file.service_class]


def in_two_legs(trace: Trace) -> Trace:
    """Return a trace in which each request goes to a server that prefills, then to one that decodes.

    The first half are the requests at servers that prefill, for one token of the answer; the second half
    follow them. A server that decodes gets the cache of the prompt but for its last token, computes that, and
    sends all tokens of the answer, as vLLM's with its NIXL connector do (toy_proxy_server.py asks the first
    server for one token, vllm/tests/v1/kv_connector/nixl_integration).
    """
    count, ones = trace.isl.size, np.ones_like(trace.isl)
    first = trace._replace(
        osl=ones, answer=NONE * ones, follower=count + np.arange(count), pool=PREFILL_POOL * ones
    )
    second = trace._replace(sent=np.zeros(count), pool=DECODE_POOL * ones, handover=ones.astype(np.bool_))
    both = Trace(*(np.concatenate(columns) for columns in zip(first, second, strict=True)))
    return both._replace(follower=narrow(both.follower))
