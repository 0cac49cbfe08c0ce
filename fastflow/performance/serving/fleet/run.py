"""A simulated fleet of one point, and what each of its requests got."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fastflow.core.tables import Bools, Floats, Ints
from fastflow.performance.serving.fleet.loading import Times
from fastflow.performance.serving.fleet.members import Members
from fastflow.performance.serving.fleet.simulate import Simulated
from fastflow.performance.serving.fleet.state import Served, Trace
from fastflow.performance.serving.scenario import ServingScenario
from fastflow.performance.serving.simulator.window import EndedRequests
from fastflow.performance.serving.slo import LIMITS


class RequestResults(NamedTuple):
    """What the requests of a trace got; (requests,). Times from sending on have the host's time too."""

    ended: EndedRequests
    ttft_s: Floats
    tpot_s: Floats  # NaN: it has one output token
    e2e_s: Floats
    within: Bools  # whether it is within all limits of `serve.slo`, or its own one of the first token
    isl: Ints  # tokens of the prompt
    cached: Ints  # of these, tokens that the cache has when the request starts
    read: Ints  # and tokens that are read from lower tiers


class FleetRun(NamedTuple):
    """A simulated fleet of one point."""

    trace: Trace  # as it was sent
    members: Members
    result: Simulated  # of disaggregated servers, with two requests for each: the first half prefills
    requests: RequestResults
    ranks: int  # of each server, as ranks of the fleet are numbered
    is_split: bool
    tiers: tuple[str, ...]  # names of tiers that keep texts, the devices' memory first


def results_of(
    scenario: ServingScenario, point: int, trace: Trace, requests: Times, served: Served
) -> RequestResults:
    """Return what the requests of a point's fleet got."""
    ended = EndedRequests(
        np.arange(trace.isl.size), trace.osl, served.arrived, served.arrived,
        requests.admitted, requests.first, requests.first, requests.end, requests.end - requests.admitted,
    )  # fmt: skip
    return _results(scenario, point, ended, trace, served)


def results_of_legs(
    scenario: ServingScenario, point: int, trace: Trace, streams: bool, requests: Times, served: Served
) -> RequestResults:
    """Return what the requests of a point's disaggregated fleet got; trace: before it was cut in two legs.

    streams: whether the first token comes from the server that decodes.
    """
    count = trace.isl.size
    first, decodes = requests.first[:count], requests.first[count:]
    ended = EndedRequests(
        np.arange(count), trace.osl, served.arrived[:count], served.arrived[:count],
        requests.admitted[:count],
        decodes if streams else first, decodes, requests.end[count:],
        requests.end[count:] - requests.admitted[:count],
    )  # fmt: skip
    return _results(scenario, point, ended, trace, served)


def _results(
    scenario: ServingScenario, point: int, ended: EndedRequests, trace: Trace, served: Served
) -> RequestResults:
    request_s, count = float(scenario.request_s[point]), ended.osl.size
    ttft = ended.first - ended.sent + request_s
    per_token = (ended.end - ended.first) / np.maximum(ended.osl - 1, 1)
    limit = scenario.inputs[LIMITS["tpot"]][point]
    within: Bools = (ttft <= trace.deadline) & ((per_token <= limit) | (limit == 0.0))
    return RequestResults(
        ended, ttft, np.where(ended.osl > 1, per_token, np.nan), ended.end - ended.sent + request_s, within,
        trace.isl, served.cached[:count], served.read[:count],
    )  # fmt: skip
