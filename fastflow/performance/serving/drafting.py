"""Time that draft tokens add to iterations of servers with speculative decoding."""

from __future__ import annotations

import numpy as np

from fastflow.core.tables import Floats, Inputs, Ints
from fastflow.performance.serving.passes.parts import Passes

MTP = "mtp"


def drafting_s(inputs: Inputs, passes: Passes, server: Ints) -> Floats:
    """Return the time that draft tokens add to an iteration [s]: they are proposed one after the other.

    A multi-token prediction module takes a layer and the head (DeepSeek-V3, arXiv:2412.19437, section 2.2),
    a draft model its share of a pass of the model.
    """
    layers, head = passes.times.shared[server, 0], passes.times.head[server, 0]
    module = layers / inputs["model.layers"] + head
    draft_s = np.where(
        inputs["serve.speculative_method"] == MTP, module, inputs["serve.draft_cost_ratio"] * (layers + head)
    )
    drafts = np.zeros(draft_s.size)  # a draft of a chip without links takes forever
    np.multiply(
        inputs["serve.num_speculative_tokens"],
        draft_s,
        out=drafts,
        where=inputs["serve.num_speculative_tokens"] > 0,
    )
    return drafts
