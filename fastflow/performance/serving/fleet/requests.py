"""The requests of a point's fleet: those of its trace, and their texts."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np

from fastflow.core.tables import Floats, Inputs, narrow, take
from fastflow.performance.serving.fleet.state import NONE, Texts, Trace, is_follower
from fastflow.physics.workload.prompt_texts import PromptTexts, prompt_texts, separate_texts
from fastflow.physics.workload.request_order import RequestTrace
from fastflow.physics.workload.request_trace import KEY as TRACE
from fastflow.physics.workload.request_trace import read_trace
from fastflow.schema.servers import ADAPTERS, NO_ADAPTERS, OF_MODELS

PREFILL_POOL, DECODE_POOL = 0, 1
"""Pools of disaggregated servers. Other servers are one pool."""
_MAX_TRACES = 4
TTFT = "serve.slo.ttft"


class Sizes(NamedTuple):
    """What texts and adapters of a point take in the caches."""

    share: float  # of a mean request's bytes for each token, those that do not belong to its state
    state: float  # of a request, in tokens of a mean one
    interval: int  # tokens between checkpoints of states, at least; 0: at ends of prompts and answers alone
    adapter: int  # in tokens of a mean request


def requests_of(inputs: Inputs, point: int, sizes: Sizes) -> tuple[Trace, Texts]:
    """Return the requests that a point sends, and their texts; raises InputError."""
    path, requests = str(inputs[TRACE][point]), int(inputs["serve.num_requests"][point])
    caches = bool(inputs["server.enable_prefix_caching"][point])
    prefix, adapters = int(inputs["serve.shared_prefix"][point]), str(inputs[ADAPTERS][point])
    trace, forest = _read_requests(path, read_trace(path).isl.size, prefix, caches, adapters)
    texts = _with_sizes(forest, trace, sizes)
    if 0 < requests < trace.isl.size:
        trace = take(trace, np.arange(requests))
        trace = trace._replace(follower=np.where(trace.follower < requests, trace.follower, NONE))
    limit, speed = float(inputs[TTFT][point]), float(inputs["serve.trace_speed"][point])
    trace = trace._replace(deadline=_deadlines(trace.deadline, limit if limit > 0.0 else np.inf))
    if speed != 1.0:
        trace = trace._replace(sent=trace.sent / np.where(is_follower(trace), 1.0, speed))
    return trace, texts


def _deadlines(given: Floats, limit: float) -> Floats:
    """Return the deadlines of requests: those that are given, and the limit where there is none [s]."""
    is_open = np.isnan(given)
    return np.broadcast_to(limit, given.size) if is_open.all() else np.where(is_open, limit, given)


def _with_sizes(forest: PromptTexts, trace: Trace, sizes: Sizes) -> Texts:
    """Return texts with the room that they take in the caches.

    A prompt may go on from a node that ends with a state: where a prompt or an answer ends, and where as many
    tokens as `sizes.interval` are over.
    """
    parent, tokens, before = forest.parent, forest.tokens, forest.before
    resumes, weight, above, room = np.broadcast_to(True, tokens.size), tokens, before, tokens
    if sizes.state > 0.0:
        ends = before + tokens
        interval = np.int64(sizes.interval if sizes.interval > 0 else int(ends.max()) + 1)
        resumes = (ends // interval > before // interval) | (tokens == 0)
        for last in (trace.text, trace.answer):
            resumes[last[last >= 0]] = True
        above = np.floor(sizes.share * before).astype(np.int64)
        weight = np.floor(sizes.share * ends).astype(np.int64) - above
        room = narrow(weight + np.ceil(sizes.state * resumes).astype(np.int64))
        weight, above = narrow(weight), narrow(above)
    if forest.roots.size > 1:
        room = narrow(np.where(tokens == 0, np.int64(sizes.adapter), room))
        room[forest.roots[-1:][forest.roots[-1:] >= 0]] = 0
    return Texts(parent, tokens, before, weight, above, room, resumes)


def last_arrival(inputs: Inputs, point: int) -> tuple[int, float, float]:
    """Return how many requests a point sends, their mean answer [tokens], and when the last one arrives [s].

    The mean is of the whole file, as that of result columns. Turns without a time of arrival count as sent
    with the last turn before them that has one. Raises InputError.
    """
    file, requests = read_trace(str(inputs[TRACE][point])), int(inputs["serve.num_requests"][point])
    count = requests if 0 < requests < file.isl.size else file.isl.size
    arrivals = file.sent[:count][~file.waits[:count]]
    last = float(arrivals.max(initial=0.0)) / float(inputs["serve.trace_speed"][point])
    return count, float(file.osl.mean()), last


@lru_cache(maxsize=_MAX_TRACES)
def _read_requests(
    path: str, requests: int, prefix: int, caches: bool, adapters: str
) -> tuple[Trace, PromptTexts]:
    """Return the requests of a file and their texts; requests: that it has, for files that change.

    prefix: tokens that new sessions share; caches: whether prompts share texts; adapters: what requests name.
    """
    file = read_trace(path)
    zero, false = (np.broadcast_to(value, requests) for value in (0, False))
    names = len(file.class_names)
    client = np.where(file.service_class < 0, names, file.service_class) if names else zero
    by_adapter, base = adapters != NO_ADAPTERS, adapters == OF_MODELS
    forest = (
        prompt_texts(file, prefix, by_adapter, base) if caches else separate_texts(file, by_adapter, base)
    )
    trace = Trace(
        file.isl, file.osl, _priorities(file), client, file.deadline, file.sent, forest.text,
        forest.answer, file.session, file.follower, zero, false,
    )  # fmt: skip
    return trace, forest


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
