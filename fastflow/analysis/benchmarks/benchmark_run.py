"""A run of a benchmark against a server: its completed requests with their times, and how they were sent."""

from __future__ import annotations

from math import inf
from typing import NamedTuple

import numpy as np

from fastflow.core.tables import Bools, Floats, Ints, Texts, take
from fastflow.core.yaml_file import MistakeError, shown

TTFT, TPOT, E2E = "ttft", "tpot", "e2e"
"""Times of a request: to the first token, per further token, and to the last token."""


class SentAs(NamedTuple):
    """How a benchmark sends its requests."""

    rate: float = inf
    """Requests a second, at random times [1/s]; inf: at once; NaN: at other times, as those of a trace."""
    concurrency: int = 0
    """Most requests in flight; 0: any number."""
    burstiness: float = 1.0
    """Shape of the gamma distribution of the gaps; 1: a Poisson process."""


class BenchmarkRun(NamedTuple):
    """A run; arrays are of its completed requests, in the order they were sent in, shape (requests,)."""

    isl: Ints  # tokens of a prompt
    osl: Ints  # tokens of an answer
    ttft: Floats  # from sending to the first token [s]
    e2e: Floats  # from sending to the last token [s]
    sent: Floats  # when it was sent, after the first one [s]; (0,) where the file does not have it
    sent_as: SentAs
    failed: int  # requests that are left out
    name: str = ""  # of the run: of its file, and of its line in a file of several
    tool: str = ""  # the benchmark

    @property
    def tpot(self) -> Floats:
        """Time per token after the first, of requests whose answer came in parts [s]."""
        parts: Bools = (self.osl > 1) & (self.e2e > self.ttft)
        times: Floats = (self.e2e[parts] - self.ttft[parts]) / (self.osl[parts] - 1)
        return times

    def times(self) -> dict[str, Floats]:
        """Return each time of the requests that have it [s], by name."""
        return {TTFT: self.ttft, TPOT: self.tpot, E2E: self.e2e}


class Requests(NamedTuple):
    """Requests of a run as its file has them, failed ones included; shape (requests,)."""

    isl: Ints
    osl: Ints
    ttft: Floats  # [s]
    e2e: Floats  # [s]
    sent: Floats  # [s], of any clock; (0,) where the file does not have it
    errors: Texts  # "" for those that were completed


def completed(requests: Requests, sent_as: SentAs) -> BenchmarkRun:
    """Return the run of the requests that were completed, in the order in which they were sent.

    Raises MistakeError where none was completed, with the first error, or no answer came token by token.
    """
    count, failed = requests.isl.size, requests.errors != ""
    is_kept = ~failed & (requests.osl > 0) & (requests.ttft > 0.0)
    if not is_kept.any():
        error = " ".join(str(requests.errors[failed][0]).split()) if failed.any() else ""
        why = f" ({shown(error)})" if error else ""
        raise MistakeError(f"a run with completed requests; all {count:,} of this one failed{why}")
    if (requests.isl[is_kept] < 1).any():
        raise MistakeError("a run whose prompts have at least 1 token; one has none")
    rows = np.flatnonzero(is_kept)
    if requests.sent.size:
        rows = rows[np.argsort(requests.sent[rows], kind="stable")]
    times = requests.sent if requests.sent.size else np.zeros(count)
    kept = take(requests._replace(sent=times), rows)
    isl, osl, ttft, e2e = kept.isl, kept.osl, kept.ttft, kept.e2e
    sent = kept.sent - kept.sent.min() if requests.sent.size else requests.sent
    run = BenchmarkRun(isl, osl, ttft, e2e, sent, sent_as, count - rows.size)
    if (osl > 1).any() and not run.tpot.size:
        raise MistakeError("a run with times between tokens; the answers of this one were not streamed")
    return run
