"""Small transformers, as columns of inputs."""

import numpy as np

from fastflow.config.model_inputs import to_column
from fastflow.physics.workload.models.transformer.dimensions import DEFAULTS
from fastflow.physics.workload.precision import UNSIZED

SMALL = {
    "model.layers": 2, "model.hidden": 64, "model.heads": 4, "model.ffn": 96, "model.vocabulary": 50,
    "model.batch": 2, "model.sequence": 8,
}  # fmt: skip
OF_MODELS = {
    "model.name": "transformer", "model.dtype": "bf16", "model.training": True, "model.optimizer": "adam",
}  # fmt: skip


def points(**changed):
    """The columns of some transformers; a list has a value for each."""
    given = {**DEFAULTS, **OF_MODELS, **SMALL, **{f"model.{key}": value for key, value in changed.items()}}
    many = max(len(value) if isinstance(value, list) else 1 for value in given.values())
    return {
        key: to_column(key, value if isinstance(value, list) else [value] * many)
        for key, value in given.items()
    }


def precision(many):
    """Bytes of numbers that nobody asks for."""
    return type(UNSIZED)(*np.ones((len(UNSIZED), many)))
