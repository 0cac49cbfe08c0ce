"""The published config.json files of the tests, and what their authors say of each model.

billion: parameters that are counted, in billions. authors: total and active ones in billions, as published.
active: what the authors leave out of the active ones. rounded: "down" where they cut digits off.
"""

import json

from fastflow.physics.workload.models.transformer.config_json.read import inputs_of
from fastflow.physics.workload.models.transformer.dimensions import DEFAULTS
from fastflow.physics.workload.models.transformer.encoder.vision import with_tower
from fastflow.physics.workload.models.transformer.published import with_types
from tests.support.paths import DATA
from tests.support.transformers import OF_MODELS, column_of_each

FILES = json.loads((DATA / "configs.json").read_text(encoding="utf-8"))


def columns(config, **changed):
    """The inputs of a model as columns, as its file gives them."""
    return column_of_each(with_types(with_tower({**DEFAULTS, **OF_MODELS, **inputs_of(config), **changed})))
