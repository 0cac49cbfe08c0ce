"""Errors against measurements of real hardware, held where they are (docs/validation.md).

Every bound is held on a sample of rows, which is part of the tests (tests/data/measured), and on all rows,
which lie beside the project, where they do. Bounds of the sample are its errors and a tenth.
"""

import runpy

import pandas as pd
import pytest

import fastflow
from tests.support.measured import FILES, SAMPLE, WHOLE, in_ci, whole


@pytest.fixture(params=["sample", pytest.param("whole", marks=pytest.mark.long)])
def held(request):
    """A function from a file and overrides to its validation, and one that picks the bound to hold."""
    is_whole = request.param == "whole"

    def validated(name, *overrides):
        path = whole(name) if is_whole else SAMPLE / f"{name}.csv"
        return fastflow.validate(f"measurements={path}", *overrides)

    return validated, lambda *, sample, every: every if is_whole else sample


def test_products_of_language_models_on_a100(held):
    validated, most = held
    every = validated("gemm_a100_fp16", "chip=a100").errors.iloc[0]
    assert every["mean_error"] <= most(sample=0.063, every=0.065)
    assert every["log_correlation"] >= 0.998


def test_products_of_language_models_in_graphs(held):
    """A layer of TensorRT-LLM."""
    validated, most = held
    error = validated("gemm_a100_llm", "chip=a100").rows["error"].mean()
    assert error <= most(sample=0.095, every=0.095)
    errors = validated("gemm_h100_llm", "chip=h100_sxm").rows.groupby("dtype")["error"].mean()
    assert errors["bf16"] <= most(sample=0.079, every=0.079)
    assert errors["fp8"] <= most(sample=0.084, every=0.066)
    assert errors["fp8_block"] <= most(sample=0.113, every=0.122)


def test_products_and_expert_layers_of_a_tuner_on_mi300x(held):
    """Of aiter: the fastest kernels of composable_kernel, or in assembly."""
    validated, most = held
    errors = validated("gemm_mi300x", "chip=mi300x").rows.groupby("dtype")["error"].mean()
    assert errors["fp8_block"] <= most(sample=0.064, every=0.062)
    assert errors["int8"] <= most(sample=0.130, every=0.125)
    errors = validated("moe_mi300x", "chip=mi300x").rows.groupby("one_stage")["error"].mean()
    assert errors[0] <= most(sample=0.081, every=0.088)
    assert errors[1] <= most(sample=0.137, every=0.125)


def test_training_products_on_v100(held):
    validated, most = held
    error = validated("gemm_v100_deepbench", "chip=v100_sxm").rows.groupby("dtype")["error"].mean()
    assert error["fp16"] <= most(sample=0.116, every=0.105)
    assert error["fp32"] <= most(sample=0.071, every=0.075)


def test_collectives_of_cards_through_their_host(held):
    """Eight cards of two sockets."""
    validated, most = held
    rows = validated("collectives_l40s").rows
    assert rows["error"].mean() <= most(sample=0.134, every=0.142)
    assert rows.groupby("ranks")["error"].mean().max() <= most(sample=0.20, every=0.207)


def test_collectives_of_many_ranks_of_one_switch(held):
    """Several groups at once, and permutations, whose channels are few."""
    validated, most = held
    rows = validated("collectives_gb200").rows
    assert rows["error"].mean() <= most(sample=0.169, every=0.163)


def test_all_reduces_of_servers(held):
    """As SGLang, TensorRT-LLM and vLLM run them, each device with its own machine."""
    validated, most = held
    rows = validated("custom_allreduce").rows
    error = rows.groupby("device")["error"].mean()
    assert error["NVIDIA A100-SXM4-80GB"] <= most(sample=0.105, every=0.073)
    assert error["NVIDIA H100 80GB HBM3"] <= most(sample=0.052, every=0.063)
    assert error["NVIDIA B200"] <= most(sample=0.073, every=0.080)


def test_exchanges_of_experts(held):
    validated, most = held
    rows = validated("deepep").rows
    error = rows.groupby(["mode", "part"])["error"].mean()
    assert error.max() <= most(sample=0.100, every=0.090)
    assert rows.groupby("device")["error"].mean().max() <= most(sample=0.080, every=0.079)


@pytest.mark.parametrize(
    ("name", "chip", "sample", "every"),
    [
        ("gemm_v100_fp32", "v100_pcie", 0.102, 0.099),
        ("gemm_p100_fp32", "p100", 0.086, 0.080),
        ("gemm_a100_40_fp32", "a100_pcie_40", 0.077, 0.090),
    ],
)
def test_products_of_odd_shapes(held, name, chip, sample, every):
    """All of them take more than twice the time of the smallest call."""
    validated, most = held
    assert validated(name, f"chip={chip}").rows["error"].mean() <= most(sample=sample, every=every)


def test_recurrent_layers_on_v100(held):
    validated, most = held
    rows = validated("rnn_v100_fp32", "chip=v100_sxm").rows
    forward = rows["part"] == "forward"
    assert rows[forward]["error"].mean() <= most(sample=0.215, every=0.185)
    assert rows[~forward]["error"].mean() <= most(sample=0.179, every=0.150)


def test_operators_on_both_devices(held):
    validated, most = held
    chips = {"A100-PCIe-40GB": "a100_pcie_40", "V100-PCIe-32GB": "v100_pcie"}
    parts = [
        validated("ops_v100_a100_fp32", f"chip={chip}", f"device={name}").rows["error"]
        for name, chip in chips.items()
    ]
    assert [len(part) for part in parts] == most(sample=[73, 77], every=[1999, 1901])
    error = sum(part.sum() for part in parts) / sum(map(len, parts))
    assert error <= most(sample=0.071, every=0.080)


def test_all_reduces_of_a_node():
    rows = fastflow.validate(f"measurements={whole('allreduce_a100')}").rows
    assert rows["error"].mean() <= 0.025


@pytest.mark.parametrize(
    ("name", "sample", "every"),
    [
        ("collectives_a100", (0.071, 0.084), (0.067, 0.072)),
        ("collectives_h100", (0.058, 0.067), (0.065, 0.074)),
        ("collectives_b200", (0.070, 0.088), (0.070, 0.088)),
    ],
)
def test_collectives_of_a_node_by_another_source(held, name, sample, every):
    """All sizes, 512 B to 512 MB, and those from 64 KB; the machine is the one of the file's device."""
    validated, most = held
    rows = validated(name).rows
    long = rows["bytes"].astype(float) >= 65536
    bounds = most(sample=sample, every=every)
    assert rows["error"].mean() <= bounds[0]
    assert rows[long]["error"].mean() <= bounds[1]
    assert (rows["error"] < 0.5).all()


H100, B200 = "device='NVIDIA H100 80GB HBM3'", "device='NVIDIA B200'"


@pytest.mark.parametrize(
    ("name", "overrides", "prefill", "decode"),
    [  # bounds of the sample, and of all rows
        # layers of TensorRT-LLM; `mla`: DeepSeek-V3's latent attention
        ("attention_a100", ("chip=a100",), (0.065, 0.054), (0.113, 0.112)),
        ("attention_h100", ("chip=h100_sxm",), (0.094, 0.087), (0.100, 0.104)),
        ("mla_a100", ("chip=a100",), (0.061, 0.064), (0.080, 0.078)),
        ("mla_h100", ("chip=h100_sxm",), (0.082, 0.080), (0.102, 0.080)),
        ("attention_b200", ("chip=b200_sxm",), (0.107, 0.106), (0.107, 0.107)),
        ("mla_b200", ("chip=b200_sxm",), (0.092, 0.100), (0.130, 0.114)),
        # kernels of linear-time mixers
        ("linear_attention", ("chip=a100", "device='NVIDIA A100-SXM4-80GB'"), (0.13, 0.125), (0.21, 0.157)),
        ("linear_attention", ("chip=h100_sxm", H100), (0.09, 0.083), (0.15, 0.112)),
        ("linear_attention", ("chip=b200_sxm", B200), (0.06, 0.05), (0.09, 0.058)),
        # modules of sparse attention
        ("sparse_attention", ("chip=h100_sxm", H100), (0.07, 0.048), (0.10, 0.077)),
        ("sparse_attention", ("chip=b200_sxm", B200), (0.19, 0.155), (0.14, 0.111)),
    ],
)
def test_mixers_in_prefill_and_in_decode(held, name, overrides, prefill, decode):
    validated, most = held
    errors = validated(name, *overrides).rows.groupby("phase")["error"].mean()
    assert errors["prefill"] <= most(sample=prefill[0], every=prefill[1])
    assert errors["decode"] <= most(sample=decode[0], every=decode[1])


def test_expert_layers(held):
    validated, most = held
    error = validated("moe_a100", "chip=a100").rows["error"].mean()
    assert error <= most(sample=0.161, every=0.128)
    errors = validated("moe_h100", "chip=h100_sxm").rows.groupby("dtype")["error"].mean()
    assert errors["bf16"] <= most(sample=0.161, every=0.149)
    assert errors["fp8"] <= most(sample=0.150, every=0.118)
    assert errors["fp8_block"] <= most(sample=0.101, every=0.095)


def test_training_runs(held):
    """Published runs, of which those without a complete layout count in neither figure."""
    validated, most = held
    rows = validated("training").rows
    assert rows["predicted_s"].isna().sum() <= most(sample=0, every=2)
    complete = rows[rows["complete"]]
    assert complete["error"].mean() <= most(sample=0.09, every=0.101)
    assert complete["error"].median() <= most(sample=0.077, every=0.082)
    by_source = complete.groupby("origin")["error"].agg(["size", "mean"])
    assert by_source[by_source["size"] >= 10]["mean"].max() <= most(sample=0.088, every=0.175)


def test_training_runs_of_megatron_lm_in_2021():
    rows = fastflow.validate(f"measurements={whole('transformer_megatron_2021')}").rows
    assert set(rows["library"]) == {"megatron_2021"}
    assert rows["error"].mean() <= 0.048


RUNS_OF_MEMORY = {  # model, devices, strategy, sequences (arXiv:2205.05198, table 3)
    "22B": ("gpt_22b", 8, "TP-8-d1", 4, 4),
    "175B": ("gpt3_175b", 64, "TP-8-d1-p8x3", 64, 1),
    "530B": ("gpt_530b", 280, "TP-8-d1-p35x3", 280, 1),
    "1T": ("gpt_1t", 512, "TP-8-d1-p64", 512, 1),
}
MODES = {  # sequence parallelism, what is computed again
    "none": ("false", "none"), "seq": ("true", "none"), "sel": ("false", "selective"),
    "seqsel": ("true", "selective"), "full": ("false", "full"),
}  # fmt: skip


def test_memory_of_training():
    """Figures 1 and 7 of Korthikanti et al.: weights and states of the mean device, activations of the first.

    Figure 7 counts what full recomputation keeps; fastflow also the layer that is computed again meanwhile.
    """
    measured = pd.read_csv(whole("memory_seqsel")).set_index(["figure", "model", "mode"])
    for model, (name, devices, strategy, batch, sequences) in RUNS_OF_MEMORY.items():
        point = (
            f"model={name}", f"system.devices={devices}", f"parallel.strategy={strategy}",
            f"model.batch={batch}", f"parallel.microbatch={sequences}", "model.sequence=2048",
            "system=superpod_a100", "precision=fp32_gradients", "framework=megatron_2021",
        )  # fmt: skip
        rows = {
            mode: fastflow.evaluate(
                *point, f"parallel.sequence_parallel={cut}", f"parallel.recompute={again}"
            ).iloc[0]
            for mode, (cut, again) in MODES.items()
        }
        for mode in ("none", "seqsel"):
            figure = measured.loc["fig1", model, mode]
            assert rows[mode]["activation_B"] == pytest.approx(figure["activation_GiB"] * 2**30, rel=0.025)
            states = rows[mode]["parameters"] * 18 / devices
            assert states == pytest.approx(figure["param_opt_GiB"] * 2**30, rel=0.025)
        for mode, row in rows.items():
            share = row["activation_B"] / rows["none"]["activation_B"]
            figure = measured.loc["fig7", model, mode]["activation_pct_of_none"] / 100
            assert share == pytest.approx(figure, abs=0.025 if mode == "full" else 0.012), (model, mode)


@pytest.mark.parametrize(
    ("name", "chip", "own"),
    [("gemm_v100_fp32", "v100_sxm", "v100_pcie"), ("gemm_a100_40_fp32", "a100_sxm_40", "a100_pcie_40")],
)
def test_the_board_that_was_measured_is_nearer_than_its_relative(held, name, chip, own):
    """What differs between boards of one die, clock and power, is seen."""
    validated, _ = held
    errors = [validated(name, f"chip={which}").rows["error"].mean() for which in (chip, own)]
    assert errors[1] < errors[0]


# --- the files themselves

DRAW = runpy.run_path(str(SAMPLE / "draw.py"))


@pytest.mark.parametrize("name", DRAW["ROWS"])
def test_the_sample_is_as_large_as_it_says_and_names_its_source(name):
    rows = (SAMPLE / f"{name}.csv").read_text(encoding="utf-8").splitlines()[1:]
    assert len(rows) == len(set(rows)) == DRAW["ROWS"][name]
    (line,) = [
        line
        for line in (SAMPLE / "README.md").read_text(encoding="utf-8").splitlines()
        if f"| {name}.csv" in line
    ]
    assert "@" in line
    assert "MIT" in line or "Apache-2.0" in line


def test_no_file_of_the_sample_is_without_a_source():
    assert {path.stem for path in SAMPLE.glob("*.csv")} == DRAW["ROWS"].keys()


@pytest.mark.parametrize("name", DRAW["ROWS"])
def test_the_sample_is_drawn_as_it_says(name):
    lines = whole(name).read_text(encoding="utf-8").splitlines()
    sample = (SAMPLE / f"{name}.csv").read_text(encoding="utf-8").splitlines()
    assert sample == DRAW["drawn"](name, lines)


def test_in_ci_the_folder_beside_the_project_is_whole():
    if in_ci() and WHOLE.is_dir():
        missing = [name for name in FILES if not (WHOLE / f"{name}.csv").is_file()]
        assert not missing, f"{WHOLE} lacks {missing}"


@pytest.mark.parametrize(
    ("ci", "folder", "file", "outcome"),
    [
        ("true", True, False, "failed"),
        ("1", True, False, "failed"),
        ("true", False, False, "skipped"),
        ("false", True, False, "skipped"),
        ("", True, False, "skipped"),
        ("", False, False, "skipped"),
        ("true", True, True, "there"),
        ("", True, True, "there"),
    ],
)
def test_a_file_that_is_missing_fails_in_ci_alone(monkeypatch, tmp_path, ci, folder, file, outcome):
    monkeypatch.setenv("CI", ci)
    place = tmp_path / "measurements"
    if folder:
        place.mkdir()
    if file:
        (place / "some.csv").touch()
    expected = {"failed": pytest.fail.Exception, "skipped": pytest.skip.Exception}
    if outcome == "there":
        assert whole("some", place) == place / "some.csv"
    else:
        with pytest.raises(expected[outcome]):
            whole("some", place)
