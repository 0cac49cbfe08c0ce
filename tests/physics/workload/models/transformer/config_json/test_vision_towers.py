"""config.json files of encoders, and of vision towers: parameters, tokens, and what is wrong with them."""

import json
import random

import numpy as np
import pytest

import fastflow
from fastflow.core.yaml_file import MistakeError
from fastflow.physics.workload.models.transformer.config_json.encoders import TEXT_ENCODERS
from fastflow.physics.workload.models.transformer.config_json.read import inputs_of
from fastflow.physics.workload.models.transformer.config_json.vision_towers import (
    VISION_ENCODERS,
    WRAPPERS,
    tower_of,
)
from fastflow.physics.workload.models.transformer.encoder.network import parameters
from fastflow.physics.workload.models.transformer.encoder.vision import PREFIX, tower_inputs, with_tower
from tests.support.paths import DATA

# of each encoder what its published file says, and the parameters of its published weights, in millions; of
# towers to three digits what the sum of the shapes in the code of transformers gives
FILES = json.loads((DATA / "vision_configs.json").read_text())
ALONE = [name for name, file in FILES.items() if "million" in file]
TOWERS = [name for name, file in FILES.items() if "tower" in file]
TEXT = {
    "model_type": "qwen2", "hidden_size": 512, "intermediate_size": 1024, "num_attention_heads": 8,
    "num_hidden_layers": 2, "num_key_value_heads": 2, "vocab_size": 1000, "tie_word_embeddings": False,
}  # fmt: skip
RUN = ("model=transformer", "chip=h100_sxm", "system=dgx_h100", "parallel.strategy=TP-1-d8", "model.batch=8")


@pytest.mark.parametrize("name", ALONE)
def test_an_encoder_has_its_published_parameters(file, name):
    made = fastflow.evaluate(*RUN, f"model.config={file(FILES[name]['config'])}").iloc[0]
    assert made.reason == ""
    assert made.parameters / 1e6 == pytest.approx(FILES[name]["million"], rel=2e-4)


@pytest.mark.parametrize("name", TOWERS)
def test_a_tower_has_its_parameters(name):
    tower = tower_of(FILES[name]["config"], FILES[name]["hidden"])
    leaves = with_tower({f"{PREFIX}{key}": value for key, value in tower.items()})
    one = np.ones(1, dtype=np.int64)
    inputs = {key: np.array([value]) for key, value in leaves.items()}
    inputs |= {"model.dtype": np.array(["bf16"]), "model.training": np.array([False])}
    count = parameters(tower_inputs(inputs, one, one))[0][0] / 1e6
    assert count == pytest.approx(FILES[name]["tower"], rel=1e-2)


def test_every_family_of_towers_has_a_case():
    kinds = {WRAPPERS[FILES[name]["config"]["model_type"]].encoder for name in TOWERS}
    kinds |= {FILES[name]["config"]["vision_config"].get("model_type") for name in TOWERS}
    kinds |= {FILES[name]["config"]["model_type"] for name in ALONE}
    later = {"deit", "dinov2_with_registers", "dinov3_vit", "glm4v_vision", "internvl_vision",
             "siglip2_vision_model", "moonvit3d"}  # fmt: skip
    assert {*VISION_ENCODERS} - kinds == later
    assert {*TEXT_ENCODERS} - kinds >= {"camembert", "ernie"}


@pytest.mark.parametrize("name", TOWERS)
def test_a_model_of_images_and_text_is_served(file, name):
    config = FILES[name]["config"] | {"text_config": TEXT}
    path = file(config)
    run = ("model=transformer", f"model.config={path}", "chip=h100_sxm", "system=dgx_h100",
           "system.devices=1", "parallel.strategy=TP-1", "serve=prefill", "serve.isl=100")  # fmt: skip
    made = fastflow.evaluate(*run, "serve.images=0,2", "serve.image_size=448")
    assert (made.reason == "").all(), made.reason.tolist()
    assert made.image_tokens.iloc[1] > 0
    assert made.encode_s.iloc[1] > 0.0
    assert made.ttft_s.iloc[1] > made.ttft_s.iloc[0] + made.encode_s.iloc[1]


@pytest.mark.parametrize(
    ("name", "changed", "message"),
    [
        ("bert-base", {"hidden_size": None}, "that gives hidden_size"),
        ("bert-base", {"num_attention_heads": 7}, "a divisor of its hidden size, 768"),
        ("bert-base", {"position_embedding_type": "relative_key"}, "absolute or rotary"),
        ("bert-base", {"num_hidden_layers": 10**6}, "at most 10000"),
        ("bert-base", {"num_experts": 8}, "without num_experts"),
        ("vit-base", {"patch_size": [16, 14]}, "two that are equal"),
        ("vit-base", {"image_size": 8}, "at least the 16 of patch_size"),
        ("qwen3-vl-8b", {"vision_config": {"depth": -1, "a": 1, "b": 2, "c": 3}}, "vision_config."),
    ],
)
def test_what_is_wrong_is_named(name, changed, message):
    with pytest.raises(MistakeError, match=message.replace(".", r"\.")):
        inputs_of({"text_config": TEXT, **FILES[name]["config"], **changed})


def test_mutated_files_are_read_or_refused_in_words():
    """Every value of every file is replaced by a few others; nothing but MistakeError is raised."""
    draw, read = random.Random(1), 0
    values = [None, 0, 1, -1, 2.5, 10**9, 10**400, True, "x", [], [1], [0, 0], {}, {"height": 3}, "gelu"]
    for _ in range(1500):
        document = json.loads(json.dumps(FILES[draw.choice([*FILES])]["config"])) | {"text_config": TEXT}
        part = draw.choice([document, document.get("vision_config", document)])
        for _ in range(draw.randint(1, 2)):
            part[draw.choice([*part])] = draw.choice(values)
        try:
            inputs_of(document)
            read += 1
        except MistakeError:
            pass
    assert 200 < read < 1300
