"""Published operations a second as times: which operations of an iteration a publication counts.

A convention is some of these words; without one of a pair, the first counts:

- model: the operations of forward and backward pass; hardware: those that recomputation adds too.
- causal: of attention, the scores that a token sees; full: all of them (Narayanan et al., SC 2021, equation
  3; PaLM, arXiv:2204.02311, appendix B; llm-foundry). NVIDIA's tables have causal ones since NeMo 25.07, and
  mostly full ones before.
- embedding: the look-up of a token counts as a product with its table, as in 6 N D with all parameters N.

Checked on the runs that print both time and TFLOP/s (tests/analysis/measurements/test_flop_conventions.py).
"""

from __future__ import annotations

import re

import numpy as np

from fastflow.core.dedupe import factorize
from fastflow.core.tables import Bools, Columns, Floats, Ints, Texts, take
from fastflow.physics.workload import build_graph, tokens_of
from fastflow.physics.workload.graph import model_flop
from fastflow.physics.workload.precision import precision

MODEL, HARDWARE, CAUSAL, FULL, EMBEDDING = WORDS = ("model", "hardware", "causal", "full", "embedding")
CONVENTIONS = f"{MODEL} or {HARDWARE}, {CAUSAL} or {FULL}, and perhaps {EMBEDDING}"
_PAIRS = ({MODEL, HARDWARE}, {CAUSAL, FULL})
_WORD = re.compile(r"[a-z]+")
_SHORT = 64
"""Parts of a sequence that are so short that no window hides a score."""


def read_convention(text: str) -> frozenset[str]:
    """Return the words of a convention; raises KeyError where it has others, or both of a pair."""
    words = frozenset(_WORD.findall(text.lower()))
    if not words <= set(WORDS) or any(pair <= words for pair in _PAIRS):
        raise KeyError(text)
    return words


def counted_flop(inputs: Columns, conventions: Texts, recomputed: Floats) -> Floats:
    """Return the operations of an iteration as conventions count them [flop], (rows,).

    inputs: of rows whose models can be built, of transformers; conventions: as `read_convention` takes them;
    recomputed: operations with recomputation, over those without, of use to hardware conventions alone.
    """
    flop = np.empty(conventions.size)
    distinct, inverse = factorize(conventions)
    for number, text in enumerate(distinct):
        rows = np.flatnonzero(inverse == number)
        flop[rows] = _counted_flop(take(dict(inputs), rows), read_convention(text), recomputed[rows])
    return flop


def _counted_flop(inputs: Columns, words: frozenset[str], recomputed: Floats) -> Floats:
    """Return the operations of rows with the same convention."""
    table = 6.0 * tokens_of(inputs) * inputs["model.vocabulary"] * inputs["model.hidden"]
    flop = _model_flop(inputs)
    if FULL in words:
        # attention of short sequences, of as many tokens, grows with their length alone
        length = np.maximum(inputs["model.sequence"] // _SHORT, 1)
        short, longer = (_model_flop(_in_parts(inputs, _SHORT // part, part * length)) for part in (1, 2))
        tokens = inputs["model.sequence"] / (_SHORT * length)  # of them all, over those of short sequences
        causal = longer - short
        flop = tokens * (short - causal + 2.0 * inputs["model.sequence"] / length * causal)
    if HARDWARE in words:
        flop = np.where(_is_recomputed(inputs), flop + (flop - table) / 3.0, flop * recomputed)
    return flop + table if EMBEDDING in words else flop


def _model_flop(inputs: Columns) -> Floats:
    """Return the operations of forward and backward pass, with those of the update."""
    fused = inputs | {"model.fused_attention": np.ones_like(inputs["model.fused_attention"])}
    return model_flop(build_graph(fused, precision(fused)))


def _in_parts(inputs: Columns, parts: int, length: Ints) -> Columns:
    """Return so many sequences of some length for each sequence."""
    return inputs | {"model.batch": inputs["model.batch"] * parts, "model.sequence": length}


def _is_recomputed(inputs: Columns) -> Bools:
    """Say whether all layers are recomputed."""
    result: Bools = inputs["parallel.recompute"] == "full"
    return result
