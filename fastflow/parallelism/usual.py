"""What strategies leave unsaid: a transformer is trained as its frameworks do it unless told otherwise."""

from __future__ import annotations

import numpy as np

from fastflow.tables import Bools, Inputs, Ints
from fastflow.workload import in_blocks


def splits_sequence(inputs: Inputs) -> Bools:
    """Say whether tensor parallelism cuts the tokens of every point too (`parallel.sequence`), (points,).

    Of a transformer it does unless told otherwise (Megatron-LM's recipes).
    """
    found: Bools = inputs.get("parallel.sequence", _whether_blocks(inputs))
    return found


def zero_stage(inputs: Inputs) -> Ints:
    """Return the stage of ZeRO of every point (`parallel.zero`), (points,).

    A transformer's optimizer is shared out unless told otherwise (Megatron-LM's distributed optimizer).
    """
    found: Ints = inputs.get("parallel.zero", _whether_blocks(inputs).astype(np.int64))
    return found


def _whether_blocks(inputs: Inputs) -> Bools:
    return np.full(inputs["model.name"].size, in_blocks(inputs))
