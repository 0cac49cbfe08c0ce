"""Keywords of Python calls say what overrides of the command line say."""

import importlib

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fastflow
from fastflow.config.composer import Composer
from fastflow.config.keyword_overrides import as_overrides
from fastflow.config.library import hydra_rules
from tests.support.checks import cases


@pytest.mark.parametrize(
    ("choices", "texts"),
    [
        ({"tech": "n7"}, ("tech=n7",)),
        ({"tech": "n7,n5"}, ("tech=n7,n5",)),
        ({"tech": ["n7", "n5"], "mem": ("hbm3",)}, ("tech=n7,n5", "mem=hbm3")),
        ({"chip__tdp": "300 W"}, ("chip.tdp=300 W",)),
        ({"chip.tdp": ["300 W", "350 W"]}, ("chip.tdp=300 W,350 W",)),
        ({"model": {"batch": range(1, 4), "name": "gemm"}}, ("model.batch=1,2,3", "model.name=gemm")),
        ({"chip": {"area": {"core": np.array([0.25, 0.5])}}}, ("chip.area.core=0.25,0.5",)),
        ({"chip__area__core": np.array(0.25)}, ("chip.area.core=0.25",)),
        ({"model__batch": np.int64(8)}, ("model.batch=8",)),
        ({"model__batch": pd.Index([8, 16])}, ("model.batch=8,16",)),
        ({"chip__boost": [True, False], "trace": None}, ("chip.boost=true,false", "trace=null")),
        ({"sweeps": "fig09"}, ("+sweeps=fig09",)),
        ({"model__file": ["a,b.yaml", "it's"]}, (r"model.file='a,b.yaml','it\'s'",)),
        ({}, ()),
    ],
)
def test_keywords_are_overrides(choices, texts):
    assert as_overrides(("net=gdr_x8",), choices) == ("net=gdr_x8", *texts)


@given(st.lists(st.text(st.characters(codec="ascii", exclude_categories=["Cc"]), min_size=1), min_size=1))
@cases(200)
def test_any_texts_of_a_list_are_its_elements(texts):
    """As Hydra reads them, but for what it takes for another thing without quotes: numbers, null, blanks."""
    texts = [f"x{text}x" for text in texts]
    (override,) = as_overrides((), {"model__file": texts})
    with hydra_rules():
        (read,) = Composer.of_library().read([override])
    values = read.value().list if len(texts) > 1 else [read._value]
    assert [getattr(value, "text", value) for value in values] == texts


def test_a_grid_of_keywords_is_that_of_overrides():
    frame = fastflow.evaluate(tech=["n7", "n5"], mem="hbm3", chip={"tdp": ["300 W", "350 W"]})
    same = fastflow.evaluate("tech=n7,n5", "mem=hbm3", "chip.tdp=300 W,350 W")
    pd.testing.assert_frame_equal(frame, same)
    mixed = fastflow.evaluate("tech=n7,n5", mem="hbm3", chip__tdp=["300 W", "350 W"])
    pd.testing.assert_frame_equal(mixed, same)


def test_every_function_takes_keywords(tmp_path):
    importlib.import_module("fastflow.sweep")  # which is called like the function
    folder = fastflow.sweep(tech=["n7", "n5"], output=tmp_path / "two")
    assert len(pd.read_parquet(folder)) == 2
    assert len(fastflow.rank_strategies(tech="n7", system__devices=8)) > 1
    assert len(fastflow.explain_sharding(parallel__strategy="RC-2-8-d32"))
    assert len(fastflow.sensitivity(model="gemm", system__devices=1).parameters)
    assert fastflow.probability_better(
        tech=["n7", "n5"], uncertainty="on", uncertainty__samples=16
    ).shape == (2, 2)


@pytest.mark.parametrize(
    ("choices", "message"),
    [
        ({"tehc": "n7"}, "tehc=n7"),
        ({"tech": object()}, "expected a text, a number, true, false, None, or a list of these"),
        ({"tech": []}, "tech=[] is invalid: expected at least one value"),
        ({"tech": b"n7"}, "tech=b'n7' is invalid"),
        ({"tech": ["n7", ["n5"]]}, "tech=['n5'] is invalid"),
        ({"chip__tdp": 1j}, "chip.tdp=1j is invalid"),
    ],
)
def test_a_wrong_keyword_is_named(choices, message):
    with pytest.raises(fastflow.InputError) as error:
        fastflow.evaluate(**choices)
    assert message in str(error.value)
