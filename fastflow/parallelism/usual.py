"""What strategies leave unsaid: a transformer is trained as its frameworks do it unless told otherwise."""

from __future__ import annotations

import numpy as np

from fastflow.tables import Inputs, Ints
from fastflow.workload import in_blocks


def zero_stage(inputs: Inputs) -> Ints:
    """Return the stage of ZeRO of every point (`parallel.zero`), (points,).

    A transformer's optimizer is shared out unless told otherwise (Megatron-LM's distributed optimizer).
    """
    usual = np.full(inputs["model.name"].size, int(in_blocks(inputs)))
    found: Ints = inputs.get("parallel.zero", usual)
    return found
