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
    request_s: float  # of the host
    within: Bools  # whether it is within all limits of `serve.slo`, or its own one of the first token
    isl: Ints  # tokens of the prompt
    cached: Ints  # of these, tokens that the cache has when the request starts
    read: Ints  # and tokens that are read from lower tiers

    @property
    def ttft_s(self) -> Floats:
        """Times from sending to the first token [s]."""
        return self.ended.first - self.ended.sent + self.request_s

    @property
    def tpot_s(self) -> Floats:
        """Times per token after the first [s]; NaN for requests with one output token."""
        return np.where(self.ended.osl > 1, _per_token(self.ended), np.nan)

    @property
    def e2e_s(self) -> Floats:
        """Times from sending to the last token [s]."""
        return self.ended.end - self.ended.sent + self.request_s


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
    count, limit = ended.osl.size, scenario.inputs[LIMITS["tpot"]][point]
    results = RequestResults(
        ended, float(scenario.request_s[point]), np.ones(count, dtype=np.bool_), trace.isl,
        served.cached[:count], served.read[:count],
    )  # fmt: skip
    within: Bools = results.ttft_s <= trace.deadline
    if limit > 0.0:
        within &= _per_token(ended) <= limit
    return results._replace(within=within)


def _per_token(ended: EndedRequests) -> Floats:
    """Return the time per token after the first of each request [s]; 0 where it has one."""
    return (ended.end - ended.first) / np.maximum(ended.osl - 1, 1)
