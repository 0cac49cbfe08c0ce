"""Vision towers: patches and tokens of images against counts by hand, their keys, and their parameters."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fastflow
from fastflow.physics import workload
from fastflow.physics.workload.models.transformer.dimensions import DEFAULTS
from fastflow.physics.workload.models.transformer.encoder.vision import (
    LAYERS,
    PREFIX,
    VISION,
    has_tower,
    image_grid,
    tower_inputs,
    with_tower,
)
from tests.naive import encoder as naive
from tests.support.checks import cases
from tests.support.transformers import OF_MODELS, column_of_each, overrides

SMALL = {
    "layers": 2, "hidden": 64, "heads": 4, "ffn": 96, "patch": 14, "merge": 2, "projector": "256, 32",
    "image_size": 0, "tiles": 0, "image_tokens": 0,
}  # fmt: skip
TOWERS = st.fixed_dictionaries({
    "patch": st.sampled_from([4, 14, 16]), "merge": st.integers(0, 3),
    "image_size": st.sampled_from([0, 0, 48, 112]), "tiles": st.sampled_from([0, 1, 4, 12]),
    "image_tokens": st.sampled_from([0, 0, 0, 25]),
})  # fmt: skip


def tower(**changed):
    """The inputs of a small model with a tower."""
    leaves = {f"{PREFIX}{key}": value for key, value in {**SMALL, **changed}.items()}
    return column_of_each(with_tower(DEFAULTS | OF_MODELS | {"model.training": False} | leaves))


@cases(200)
@given(height=st.integers(1, 700), width=st.integers(1, 700), changed=TOWERS)
def test_patches_and_tokens_of_an_image_are_those_counted_by_hand(height, width, changed):
    got = image_grid(tower(**changed), np.array([height]), np.array([width]))
    assert tuple(int(column[0]) for column in got) == naive.image_of(height, width, {**SMALL, **changed})


@pytest.mark.parametrize(
    ("changed", "size", "tokens"),
    [
        # Qwen2-VL (arXiv:2409.12191, section 2.1): 224 x 224 pixels are 64 tokens, without the two that
        # enclose them
        ({"patch": 14, "merge": 2}, (224, 224), 64),
        ({"patch": 16, "merge": 2}, (1080, 1920), 34 * 60),  # Qwen3-VL: sides are multiples of 32
        ({"patch": 14, "merge": 4, "image_size": 896}, (50, 3000), 256),  # Gemma 3 (arXiv:2503.19786)
        ({"patch": 14, "merge": 2, "image_size": 448, "tiles": 12}, (448, 448), 256),  # InternVL
        ({"patch": 14, "merge": 2, "image_size": 448, "tiles": 12}, (896, 1344), 256 * 7),
        ({"patch": 16, "merge": 3, "image_tokens": 280}, (100, 100), 280),  # Gemma 4
    ],
)
def test_published_numbers_of_tokens(changed, size, tokens):
    grid = image_grid(tower(**changed), *(np.array([side]) for side in size))
    assert grid.tokens[0] == tokens


def test_a_model_without_a_tower_has_none_of_its_keys(compose):
    inputs = compose("model=llama3_8b")
    assert not any(key.startswith(PREFIX) for key in inputs)
    assert not has_tower(inputs)
    given_inputs = compose("model=llama3_8b", f"{LAYERS}=3", f"{PREFIX}patch=8")
    assert {key for key in given_inputs if key.startswith(PREFIX)} == {column.name for column in VISION}


def test_a_tower_adds_its_parameters_to_the_total_alone():
    with_it = tower()
    without = {key: column for key, column in with_it.items() if not key.startswith(PREFIX)}
    one = np.ones(1, dtype=np.int64)
    total, active = workload.parameters_of(with_it)
    alone = workload.parameters_of(tower_inputs(with_it, one, one))[0]
    assert total == workload.parameters_of(without)[0] + alone
    assert active == workload.parameters_of(without)[1]


def test_a_tower_changes_no_iteration_of_text():
    run = ("model=llama3_8b", "chip=h100_sxm", "system=dgx_h100", "parallel.strategy=TP-8", "model.batch=8")
    sizes = overrides(SMALL, PREFIX)
    plain, towered = fastflow.evaluate(*run).iloc[0], fastflow.evaluate(*run, *sizes).iloc[0]
    assert plain.time_s == towered.time_s
    assert towered.parameters > plain.parameters


def test_models_with_towers_of_different_kinds_share_a_call():
    run = ("model=llama3_8b", "serve=prefill", "chip=h100_sxm", "system=dgx_h100", "parallel.strategy=TP-4")
    sizes = [f"{PREFIX}{key}={value}" for key, value in SMALL.items() if key != "projector"]
    made = fastflow.evaluate(*run, *sizes, f"{PREFIX}gated=true,false",
                             "serve.images=1,2")  # fmt: skip
    assert (made.reason == "").all(), made.reason.tolist()
    assert len({*made.parameters}) == 2
    assert made.encode_s.is_unique
