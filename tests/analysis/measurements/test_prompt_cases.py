"""The collector's prompts of attention: against loops as in its source."""

import numpy as np
import pytest

import fastflow
from fastflow.analysis.measurements.prompt_cases import prompt_cases
from tests.naive import prompt_cases as naive

TYPES = [("bf16", "bf16"), ("bf16", "fp8"), ("fp8", "fp8")]
NAMES = ("head_dim", "heads", "kv_heads", "window", "kv_len", "batch")


def inputs_of(rows):
    columns = dict(zip(NAMES, np.array([row[:6] for row in rows]).T, strict=True))
    dtypes, caches = zip(*(row[6] for row in rows), strict=True)
    inputs = {f"model.{name}": column for name, column in columns.items()}
    return inputs | {"model.dtype": np.array(dtypes), "precision.cache": np.array(caches)}


@pytest.mark.parametrize("types", [TYPES, TYPES[:1], TYPES[1:]])
def test_cases_are_those_of_the_collectors_loops_and_rows_find_theirs(types):
    heads = [
        (128, 8, 8, 0),
        (128, 8, 1, 0),
        (64, 96, 8, 128),
        (64, 96, 8, 0),
        (256, 96, 96, 0),
        (128, 40, 4, 0),
    ]
    expected = naive.cases(heads, types)
    rows = expected[:: 7 if len(types) > 1 else 1]
    sizes, case = prompt_cases(inputs_of([*rows, *((*each, 64, 4, types[-1]) for each in heads)]))
    columns = [sizes[f"model.{name}"].tolist() for name in NAMES]
    kinds = zip(sizes["model.dtype"].tolist(), sizes["precision.cache"].tolist(), strict=True)
    assert list(zip(*columns, kinds, strict=True)) == expected
    assert [expected[at] for at in case[: len(rows)].tolist()] == rows
    assert (sizes["model.q_len"] == sizes["model.kv_len"]).all()


def test_rows_of_other_sizes_are_the_next_cases():
    rows = [(128, 8, 1, 0, 2000, 3, TYPES[0]), (128, 8, 1, 0, 1, 0, TYPES[0])]
    sizes, case = prompt_cases(inputs_of(rows))
    first, last = ({name: sizes[f"model.{name}"][at] for name in NAMES} for at in case.tolist())
    assert (first["kv_len"], first["batch"]) == (1536, 64)
    assert (last["kv_len"], last["batch"]) == (1, 1)


def shown(tmp_path, *sizes, meter="repeated"):
    path = tmp_path / "attention.csv"
    head = (
        "device,phase,batch,q_len,kv_len,heads,kv_heads,head_dim,window,dtype,kv_dtype,time_s,power_W,meter"
    )
    lines = [f"here,prefill,{b},{n},{n},16,4,128,0,bf16,bf16,3e-5,500,{meter}" for b, n in sizes]
    path.write_text("\n".join([head, *lines]) + "\n")
    return fastflow.validate(f"measurements={path}", "chip=b200_sxm").rows["predicted_W"].tolist()


def test_powers_of_prompts_have_those_of_more_prompts_before(tmp_path):
    # the longest come first, of a length the most, so that few prompts follow many
    first, many, few = shown(tmp_path, (8, 16384), (64, 1024), (1, 1024))
    assert first == pytest.approx(220.0)
    assert many > 300.0
    assert few > shown(tmp_path, (1, 1024), meter="steady")[0]
