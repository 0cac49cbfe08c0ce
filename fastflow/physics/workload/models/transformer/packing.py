"""Sequences packed from several documents, each token of which attends within its document.

As sample packing with a block-diagonal mask does: Llama 3 (arXiv:2407.21783, section 3.2), TRL's
`packing=true`, Axolotl's `sample_packing`. Products and passes work on all tokens of a sequence as before;
attention has fewer pairs of a query and a key. Documents have the same length; of lengths that differ, the
length with as many pairs is the mean of the squares over the mean.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from fastflow.core.field import count
from fastflow.core.tables import Bools, Inputs
from fastflow.physics.workload.models.transformer.dimensions import DOCUMENTS
from fastflow.physics.workload.models.transformer.mixer import MIXERS, OF_HEADS
from fastflow.physics.workload.models.transformer.valid_sizes import patterns_of

DOCUMENT = count(
    DOCUMENTS,
    "tokens of each document of a packed training sequence, within which its tokens attend; 0: a sequence"
    " is one document", low=0,
)._replace(absent="a sequence is one document")  # fmt: skip


def invalid_documents(inputs: Inputs) -> Iterator[tuple[Bools, str, str, str]]:
    """Yield points whose documents contradict their other inputs, as `Family.invalid_sizes`."""
    if DOCUMENTS not in inputs:
        return
    key, packs = DOCUMENTS, inputs[DOCUMENTS] > 0
    wrong = inputs[key] > inputs["model.sequence"]
    yield wrong, key, "model.sequence", "at most the {} of model.sequence"
    yield packs & ~inputs["model.training"], key, "model.training", "0 with model.training=false"
    wrong = packs & ~inputs["model.fused_attention"]
    yield wrong, key, "model.fused_attention", "0 with model.fused_attention=false, which computes all scores"
    yield packs & (inputs["model.density"] > 0.0), key, "model.density", "0 with model.density={}"
    patterns = patterns_of(inputs)
    names = [{name for kind in kinds for name in kind.mixers} for kinds in patterns.kinds]
    able = [
        any(name in OF_HEADS for name in each)
        and all(name in OF_HEADS or not MIXERS[name].attends for name in each)
        for each in names
    ]
    allowed = f"0, unless all layers that attend have {', '.join(OF_HEADS[:-1])} or {OF_HEADS[-1]}"
    yield packs & ~np.array(able)[patterns.inverse], key, key, allowed
