"""Inputs of models as columns, and small transformers."""

import numpy as np

from fastflow.config.model_inputs import convert, to_column
from fastflow.physics.workload.models.transformer.dimensions import DEFAULTS
from fastflow.physics.workload.precision import UNSIZED

SMALL = {
    "model.layers": 2, "model.hidden": 64, "model.heads": 4, "model.ffn": 96, "model.vocabulary": 50,
    "model.batch": 2, "model.sequence": 8,
}  # fmt: skip
OF_MODELS = {
    "model.name": "transformer", "model.dtype": "bf16", "model.training": True, "model.optimizer": "adam",
}  # fmt: skip


def column_of_each(inputs):
    """The columns of one point, of inputs as a user types them."""
    return {key: to_column(key, [convert(key, value)]) for key, value in inputs.items()}


def columns_of_points(inputs):
    """The columns of some points; a list has a value for each."""
    many = max(len(value) if isinstance(value, list) else 1 for value in inputs.values())
    return {
        key: to_column(key, value if isinstance(value, list) else [value] * many)
        for key, value in inputs.items()
    }


def of_model(sizes):
    """Keys of a model, by their names in it."""
    return {f"model.{name}": value for name, value in sizes.items()}


def overrides(sizes, prefix="model."):
    """Keys of a model as a user types them: values of several words in quotes."""
    return tuple(
        f"{prefix}{name}='{value}'" if " " in str(value) else f"{prefix}{name}={value}"
        for name, value in sizes.items()
    )


def points(**changed):
    """The columns of some transformers; a list has a value for each."""
    return columns_of_points({**DEFAULTS, **OF_MODELS, **SMALL, **of_model(changed)})


def precision(many):
    """Bytes of numbers that nobody asks for."""
    return type(UNSIZED)(*np.ones((len(UNSIZED), many)))
