"""Choices that a user of a prediction makes, and measured rows can judge: of a layout, of a server."""

from __future__ import annotations

from typing import NamedTuple

LOAD = "requests_per_device"
"""Concurrency over devices: a fleet of so many devices and requests may be split into servers of any size."""


class Choice(NamedTuple):
    """A choice among rows of the same work, by their throughput."""

    of: str
    """What is chosen, in the plural."""
    column: str
    """Rows that differ in it are different candidates."""
    job_columns: tuple[str, ...]
    """Candidates of a job agree in these, as far as a file has them."""
    condition: str
    """What a job has in common besides the model and the chip, in words."""


_JOB = ("system", "model", "precision", "dtype", "mode", "isl", "osl", LOAD)
SERVED_CHOICES = (
    Choice("layouts", "strategy", (*_JOB, "backend"), "the same lengths, load per device and server"),
    Choice("servers", "backend", (*_JOB, "strategy"), "the same lengths, load per device and layout"),
)
"""Those of served points: the layout for a server, and the server for a layout."""
