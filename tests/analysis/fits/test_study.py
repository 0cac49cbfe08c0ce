"""fits: a row for every way, each with its own least number of devices and its time."""

import pytest

import fastflow
from fastflow.cli.commands.fits import main
from fastflow.core.errors import InputError
from fastflow.performance.auto.ways import SERVING, TRAINING, WAYS, Way

TRAINED = ("model=llama3_8b", "chip=h100_sxm", "model.batch=16")
SERVED = ("model=llama3_70b", "chip=a100_sxm_80", "serve=continuous", "server=vllm", "model.dtype=bf16")


@pytest.fixture(scope="module")
def trained():
    return fastflow.fits(*TRAINED)


@pytest.fixture(scope="module")
def served():
    return fastflow.fits(*SERVED)


def test_a_row_for_every_way_and_what_is_given_first(trained, served):
    for table, work in ((trained, TRAINING), (served, SERVING)):
        words = [way.words for way in WAYS.values() if way.work == work]
        assert table["way"].tolist() == ["as given", *words]


def test_rows_are_those_of_evaluate(trained, served):
    for table, stated in ((trained, TRAINED), (served, SERVED)):
        for row in table[table["fits"]].to_dict("records"):
            changed = row["overrides"].split()
            keys = {text.partition("=")[0] for text in changed}
            kept = [text for text in stated if text.partition("=")[0] not in keys]
            same = fastflow.evaluate(*kept, *changed, "system.devices=auto").iloc[0]
            assert (row["devices"], row["strategy"]) == (same["devices"], same["strategy"])
            assert row["footprint_B"] == same["footprint_B"] <= row["dram_offered_B"]


def test_the_cost_in_time_is_over_the_first_that_fits(trained):
    rate, devices = trained["tokens_per_s"], trained["devices"].astype(float)
    assert trained["relative_time"].tolist() == pytest.approx((rate[0] / rate).tolist())
    expected = devices / devices[0] * rate[0] / rate
    assert trained["relative_device_time"].tolist() == pytest.approx(expected.tolist())


def test_savings_of_memory_save_devices(trained, served):
    devices = trained.set_index("way")["devices"]
    assert devices["QLoRA (rank 16, nf4)"] <= devices["adapters (LoRA rank 16)"] <= devices["as given"]
    assert (
        devices["everything offloaded (ZeRO 3)"] <= devices["with optimizer offloaded"] < devices["as given"]
    )
    devices = served.set_index("way")["devices"]
    assert devices["weights in 4 bits (w4a16)"] < devices["as given"]


def test_a_way_that_does_not_apply_says_why(served):
    """A100 does not multiply in fp8."""
    row = served.set_index("way").loc["weights in fp8"]
    assert not row["fits"]
    assert "fp8" in row["reason"]


def test_ways_that_change_nothing_are_left_out():
    table = fastflow.fits(*TRAINED, "parallel.zero_stage=3")
    assert "ZeRO 3" not in table["way"].tolist()
    assert "with recomputation (full)" in table["way"].tolist()


def test_a_number_of_devices_that_is_given_stays():
    table = fastflow.fits(*TRAINED, "system.devices=1").set_index("way")
    assert not table["fits"]["as given"]
    assert table["fits"]["QLoRA (rank 16, nf4)"]
    assert {*table["devices"][table["fits"]]} == {1}


def test_a_way_registers_itself(monkeypatch):
    monkeypatch.setattr(WAYS, "_things", {**WAYS._things})
    monkeypatch.setattr(WAYS, "built_in", WAYS.built_in)
    WAYS.register("lion", Way("with Lion", TRAINING, ("model.optimizer=lion",)))
    table = fastflow.fits(*TRAINED).set_index("way")
    assert table["overrides"]["with Lion"] == "model.optimizer=lion"


def test_models_without_tokens():
    table = fastflow.fits("model=lstm_lm", "chip=v100_sxm").set_index("way")
    assert table["fits"]["as given"]
    assert table["relative_time"]["as given"] == 1.0
    assert "with recomputation (full)" not in table.index  # which is for transformers
    assert not table["reason"].any()


@pytest.mark.parametrize(
    ("stated", "line"),
    [
        (("chip=l4,h100_sxm",), "expected one: fits is of one point"),
        (("output=here",), "fits prints a table"),
        (("parallel.strategy=TP-2",), "expected auto where system.devices=auto"),
        (("model=nothing",), "model=nothing"),
    ],
)
def test_a_mistake_is_one_line(stated, line):
    with pytest.raises(InputError, match=line):
        fastflow.fits("model=llama3_8b", *stated) if stated[0] != "model=nothing" else fastflow.fits(*stated)


def test_the_command_prints_the_table(cli):
    code, out, _ = cli(main, *TRAINED, "system.devices=1")
    text = "\n".join(out)
    assert code == 0
    assert "Training of llama3_8b on h100_sxm" in text
    assert "as given" in text
    assert "none fits" in text
    assert "QLoRA" in text
    assert "model.lora.base_dtype=nf4" in text


@pytest.mark.parametrize("overrides", [("precision.no_such_key=1",), ("model.dtype=int4_unknown",)])
def test_a_refused_way_has_its_reason_and_no_numbers(overrides, cli, monkeypatch):
    monkeypatch.setattr(WAYS, "_things", dict(WAYS._things))
    monkeypatch.setattr(WAYS, "built_in", WAYS.built_in)
    WAYS.register("refused", Way("refused", TRAINING, overrides))
    code, lines, _ = cli(main, *TRAINED, "system.devices=64")
    assert code == 0
    row = next(line for line in lines if line.startswith("refused ")).split()
    assert set(row[1:]) == {"-"}
    assert any(line.startswith(f"refused: {overrides[0].partition('=')[0]}") for line in lines)
    zero = next(line for line in lines if line.startswith("as given")).split()[4]
    assert zero.isdigit()
