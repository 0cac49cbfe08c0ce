"""Training runs as measurements: what a row is taken for, what is left out and refused, and frameworks."""

from pathlib import Path

import pytest
import yaml

import fastflow
from fastflow.analysis.measurements.aliases import match_name
from fastflow.cli.commands.calibrate import main as calibrate
from fastflow.cli.commands.report import main as report
from fastflow.cli.commands.validate import main
from fastflow.config.library import library_root
from fastflow.physics.hardware.packages import devices_per_package
from tests.support.measured import SAMPLE

FRAMEWORKS = sorted((library_root() / "conf" / "framework").glob("*.yaml"))
NAMES = (
    "time_s", "device", "gpus", "framework", "year", "model", "hidden", "layers", "heads", "kv_heads", "ffn",
    "vocab", "experts", "topk", "seq", "global_batch", "micro_batch", "tp", "pp", "cp", "vp", "ep", "dp_kind",
    "recompute", "dtype", "interconnect_note",
)  # fmt: skip
RUN = {
    "time_s": 14.7, "device": "H100-SXM5-80GB", "gpus": 64, "framework": "NeMo 24.09", "year": 2024,
    "model": "Llama3-70B", "hidden": 8192, "layers": 80, "heads": 64, "kv_heads": 8, "ffn": 28672,
    "vocab": 128256, "seq": 8192, "global_batch": 128, "micro_batch": 1, "tp": 4, "pp": 4, "cp": 2, "vp": 5,
    "dp_kind": "zero1", "recompute": "none", "dtype": "bf16",
}  # fmt: skip
SAME = (
    "model=llama3_70b", "system=superpod_h100", "framework=nemo", "system.devices=64", "model.batch=128",
    "model.positions=8192", "parallel.strategy=TP-4-c2-d2-p4x5", "parallel.microbatch=1",
)  # fmt: skip


@pytest.fixture
def runs(tmp_path):
    """A function from runs, each what differs from RUN, to the override that names a file of them."""

    def write(*changed, names=NAMES):
        rows = [RUN | one for one in changed or ({},)]
        lines = [names, *([row.get(name, "") for name in names] for row in rows)]
        path = tmp_path / "runs.csv"
        path.write_text("\n".join(",".join(map(str, line)) for line in lines) + "\n")
        return f"measurements={path}"

    return write


def row_of(override, *others):
    (row,) = fastflow.validate(override, *others).rows.to_dict("records")
    return row


# --- names


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("H100-96GB-HBM2e-500W", "H100 96GB"),
        ("NVIDIA H100 80GB HBM3", "H100"),
        ("A100-SXM4-40GB", "A100 40GB"),
        ("a100sxm", "A100"),
        ("GB200 NVL72", "GB200"),
        ("B200", "B200"),
        ("H200-SXM", "H200"),
        ("H20", "H20"),
        ("GH200", ""),
        ("TPU v5p", ""),
        ("", ""),
        ("\0;--", ""),
    ],
)
def test_a_text_has_the_longest_name_whose_words_begin_its_own(text, found):
    known = ("H100", "H100 96GB", "A100", "A100 40GB", "B200", "GB200", "H200", "H20")
    assert match_name(text, known) == found


def test_every_name_of_the_tables_stands_for_a_choice_of_the_library():
    conf = library_root() / "conf"
    tables = yaml.safe_load((conf / "measurement_files.yaml").read_text())["training"]
    for name in tables["devices"].values():
        chip, _, system = name.partition("/")
        assert (conf / "chip" / f"{chip}.yaml").is_file()
        assert (conf / "system" / f"{system}.yaml").is_file()
    assert {path.stem for path in FRAMEWORKS} >= set(tables["frameworks"].values())
    assert all((conf / "model" / f"{name}.yaml").is_file() for name in tables["families"].values())


# --- what a row is taken for


def test_a_run_is_the_point_that_its_columns_describe(runs):
    row = row_of(runs())
    assert row["predicted_s"] == fastflow.evaluate(*SAME)["time_s"].item()
    assert (row["strategy"], row["devices"]) == ("TP-4-c2-d2-p4x5", 64)
    assert (row["library"], row["family"], row["complete"]) == ("nemo", "Llama3", True)
    assert row["parameters_billions"] == 30.0


def test_a_run_may_say_its_kernel_of_attention_and_what_shares_its_weights(runs):
    said = {
        "attention_kernel": "flash2",
        "shards": 8,
        "dp_kind": "fsdp",
        "gpus": 128,
        "tp": 1,
        "pp": 1,
        "cp": 1,
    }
    row = row_of(runs(said | {"vp": ""}, names=(*NAMES, "attention_kernel", "shards")))
    same = (
        *SAME[:3], "system.devices=128", "model.batch=128", "model.positions=8192", "parallel.zero_stage=3",
        "parallel.strategy=TP-1-d128", "parallel.microbatch=1",
    )  # fmt: skip
    told = fastflow.evaluate(*same, "model.attention_kernel=flash2", "parallel.hybrid_shard_size=8")[
        "time_s"
    ].item()
    assert row["predicted_s"] == told != fastflow.evaluate(*same)["time_s"].item()
    two = runs({"attention_kernel": "magic"}, {}, names=(*NAMES, "attention_kernel"))
    first, second = fastflow.validate(two).rows["reason"]
    assert (first.partition(":")[0], second) == ("attention_kernel=magic is unknown", "")


def test_what_is_said_on_the_command_line_goes_first(runs):
    others = ("chip=h200_sxm", "framework=megatron_2021", "parallel.recompute=full", "model.dtype=fp16")
    row = row_of(runs(), *others)
    same = (
        *SAME[:2],
        *SAME[3:],
        "parallel.zero_stage=1",
        *others,
    )  # the row's own zero1 goes before the framework's 0
    assert row["predicted_s"] == fastflow.evaluate(*same)["time_s"].item()
    assert row["library"] == "megatron_2021"
    own = row_of(runs(), "system=superpod_a100")  # brings its own chip
    assert (own["dram_Bps"], own["inter_Bps"]) == (2039e9, 25e9)


def test_what_a_run_leaves_unsaid_follows_from_its_family_and_framework(runs):
    bare = (
        "time_s",
        "device",
        "gpus",
        "hidden",
        "layers",
        "heads",
        "seq",
        "global_batch",
        "tp",
        "pp",
        "source",
    )
    told = {"gpus": 64, "hidden": 4096, "layers": 24, "heads": 32, "seq": 2048, "global_batch": 128}
    named = {"source": "Megatron-LM (cases_april2021.png)", "model": "GPT"}
    row = row_of(runs(told | named, names=(*bare, "model")))
    same = (
        "model=gpt3_175b", "system=superpod_h100", "framework=megatron_2021", "system.devices=64",
        "model.hidden=4096", "model.layers=24", "model.heads=32", "model.sequence=2048", "model.batch=128",
        "parallel.strategy=TP-4-d4-p4", "parallel.microbatch=1",
    )  # fmt: skip
    assert row["predicted_s"] == fastflow.evaluate(*same)["time_s"].item()
    assert not row["complete"]


def test_sizes_are_those_of_the_row_and_not_of_its_family(runs):
    unsaid = {"kv_heads": "", "ffn": "", "layers": 8, "pp": 1, "cp": 1, "vp": ""}
    mixture = {
        "model": "Llama4-Maverick", "hidden": 5120, "layers": 48, "heads": 40, "ffn": 8192, "vocab": 202048,
        "experts": 128, "topk": 1, "pp": 1, "cp": 1, "vp": "",
    }  # fmt: skip
    long = unsaid | {"seq": 2**20, "global_batch": 16, "model": "Llama2"}
    rows = fastflow.validate(runs(unsaid, mixture, long)).rows
    assert rows["predicted_s"].notna().all()
    sizes = 8 * (4 * 8192**2 + 3 * 8192 * 22016 + 2 * 8192) + 2 * 128256 * 8192 + 8192
    assert rows["parameters"].iloc[0] == sizes
    assert rows["parameters"].iloc[1] == pytest.approx(401.6e9, rel=1e-3)  # dense layers are wider


def test_a_model_of_no_known_family_has_a_gate_unless_its_layers_are_four_times_as_wide(runs):
    few = {"model": "Mine", "layers": 8, "pp": 1, "cp": 1, "vp": ""}
    gated, plain = fastflow.validate(runs(few, few | {"ffn": 32768})).rows["parameters"]
    attention = 8192 * (2 * 8192 + 2 * 1024)
    assert gated == 8 * (attention + 3 * 8192 * 28672 + 2 * 8192) + 2 * 128256 * 8192 + 8192
    assert plain == pytest.approx(8 * (attention + 2 * 8192 * 32768) + 128256 * 8192, rel=0.02)


def test_a_job_of_less_than_whole_machines_is_predicted(runs):
    part = {"pp": 1, "cp": 1, "vp": "", "layers": 8}
    rows = fastflow.validate(
        runs(
            part | {"gpus": 4},
            part | {"gpus": 12, "global_batch": 12},
            part | {"device": "GB200", "gpus": 256},
        )
    ).rows
    assert rows["predicted_s"].notna().all()


def test_a_file_of_other_names_of_columns_says_the_same(runs):
    others = {"gpus": "n_gpus", "micro_batch": "microbatch", "vp": "interleave", "time_s": "iter_time_s"}
    path = runs()
    rows = fastflow.validate(path).rows
    file = Path(path.partition("=")[2])
    header, *lines = file.read_text().splitlines()
    file.write_text("\n".join([",".join(others.get(name, name) for name in header.split(",")), *lines]))
    again = fastflow.validate(path).rows
    assert again["predicted_s"].tolist() == rows["predicted_s"].tolist()
    assert again["complete"].tolist() == [True]


def test_experts_and_layers_that_stages_do_not_divide(runs):
    mixture = {
        "model": "Mixtral-8x7B", "hidden": 4096, "layers": 32, "heads": 32, "ffn": 14336, "vocab": 32000,
        "experts": 8, "topk": 2, "seq": 4096, "tp": 2, "pp": 1, "cp": 1, "vp": "",
    }  # fmt: skip
    shared = mixture | {"ep": 8}
    own = mixture | {"gpus": 16, "ep": 16, "experts": 16}  # more than data parallelism has
    uneven = {"layers": 29, "vp": ""}
    rows = fastflow.validate(runs(shared, own, uneven, mixture)).rows
    assert rows["strategy"].tolist() == ["TP-2-e8-d32", "TP-2-e16-d8", "TP-4-c2-d2-p4", "TP-2-d32"]
    assert rows["predicted_s"].notna().all()
    assert rows["complete"].tolist() == [True, True, False, False]
    assert rows["parameters"].iloc[0] == pytest.approx(46.7e9, rel=0.005)


@pytest.mark.parametrize(
    ("framework", "means"), [("torchtitan", "40"), ("MaxText", "full"), ("NeMo", "selective")]
)
def test_selective_recomputation_is_what_the_framework_means_by_it(runs, framework, means):
    run = {"framework": framework, "recompute": "selective", "pp": 1, "vp": "", "dp_kind": "fsdp"}
    row = row_of(runs(run))
    said = row_of(
        runs(run | {"recompute": means}) if means.isdigit() else runs(run), f"parallel.recompute={means}"
    )
    assert row["predicted_s"] == said["predicted_s"]


MIXTURE = {"model": "Qwen3-30B-A3B", "experts": 8, "topk": 2, "tp": 2, "pp": 1, "cp": 1, "vp": "", "ep": 8}


@pytest.mark.parametrize(
    ("cell", "note", "means"),
    [
        ("moe_act+layernorm", "", "moe_act+layernorm"), ("selective (mlp moe_act)", "", "mlp+moe_act"),
        ("selective", "recompute modules layernorm+moe_act; 8 nodes", "layernorm+moe_act"),
        ("", "recompute modules: mlp", "mlp"), ("none", "recompute modules mlp", "none"),
        ("full", "recompute modules mlp", "full"),
        ("selective", "recompute modules that we like", "selective"),
    ],
)  # fmt: skip
def test_modules_that_a_row_recomputes(runs, cell, note, means):
    row = row_of(runs(MIXTURE | {"recompute": cell, "notes": f'"{note}"'}, names=(*NAMES, "notes")))
    assert row["recompute"] == means


@pytest.mark.parametrize(
    ("cell", "strategy", "means"),
    [
        ("ZBV", "2", "zb-v"),
        ("DualPipeV", "2", "dualpipe-v"),
        ("dualpipe", "", "dualpipe"),
        ("zb-h2", "", "zb-2p"),
    ],
)
def test_the_schedule_of_a_row(runs, cell, strategy, means):
    row = row_of(runs({"schedule": cell, "vp": strategy}, names=(*NAMES, "schedule")))
    assert row["schedule"] == means


def test_a_slower_network_is_what_its_note_says(runs):
    fast, slow = fastflow.validate(
        runs(
            {"device": "A100-SXM4-80GB"},
            {"device": "A100-SXM4-80GB", "interconnect_note": "800 Gbps per node"},
        )
    ).rows["inter_Bps"]
    assert (fast, slow) == (25e9, 12.5e9)


@pytest.mark.parametrize(
    ("devices", "most", "taken"),
    [(64, 8, 8), (4, 8, 4), (12, 8, 6), (256, 72, 64), (144, 72, 72), (1, 72, 1)],
)
def test_a_job_has_as_many_devices_of_each_machine(devices, most, taken):
    assert devices_per_package(devices, most) == taken


# --- rows that are left out, files that are refused


@pytest.mark.parametrize(
    ("run", "says"),
    [
        ({"device": "TPU v5p"}, "device=TPU v5p is unknown: expected a name with one of A100"),
        ({"device": ""}, "device=nothing is unknown"),
        ({"heads": ""}, "heads is not said"),
        ({"gpus": ""}, "gpus is not said"),
        ({"gpus": 63}, "tp x pp x cp does not divide gpus"),
        ({"tp": 1000000, "pp": 1000000, "cp": 1000000}, "tp x pp x cp does not divide gpus"),
        ({"dtype": "float99"}, "dtype=float99 is unknown"),
        ({"dp_kind": "magic"}, "dp_kind=magic is unknown"),
        ({"recompute": "some"}, "recompute=some is unknown"),
        ({"layers": 12}, "p4x5"),
        ({"global_batch": 3}, "batch"),
    ],
)
def test_a_run_that_cannot_be_predicted_leaves_with_its_reason(runs, run, says):
    rows = fastflow.validate(runs({}, run)).rows
    assert rows["reason"].iloc[0] in ("", None)
    assert rows["feasible"].tolist() == [True, False]
    assert rows["predicted_s"].notna().tolist() == [True, False]
    assert says in rows["reason"].iloc[1]
    assert "\n" not in rows["reason"].iloc[1]


def test_no_run_can_be_predicted(runs):
    with pytest.raises(fastflow.InputError, match=r"the first one: .*p4x5"):
        fastflow.validate(runs({"layers": 12}))
    rows = fastflow.validate(runs({"layers": 12}, {}, {"device": "A100", "layers": 12})).rows
    assert rows["predicted_s"].notna().tolist() == [False, True, False]


@pytest.mark.parametrize(
    ("run", "says"),
    [
        ({"hidden": -3}, "hidden=-3 (from runs.csv, line 2) is invalid: expected a whole number"),
        ({"gpus": "many"}, "gpus=many (from runs.csv, line 2) is invalid: expected a whole number"),
        ({"gpus": "1e300"}, "gpus=1e300 (from runs.csv, line 2) is invalid"),
        ({"tp": 0}, "tp=0 (from runs.csv, line 2) is invalid: expected a whole number at least 1"),
        ({"vp": 1.5}, "vp=1.5 (from runs.csv, line 2) is invalid: expected a whole number"),
        ({"time_s": "soon"}, "time_s=soon (from runs.csv, line 2) is invalid: expected a time above 0"),
        ({"device": "abacus"}, "no row can be predicted; the first one: device=abacus is unknown"),
    ],
)
def test_what_is_wrong_with_a_file_of_runs_is_said(monkeypatch, tmp_path, runs, run, says):
    runs(run)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(fastflow.InputError) as error:
        fastflow.validate("measurements=runs.csv")
    assert says in str(error.value)
    assert "\n" not in str(error.value)


def test_what_is_wrong_with_a_file_of_runs_is_one_line_on_the_command_line(cli, tmp_path, runs):
    runs({"hidden": -3})
    code, out, err = cli(main, "measurements=runs.csv", "output=here")
    assert (code, out, len(err)) == (2, [], 1)
    assert "hidden=-3 (from runs.csv, line 2) is invalid" in err[0]
    assert [path.name for path in tmp_path.iterdir()] == ["runs.csv"]


def test_without_a_column_of_times_or_of_layers_a_file_is_none_of_runs(runs):
    with pytest.raises(fastflow.InputError, match="with times in time_s or iter_time_s"):
        fastflow.validate(runs(names=[name for name in NAMES if name != "time_s"]))
    with pytest.raises(fastflow.InputError):
        fastflow.validate(runs(names=[name for name in NAMES if name != "layers"]))


def test_no_chip_is_calibrated_to_runs(cli, runs):
    runs()
    code, _, err = cli(calibrate, "measurements=runs.csv", "chip=h100_sxm")
    assert (code, len(err)) == (2, 1)
    assert "a whole system" in err[0]


# --- what is said


@pytest.mark.long
def test_errors_are_by_device_source_framework_family_size_and_completeness(cli, tmp_path):
    code, out, _ = cli(main, f"measurements={SAMPLE / 'training.csv'}", "output=here")
    assert code == 0
    said = "\n".join(out)
    for by in ("device", "origin", "library", "family", "parameters_billions", "dtype", "complete"):
        assert f"by {by}" in said
    assert "complete layouts: " in said
    assert "feed forward " in said  # of a worst row
    assert out[-4].startswith("mean relative error ")
    errors = fastflow.validate(f"measurements={SAMPLE / 'training.csv'}").errors
    assert cli(report, "here")[0] == 0
    assert set(errors["by"]) >= {
        "device",
        "origin",
        "library",
        "family",
        "parameters_billions",
        "dtype",
        "complete",
    }


# --- what sources and recipes say

LORA = {"model": "Llama-2-70B LoRA r8", "vocab": 32000, "dtype": "fp8"}


def test_a_model_with_adapters_trains_them_alone(runs):
    frozen, whole = (row_of(runs({**LORA, "model": name})) for name in (LORA["model"], "Llama-2-70B"))
    assert 0.6 < frozen["predicted_s"] / whole["predicted_s"] < 0.9
    said = row_of(runs({**LORA, "model": "Llama-2-70B"}), "model.lora.rank=8", "model.lora.targets=attention")
    assert said["predicted_s"] == frozen["predicted_s"]
    wider = row_of(runs({**LORA, "model": "Llama-2-70B LoRA"}))
    assert wider["predicted_s"] == row_of(runs({**LORA, "model": "Llama-2-70B LoRA rank 16"}))["predicted_s"]
    assert wider["predicted_s"] > frozen["predicted_s"]


def test_what_a_source_leaves_unsaid_is_what_its_code_has(runs):
    gpt = {
        "model": "GPT-3 175B", "hidden": 12288, "layers": 96, "heads": 96, "kv_heads": 96, "ffn": 49152,
        "vocab": 51200, "seq": 2048, "global_batch": 32, "tp": 4, "pp": 8, "cp": "", "vp": "", "dtype": "",
    }  # fmt: skip
    names = (*NAMES, "source")
    source = {"source": "mlcommons/training_results_v3.1@d06288b2bd67:x"}
    row, said = (row_of(runs({**gpt, **source, **one}, names=names)) for one in ({}, {"dtype": "fp8"}))
    assert row["strategy"] == "TP-4-d2-p8x12"
    assert row["predicted_s"] == said["predicted_s"]
    plain, said = (row_of(runs({**gpt, **one}, names=names)) for one in ({}, {"dtype": "bf16"}))
    assert plain["strategy"] == "TP-4-d2-p8"
    assert plain["predicted_s"] == said["predicted_s"] > 1.2 * row["predicted_s"]


DEEPSEEK = {
    "framework": "Megatron-Bridge (NeMo 25.09)", "year": 2025, "model": "DeepSeek-V3", "gpus": 1024,
    "hidden": 7168, "layers": 61, "heads": 128, "kv_heads": 128, "ffn": 2048, "vocab": 129280, "seq": 4096,
    "experts": 256, "topk": 8, "global_batch": 1024, "tp": 2, "pp": 8, "cp": 1, "vp": 4, "ep": 64,
    "dtype": "fp8",
}  # fmt: skip


def test_a_recipe_has_its_layout_dispatcher_and_overlap(runs):
    recipe = row_of(runs(DEEPSEEK))
    said = row_of(
        runs({**DEEPSEEK, "framework": "NeMo 25.09"}), "parallel.pipeline_layout='Et|(tt|)*30mL'",
        "parallel.token_dispatcher=flex", "parallel.overlap.expert=true",
    )  # fmt: skip
    assert recipe["predicted_s"] == said["predicted_s"]
    names, misfit = (*NAMES, "pp_layout"), "E|(tt|)*29(t|t|)mL"
    own = {**DEEPSEEK, "pp_layout": "E|t|(tt|)*28t*3|tmL"}
    rows = fastflow.validate(runs(DEEPSEEK, own, {**DEEPSEEK, "pp_layout": misfit}, names=names)).rows
    assert rows["predicted_s"][0] == recipe["predicted_s"] != rows["predicted_s"][1]
    assert rows["reason"][2].startswith(f"parallel.pipeline_layout={misfit}")


@pytest.mark.parametrize(
    ("entry", "allowed"),
    [
        ("chunks.mlcommons_GPT_3=abc", "a whole number at least 1"),
        ("types.mlcommons_GPT_3=abc", "one of fp32, tf32, bf16"),
        ("hidden.GPT=abc", "one of tensor, context, expert"),
        ("dispatchers.GPT=abc", "one of auto, alltoall, flex"),
        ("pipelines.GPT=Ex", "auto, or the layers of each virtual stage"),
        ("adapters.GPT=abc", "one of qv, attention"),
    ],
)
def test_a_table_has_values_that_its_inputs_allow(runs, entry, allowed):
    run = runs({"model": "GPT-3", "source": "mlcommons"}, names=(*NAMES, "source"))
    with pytest.raises(fastflow.InputError) as refused:
        fastflow.validate(run, f"+training.{entry}")
    assert str(refused.value).startswith(f"training.{entry.partition('.')[0]}.")
    assert refused.value.allowed.startswith(allowed)


def test_layers_that_virtual_stages_do_not_divide_are_as_even_as_possible(runs):
    row, balanced = (
        row_of(runs({"layers": 77}), *one) for one in ((), ("parallel.pipeline_partition=balanced",))
    )
    assert row["reason"] == ""
    assert row["predicted_s"] == balanced["predicted_s"]


# --- frameworks


def leaves(said, prefix=""):
    for key, value in said.items():
        if isinstance(value, dict):
            yield from leaves(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


@pytest.mark.parametrize("path", FRAMEWORKS, ids=lambda path: path.stem)
def test_every_switch_of_a_framework_has_a_source_and_another_value_than_none(compose, path):
    point, usual = compose(f"framework={path.stem}", "model=llama3_8b"), compose("model=llama3_8b")
    chain = [path]
    while more := [
        one for one in _said(chain[-1]).get("defaults", []) if isinstance(one, str) and one != "_self_"
    ]:
        chain.append(path.with_name(f"{more[0]}.yaml"))
    sources = {key for one in chain for key, _ in leaves(_said(one).get("framework", {}).get("source", {}))}
    for one in chain:
        for key, value in leaves({name: _said(one).get(name, {}) for name in ("parallel", "model")}):
            assert key in point
            differs = point[key] != usual.get(key)
            assert not differs or "default" in sources or sources & {key, key.rpartition(".")[0]}, (
                key,
                value,
            )


def _said(path):
    return yaml.safe_load(path.read_text()) or {}


def test_the_command_line_goes_before_a_framework(compose):
    point = compose("framework=megatron_core", "model=llama3_8b", "parallel.overlap.tensor=false")
    assert (point["parallel.overlap.tensor"], point["precision.gradient"]) == (False, "fp32")
    assert compose("framework=megatron_core", "precision=mixed")["precision.gradient"] == "operand"
    assert compose("framework=nemo")["precision.gradient"] == "operand"
    assert compose("framework=nemo")["parallel.overlap.tensor"] is True


def test_a_framework_changes_what_a_run_takes():
    point = ("model=llama3_8b", "system=superpod_h100", "system.devices=16", "parallel.strategy=TP-4-d2-p2")
    frame = fastflow.evaluate(*point, "framework=none,megatron_2021,megatron_core")
    none, old, new = frame["time_s"]
    assert new < none < old
    assert frame["framework"].tolist() == ["none", "megatron_2021", "megatron_core"]
