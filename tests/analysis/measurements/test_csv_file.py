"""Cells of a measurement file as values of inputs: spellings of true and false, and what is none."""

import pytest

import fastflow
from fastflow.analysis.measurements.csv_file import scalar_of
from fastflow.config.model_inputs import convert
from fastflow.core.errors import InputError
from fastflow.schema import INPUTS

TRUE = ("true", "True", "TRUE", "t", "yes", "Yes", "y", "on", "1", "1.0")
FALSE = ("false", "False", "FALSE", "f", "no", "No", "n", "off", "0", "0.0")
NEITHER = ("2", "-1", "maybe", "ja", "0.5")
SWITCHES = [column.name for column in INPUTS if column.kind == "bool" and "*" not in column.name]
CHOICES = [column.name for column in INPUTS if {"true", "false"} <= {*column.choices}]


def test_there_are_inputs_of_both_kinds():
    assert SWITCHES
    assert CHOICES


@pytest.mark.parametrize("key", [*SWITCHES, *CHOICES])
def test_usual_spellings_are_read(key):
    for texts, value in ((TRUE, True), (FALSE, False)):
        expected = value if key in SWITCHES else str(value).lower()
        assert [convert(key, scalar_of(key, text)) for text in texts] == [expected] * len(texts)
    for text in NEITHER:
        with pytest.raises(InputError):
            convert(key, scalar_of(key, text))


def test_a_choice_of_its_own_is_no_spelling():
    assert scalar_of("parallel.recompute", "1") == "1"
    assert scalar_of("parallel.sequence_parallel", "Auto") == "auto"


def test_a_file_of_any_spelling_is_predicted_alike(tmp_path):
    path = tmp_path / "attention.csv"
    lines = ["q_len,kv_len,heads,kv_heads,causal,time_s"]
    lines += [f"1024,1024,8,8,{text},1e-4" for text in (*TRUE, *FALSE)]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    rows = fastflow.validate(f"measurements={path}", "chip=a100").rows["predicted_s"]
    causal, full = rows[: len(TRUE)], rows[len(TRUE) :]
    assert causal.nunique() == full.nunique() == 1
    assert causal.iloc[0] < full.iloc[0]
