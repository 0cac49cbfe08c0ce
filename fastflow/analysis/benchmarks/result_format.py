"""A format of a benchmark's output: how it is recognised, and its requests.

Every format has a module in `formats/`, which registers it; no other module names it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import inf, isfinite, nan
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastflow.analysis.benchmarks.benchmark_run import BenchmarkRun
from fastflow.core.registry import Registry
from fastflow.core.tables import Floats, Ints, Texts
from fastflow.core.yaml_file import MistakeError, listed, wrong

MAX_TOKENS = 10**9  # of a prompt or an answer, as of serve.isl and serve.osl
MAX_SECONDS = 1e12  # of any time
MAX_REQUESTS = 65_536
"""Requests of a run, at most: as many as a simulation sends at given times."""


class RunObject:
    """The JSON object of a run; its methods raise MistakeError, with the name of the member."""

    def __init__(self, members: Mapping[str, Any]) -> None:
        """Take the members of the object."""
        self.members = members

    def has(self, *names: str) -> bool:
        """Say whether it has all members of some names."""
        return all(self.members.get(name) is not None for name in names)

    def counts(self, name: str) -> Ints:
        """Return a list of whole numbers, (requests,)."""
        numbers = self._numbers(name, "a whole number of tokens", MAX_TOKENS)
        fractions = np.flatnonzero(numbers != np.floor(numbers))
        if fractions.size:
            index = int(fractions[0])
            raise wrong(f"{name}[{index}]", "a whole number of tokens", self.members[name][index])
        return numbers.astype(np.int64)

    def seconds(self, name: str) -> Floats:
        """Return a list of times [s], (requests,)."""
        return self._numbers(name, "a number of seconds from 0", MAX_SECONDS)

    def sums(self, name: str) -> Floats:
        """Return the sum of each list in a list of lists of times [s], (requests,)."""
        sums = np.zeros(len(self._list(name)))
        for index, inner in enumerate(self._list(name)):
            if not isinstance(inner, list):
                raise wrong(f"{name}[{index}]", "a list of numbers of seconds", inner)
            sums[index] = _checked(inner, f"{name}[{index}]", "a number of seconds from 0", MAX_SECONDS).sum()
        return sums

    def texts(self, name: str, count: int) -> Texts:
        """Return a list of texts, "" for null, and as many "" as `count` where there is no such list."""
        values = self._list(name) if self.has(name) else [""] * count
        return np.array(["" if value is None else str(value) for value in values], dtype=np.str_)

    def rate(self, name: str) -> float:
        """Return a rate [1/s]: inf where requests are sent at once, NaN where it is another text."""
        value = self.members.get(name)
        if value is None or value in ("inf", "Infinity"):
            return inf
        if isinstance(value, str):
            return nan
        if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0.0:
            raise wrong(name, "a number of requests a second above 0, or inf", value)
        return float(value)

    def number(self, name: str, default: float) -> float:
        """Return a number above 0; a default where there is none."""
        value = self.members.get(name)
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0.0 < value < inf:
            raise wrong(name, "a number above 0, or null", value)
        return float(value)

    def same_sizes(self, columns: Mapping[str, NDArray[Any]]) -> None:
        """Refuse lists, by name, that are not all of one length."""
        sizes = {name: column.size for name, column in columns.items()}
        if len(set(sizes.values())) > 1:
            said = ", ".join(f"{name} {size:,}" for name, size in sizes.items())
            raise MistakeError(f"a file whose lists have one entry for each request; these have {said}")
        count = next(iter(sizes.values()))
        if not 1 <= count <= MAX_REQUESTS:
            raise MistakeError(f"a run of 1 to {MAX_REQUESTS:,} requests, not {count:,}")

    def _list(self, name: str) -> list[Any]:
        value = self.members.get(name)
        if not isinstance(value, list):
            raise wrong(name, "a list with an entry for each request", value)
        return value

    def _numbers(self, name: str, what: str, most: float) -> Floats:
        return _checked(self._list(name), name, what, most)


def _checked(values: list[Any], where: str, what: str, most: float) -> Floats:
    """Return numbers from 0 to `most`; what: of them is allowed, for the message of MistakeError."""
    for index, value in enumerate(values):
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if not (is_number and isfinite(value) and 0.0 <= value <= most):
            raise wrong(f"{where}[{index}]", what, value)
    return np.array(values, dtype=np.float64)


class ResultFormat(NamedTuple):
    """A format of a benchmark's output."""

    name: str
    tool: str
    """The command that writes it."""
    marks: tuple[str, ...]
    """Members of its object that no other format has, any of them."""
    needs: tuple[str, ...]
    """Lists that it has with the requests' details."""
    details: str
    """The option of the command with which it writes these lists."""
    read: Callable[[RunObject], BenchmarkRun]
    """From the object to its run; raises MistakeError."""

    def matches(self, members: Mapping[str, Any]) -> bool:
        """Say whether an object is of this format."""
        return any(mark in members for mark in self.marks)

    def check_details(self, members: Mapping[str, Any]) -> None:
        """Refuse an object without the details of its requests."""
        missing = [name for name in self.needs if members.get(name) is None]
        if missing:
            raise MistakeError(
                f"a file with the times of each request: run {self.tool} with {self.details}; this file lacks"
                f" {listed(missing)}"
            )


FORMATS: Registry[ResultFormat] = Registry(
    "format of a benchmark",
    "benchmark_formats",
    lambda thing: isinstance(thing, ResultFormat),
    "a fastflow.analysis.benchmarks.result_format.ResultFormat",
)
"""Every format that has registered itself, by its name."""


def register(result_format: ResultFormat) -> ResultFormat:
    """Register a format."""
    FORMATS.register(result_format.name, result_format)
    return result_format
