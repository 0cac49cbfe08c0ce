"""`model=encoder`: a transformer without later tokens to predict: BERT, or a ViT (docs/models.md)."""

from __future__ import annotations

from fastflow.core.tables import Bools, Inputs
from fastflow.physics.workload.models import transformer
from fastflow.physics.workload.models.transformer.dimensions import extra_structure
from fastflow.physics.workload.models.transformer.encoder.dimensions import (
    NAME,
    SIZES,
    STRUCTURE,
    invalid_sizes,
)
from fastflow.physics.workload.models.transformer.encoder.network import network, parameters


def _extra_structure(inputs: Inputs) -> tuple[Bools, ...]:
    return (*extra_structure(inputs), inputs["model.segments"] > 0)


FAMILY = transformer.FAMILY._replace(
    name=NAME,
    microbatch=0,  # sequences are short
    serves=False,
    network=network,
    sizes=SIZES,
    structure=STRUCTURE,
    extra_structure=_extra_structure,
    parameters=parameters,
    invalid_sizes=invalid_sizes,
)
