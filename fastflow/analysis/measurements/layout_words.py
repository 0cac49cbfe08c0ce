"""Words in the columns of training runs: schedules, recomputation, data parallelism, hidden exchanges."""

from __future__ import annotations

import re

from fastflow.analysis.measurements.recipes import HIDDEN
from fastflow.config.model_inputs import Scalar, convert
from fastflow.physics.parallelism.options import SCHEDULES as KNOWN
from fastflow.physics.parallelism.virtual_stages import RECOMPUTE, SELECTIVE
from fastflow.physics.workload.recompute_modules import MODULES

ZERO = {"ddp": 0, "zero0": 0, "zero1": 1, "zero2": 2, "zero3": 3, "fsdp": 3, "fsdp2": 3, "hsdp": 3}
"""Name of a kind of data parallelism to the stage of ZeRO."""
SCHEDULES = {name: name for name in KNOWN} | {
    "zb-h1": "zero-bubble", "zb-h2": "zb-2p", "zbv": "zb-v", "zbvzerobubble": "zb-v",
    "dualpipev": "dualpipe-v", "interleaved1f1b": "interleaved",
}  # fmt: skip
"""Names of schedules, with those of PyTorch and of their papers."""
RECOMPUTATIONS = f"none, selective, full, a number of layers, or some of {', '.join(MODULES)}"
_NOTED = re.compile(r"recompute[ _-]modules[: ]+([a-z_]+(?: ?[+/&] ?[a-z_]+)*)")
_WORD = re.compile(r"[a-z0-9_]+")


def recomputation(text: str) -> Scalar:
    """Return what a cell recomputes: modules, or its first word; raises InputError for unknown words."""
    first, *others = _WORD.findall(text.lower()) or [""]
    modules = [word for word in (first, *others) if word in MODULES]
    if not modules:
        return convert(RECOMPUTE, first)
    if set(others) <= set(MODULES) and first in (*MODULES, SELECTIVE):
        return "+".join(dict.fromkeys(modules))
    raise KeyError(text)


def noted_modules(note: str) -> str:
    """Return the modules that a note says are recomputed; "" for others."""
    said = _NOTED.search(note.lower())
    words = _WORD.findall(said[1]) if said else []
    return "+".join(dict.fromkeys(words)) if words and set(words) <= set(MODULES) else ""


def is_hidden(name: str, text: str) -> bool:
    """Say whether an exchange is in a list; raises KeyError for unknown words."""
    words = _WORD.findall(text.lower())
    if words in (["none"], ["all"]):
        return words == ["all"]
    if not words or not set(words) <= set(HIDDEN):
        raise KeyError(text)
    return name in words
