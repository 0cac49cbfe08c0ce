"""Layouts of pipelines, against writing them out; and pipelines laid out so."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fastflow
from fastflow.core.errors import InputError
from fastflow.physics.parallelism.pipeline_layout import count, parse, starts_of
from tests.naive import pipeline_layout as naive
from tests.support.checks import cases, near

RECIPES = {
    "Et*3|(tt|)*29m|L": (32, 61, 1),
    "Et|(tt|)*30mL": (32, 61, 1),
    "Et*4|(t*4|)*14tmL": (16, 61, 1),
    "E|(t|)*126L": (128, 126, 0),
    "Ett||tt|L": (4, 4, 0),
    "E (t | )*2 (tt|)*2 t L": (5, 7, 0),
    "E((tt|)*2t|)*3L": (10, 15, 0),
}


@pytest.mark.parametrize("text", RECIPES)
def test_layouts_of_recipes(text):
    stages, layers, modules = RECIPES[text]
    assert parse(text) == tuple(naive.written_out(text).split("|"))
    assert (len(parse(text)), count(text, "t"), count(text, "m")) == (stages, layers, modules)


@given(st.lists(st.integers(0, 5), min_size=1, max_size=8), st.integers(0, 2), st.integers(1, 3))
@cases(120)
def test_stages_begin_where_those_before_end(layers, modules, embedding):
    if not any(layers):
        layers[0] = 1
    stages = [f"t*{number}" if number else "" for number in layers]
    text = f"E{'|'.join(stages)}|{f'm*{modules}' if modules else ''}L"
    expected = naive.stages_of(text, embedding)
    starts = starts_of(text, embedding).tolist()
    ends = [*starts[1:], sum(map(len, expected))]
    assert [list(range(*at)) for at in zip(starts, ends, strict=True)] == expected


@pytest.mark.parametrize(
    "text",
    ["", "tt", "Et|t", "t|EtL", "EtL|t", "Et|x|L", "E(t|L", "Et*|L", "EL", "EtmtL", "Et*99999|(t|)*99999L"],
)
def test_what_is_no_layout_is_refused(text):
    with pytest.raises(InputError, match=r"Et\*3\|\(tt\|\)\*29m\|L"):
        parse(text)


POINT = ("model=llama3_8b", "system=dgx_h100", "system.devices=8", "model.batch=32", "engine.jobs=1")


def timed(*texts):
    return fastflow.evaluate(*POINT, *texts).iloc[0]


def test_a_layout_as_even_as_the_default_has_its_time_and_memory():
    for strategy, layout in (("d2-p4", "Et*8|(t*8|)*2t*8L"), ("d2-p4x2", "Et*4|(t*4|)*6t*4L")):
        even = timed(f"parallel.strategy={strategy}")
        laid = timed(f"parallel.strategy={strategy}", f"parallel.pipeline_layout='{layout}'")
        assert near(laid["time_s"], even["time_s"])
        assert near(laid["footprint_B"], even["footprint_B"])


def test_the_fullest_stage_of_a_layout_sets_the_pace():
    even = timed("parallel.strategy=d2-p4")
    uneven = timed("parallel.strategy=d2-p4", "parallel.pipeline_layout='Et*4|t*16|t*8|t*4L'")
    assert uneven["time_s"] > 1.3 * even["time_s"]
    assert uneven["bottleneck_stage"] == 1


def test_stages_of_embedding_and_head_alone_and_empty_ones_run():
    alone = timed("parallel.strategy=d2-p4", "parallel.pipeline_layout='E|t*16|t*16|L'")
    empty = timed("parallel.strategy=d2-p4", "parallel.pipeline_layout='Et*16||t*16|L'")
    assert not (alone["reason"] + empty["reason"]).startswith("parallel")
    assert 0.9 < alone["time_s"] / empty["time_s"] < 1.1


@pytest.mark.parametrize(
    ("layout", "allowed"),
    [
        ("Et*16|t*16L", "the 4 virtual stages of parallel.strategy=d2-p4"),
        ("Et*8|(t*8|)*2t*9L", "the 32 layers of the model, as t"),
        ("Et*8|(t*8|)*2t*8mL", "the 0 MTP modules of model.mtp=0, as m"),
    ],
)
def test_a_layout_that_does_not_fit_says_what_would(layout, allowed):
    reason = timed("parallel.strategy=d2-p4", f"parallel.pipeline_layout='{layout}'")["reason"]
    assert reason.startswith(f"parallel.pipeline_layout={layout}")
    assert allowed in reason


def test_a_server_divides_its_layers_by_its_own_rule():
    served = (
        "model=llama3_8b", "system=dgx_h100", "system.devices=8", "serve=continuous", "server=vllm",
        "serve.concurrency=4", "parallel.strategy=TP-2-p4", "engine.jobs=1",
    )  # fmt: skip
    plain = fastflow.evaluate(*served).iloc[0]
    laid = fastflow.evaluate(*served, "parallel.pipeline_layout='Et*4|t*16|t*8|t*4L'").iloc[0]
    assert laid["tpot_s"] == plain["tpot_s"]
    assert "parallel.pipeline_layout" in laid["no_effect"]


def test_a_module_of_multi_token_prediction_has_a_stage_of_its_own():
    point = (
        "model=deepseek_v3", "chip=b200_sxm", "system=superpod_b200", "system.devices=256",
        "model.batch=1024", "model.dtype=fp8", "parallel.strategy=TP-1-e8-d64-p4", "engine.jobs=1",
    )  # fmt: skip
    texts = ("Et*20|t*20|t*21|mL", "Et*20|t*20|t*21m|L", "Et*20|t*20|t*19|ttmL")
    times = [fastflow.evaluate(*point, f"parallel.pipeline_layout='{text}'")["time_s"][0] for text in texts]
    assert times[1] > times[0]
    assert times[2] != times[0]
    assert np.isfinite(times).all()
