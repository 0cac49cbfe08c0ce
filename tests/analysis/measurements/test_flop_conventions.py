"""Times from published TFLOP/s: the formulas of those who publish them, and the runs that print both."""

import pandas as pd
import pytest

import fastflow
from fastflow.analysis.measurements.flop_conventions import read_convention
from fastflow.cli.commands.validate import main
from tests.support.measured import WHOLE

GPT = {
    "device": "A100-SXM4-80GB", "gpus": 64, "model": "GPT", "framework": "Megatron-LM 2021", "hidden": 4096,
    "layers": 32, "heads": 32, "ffn": 16384, "vocab": 51200, "seq": 2048, "global_batch": 512, "tp": 4,
    "pp": 1, "micro_batch": 4, "dtype": "fp16", "dp_kind": "zero1", "recompute": "full",
}  # fmt: skip
LLAMA = GPT | {
    "device": "H100-SXM5-80GB", "model": "Llama3-8B", "framework": "NeMo 25.07", "kv_heads": 8, "ffn": 14336,
    "vocab": 128256, "seq": 8192, "global_batch": 128, "tp": 1, "micro_batch": 1, "dtype": "bf16",
    "recompute": "none",
}  # fmt: skip


def file(tmp_path, *rows):
    path = tmp_path / "runs.csv"
    pd.DataFrame(rows).to_csv(path, index=False)
    return f"measurements={path}"


def measured(tmp_path, row, convention, tflops=300.0):
    row = row | {"tflops_per_gpu": tflops, "flops_convention": convention}
    return fastflow.validate(file(tmp_path, row)).rows["measured_s"].item()


def narayanan(row, recomputes):
    """Operations of an iteration (SC 2021, equation 3): four passes, three without recomputation."""
    b, s, n, h, v = (float(row[name]) for name in ("global_batch", "seq", "layers", "hidden", "vocab"))
    passes = 4.0 if recomputes else 3.0
    return 24.0 * b * s * n * h**2 * passes * (1.0 + s / (6.0 * h)) + 6.0 * b * s * v * h


def palm(row, attends):
    """Operations by 6 N + 12 L H Q T a token (arXiv:2204.02311, appendix B), a part of the scores seen."""
    s, n, h, kv, f, v = (float(row[name]) for name in ("seq", "layers", "hidden", "kv_heads", "ffn", "vocab"))
    weights = n * (2.0 * h * h + 2.0 * h * 128.0 * kv + 3.0 * h * f) + v * h
    return row["global_batch"] * s * (6.0 * weights + attends * 12.0 * n * h * s)


@pytest.mark.parametrize(("convention", "recomputes"), [("hardware full", True), ("model, full", False)])
def test_the_formula_of_megatron(tmp_path, convention, recomputes):
    expected = narayanan(GPT, recomputes) / (300e12 * GPT["gpus"])
    assert measured(tmp_path, GPT, convention) == pytest.approx(expected, rel=2e-3)


@pytest.mark.parametrize(("convention", "attends"), [("", 0.5), ("causal", 0.5), ("full", 1.0)])
def test_the_formula_of_palm(tmp_path, convention, attends):
    expected = palm(LLAMA, attends) / (300e12 * LLAMA["gpus"])
    assert measured(tmp_path, LLAMA, convention) == pytest.approx(expected, rel=5e-3)


@pytest.mark.parametrize("length", [1, 32, 127, 1023, 2000])
def test_sequences_of_any_length(tmp_path, length):
    row = LLAMA | {"seq": length}
    assert measured(tmp_path, row, "full") == pytest.approx(palm(row, 1.0) / (300e12 * 64), rel=0.01)


def test_hardware_counts_what_a_run_recomputes(tmp_path):
    model, hardware = (
        measured(tmp_path, LLAMA | {"recompute": "16"}, words) for words in ("model", "hardware")
    )
    assert hardware == pytest.approx(model * (1.0 + 0.5 / 3.0), rel=0.03)  # of half of the layers
    plain = measured(tmp_path, LLAMA, "hardware")
    assert plain == pytest.approx(model, rel=1e-3)


def test_an_embedding_that_counts(tmp_path):
    table = 6.0 * 128 * 8192 * 128256 * 4096 / (300e12 * 64)
    without, with_it = (measured(tmp_path, LLAMA, words) for words in ("full", "full embedding"))
    assert with_it - without == pytest.approx(table)


def test_a_time_goes_before_a_rate(tmp_path):
    said = LLAMA | {"time_s": 3.25, "tflops_per_gpu": 300.0, "flops_convention": "causal"}
    rate = LLAMA | {"tflops_per_gpu": 300.0, "flops_convention": "causal"}
    found = fastflow.validate(file(tmp_path, said, rate))
    assert found.rows["measured_s"].iloc[0] == 3.25
    assert found.rows["measured_s"].iloc[1] == pytest.approx(palm(LLAMA, 0.5) / (300e12 * 64), rel=5e-3)
    assert found.rows["error"].notna().all()


def test_what_was_read_so_is_said(cli, tmp_path):
    code, out, _ = cli(main, file(tmp_path, LLAMA | {"tflops_per_gpu": 300.0, "flops_convention": "full"}))
    assert code == 0
    assert "times by tflops_per_gpu and flops_convention: 1 rows" in " ".join(" ".join(out).split())


@pytest.mark.parametrize("text", ["causal full", "model hardware", "half", "full embeddings"])
def test_unknown_conventions_get_one_line(cli, tmp_path, text):
    with pytest.raises(KeyError):
        read_convention(text)
    code, _, err = cli(main, file(tmp_path, LLAMA | {"tflops_per_gpu": 300.0, "flops_convention": text}))
    assert (code, len(err)) == (2, 1)
    assert "flops_convention" in err[0]
    assert "model or hardware, causal or full" in err[0]


@pytest.mark.parametrize("rate", [0.0, -1.0, "x"])
def test_a_rate_that_is_none_gets_one_line(cli, tmp_path, rate):
    code, _, err = cli(main, file(tmp_path, LLAMA | {"tflops_per_gpu": rate, "flops_convention": "full"}))
    assert (code, len(err)) == (2, 1)
    assert "tflops_per_gpu" in err[0]


# what each source counts, by a part of its name
SOURCES = {
    "training.csv": {"bigscience": "hardware full", "copy of the paper": "hardware full", "24.09": "full"},
    "training_today.csv": {"25.07": "causal", "26.0": "causal", "25.11": "causal"},
}


@pytest.mark.long
@pytest.mark.skipif(not WHOLE.exists(), reason="the whole measurements are elsewhere")
@pytest.mark.parametrize("name", SOURCES)
def test_runs_that_print_both(tmp_path, name):
    """But for NVIDIA's of GPT-OSS, whose experts it counts without their gate, since it is no SiLU."""
    runs = pd.read_csv(WHOLE / name)
    runs = runs[runs["tflops_per_gpu"].notna() & ~runs["model"].str.contains("OSS")]
    runs["flops_convention"] = None
    for part, words in SOURCES[name].items():
        runs.loc[runs["source"].str.contains(part, regex=False), "flops_convention"] = words
    runs = runs[runs["flops_convention"].notna()]
    path = tmp_path / "runs.csv"
    runs.drop(columns="time_s").to_csv(path, index=False)
    found = fastflow.validate(f"measurements={path}").rows["measured_s"].to_numpy()
    ratio = found / runs["time_s"].to_numpy()
    assert len(ratio) > 40
    assert (abs(ratio - 1.0) < 0.03).mean() > 0.97
    assert abs(pd.Series(ratio).median() - 1.0) < 0.003
