"""Layouts of pipelines, layer by layer, in the notation of Megatron-Core.

A letter is a layer: `E` the embedding, `t` a layer of the transformer, `m` a module of multi-token prediction
(MTP), `L` the head with its loss. `|` ends a virtual stage, which may be empty; `*3` repeats a letter or a
group in brackets: `Et*3|(tt|)*29m|L` (--pipeline-model-parallel-layout of NVIDIA/Megatron-LM,
megatron/core/transformer/pipeline_parallel_layer_layout.py). Virtual stages are in the order of the model:
chunk c of stage s is number c x stages + s.
"""

from __future__ import annotations

import re
from functools import lru_cache

import numpy as np

from fastflow.core.errors import InputError
from fastflow.core.tables import Ints

KEY, AUTO = "parallel.pipeline_layout", "auto"
EMBEDDING, LAYER, MTP, LOSS = "EtmL"
MAX_LENGTH = 100_000  # of a layout that is written out
_REPEATED = re.compile(r"(?:\(([^()]*)\)|([EtmL|]))\*([0-9]{1,5})")
_BRACKETS = re.compile(r"\(([^()]*)\)")
_ORDER = re.compile(f"{EMBEDDING}{LAYER}+{MTP}*{LOSS}")
_ALLOWED = (
    "auto, or the layers of each virtual stage: E, t for a layer, m for an MTP module, L, with | between"
    " stages and *n for n times, such as Et*3|(tt|)*29m|L"
)


@lru_cache(maxsize=256)
def parse(text: str) -> tuple[str, ...]:
    """Return the letters of every virtual stage; () for auto. Raises InputError."""
    if text == AUTO:
        return ()
    written, before = text.replace(" ", ""), ""
    while written != before and len(written) <= MAX_LENGTH:
        before = written
        written = _REPEATED.sub(lambda match: (match[1] or match[2] or "") * int(match[3]), written)
        if written == before:
            written = _BRACKETS.sub(r"\1", written)
    stages = tuple(written.split("|"))
    is_whole = _ORDER.fullmatch("".join(stages)) is not None and len(written) <= MAX_LENGTH
    if not is_whole or EMBEDDING not in stages[0] or LOSS not in stages[-1]:
        raise InputError(KEY, text, f"{_ALLOWED}; E in the first stage, and L in the last")
    return stages


def count(text: str, letter: str) -> int:
    """Return how often a layout has a letter; raises InputError."""
    return "".join(parse(text)).count(letter)


def starts_of(text: str, before: int) -> Ints:
    """Return the position of the first layer of each virtual stage; raises InputError.

    before: positions of the embedding. Those of the transformer's layers follow, of MTP modules, of heads.
    """
    positions = {EMBEDDING: before, LAYER: 1, MTP: 1, LOSS: 0}
    lengths = [sum(positions[letter] for letter in stage) for stage in parse(text)]
    return np.concatenate([[0], np.cumsum(lengths[:-1])]).astype(np.int64)
