"""EXAONE: norms after attention and feed-forward (4), a mixture (K-EXAONE)."""

from __future__ import annotations

from fastflow.physics.workload.models.transformer.config_json.architecture import LLAMA
from fastflow.physics.workload.models.transformer.dimensions import POST, PRE

_EXAONE4 = LLAMA._replace(block=POST, qk_norm=True)
TYPES = {
    "exaone": LLAMA,
    **dict.fromkeys(("exaone4", "exaone4_text", "exaone4_5_text"), _EXAONE4),
    "exaone_moe": _EXAONE4._replace(block=PRE),
}
