"""Files of training runs and served points: columns named by keys, names of tables, what goes first."""

import shutil
from pathlib import Path

import numpy as np
import pytest
import yaml

import fastflow
from fastflow.analysis.measurements.aliases import alias_table, key_for, match_name
from fastflow.analysis.measurements.kinds.served_energy import ServedEnergy
from fastflow.analysis.measurements.kinds.serving import ServedPoints
from fastflow.analysis.measurements.kinds.training import FIRST_DENSE, STRUCTURE, TrainingRuns
from fastflow.analysis.measurements.kinds.training_energy import TrainingEnergy
from fastflow.cli.commands.validate import main
from fastflow.config.library import library_root
from fastflow.config.model_inputs import SETS_OTHERS
from fastflow.schema import INPUTS

CONF = library_root() / "conf"
RUN = {
    "time_s": 14.7, "device": "H100-SXM5-80GB", "gpus": 16, "framework": "NeMo 24.09", "year": 2024,
    "model": "Mixtral-8x7B", "hidden": 1024, "layers": 8, "heads": 16, "ffn": 1792, "vocab": 32000,
    "experts": 8, "topk": 2, "seq": 2048, "global_batch": 16, "micro_batch": 1, "tp": 2, "pp": 2, "cp": 2,
    "ep": 2, "dp_kind": "zero1", "recompute": "none", "dtype": "bf16",
}  # fmt: skip
OF_RUN = ("model=mixtral_8x7b", "system=superpod_h100", "framework=nemo")
POINT = {
    "system": "h100_sxm", "model": "meta-llama/Llama-3.1-8B", "isl": 128, "osl": 16, "concurrency": 2,
    "tp": 1, "pp": 1, "attention_dp": 1, "moe_tp": 1, "moe_ep": 1, "backend": "vllm",
    "gemm_quant_mode": "fp8", "moe_quant_mode": "fp8", "silicon_ttft_ms": 100.0, "silicon_tpot_ms": 11.0,
    "backend_version": "0.15.1",
}  # fmt: skip
STATE = {
    "device": "H100", "model": "meta-llama/Llama-3.1-8B", "framework": "vLLM", "task": "gpqa", "tp": 1,
    "avg_batch": 7.9, "osl_mean": 16.2, "dtype": "bfloat16", "tpot_median_s": 0.01,
    "power_per_device_W": 450, "energy_per_token_J": 0.6,
}  # fmt: skip
BENCHMARK = {
    "device": "H100-SXM5-80GB", "devices": 8, "benchmark": "bert", "seq": 512, "global_batch": 64,
    "samples": 6400, "run_s": 10, "power_kind": "AC", "node_power_per_gpu_training_W": 800, "energy_MJ": 0.06,
}  # fmt: skip
ROWS = {"training": RUN, "serving": POINT}


@pytest.fixture
def file(tmp_path):
    """A function from rows, each with all columns of the first, to the override that names a file of them."""

    def write(*rows):
        names = list(dict.fromkeys(name for row in rows for name in row))
        lines = [names, *([row.get(name, "") for name in names] for row in rows)]
        path = tmp_path / "rows.csv"
        path.write_text("\n".join(",".join(f'"{cell}"' for cell in line) for line in lines) + "\n")
        return f"measurements={path}"

    return write


def some_long(cases, *quick):
    """Mark cases as long, but for those of some places."""
    return [
        pytest.param(*case, marks=[] if place in quick else pytest.mark.long)
        for place, case in enumerate((case if isinstance(case, tuple) else (case,)) for case in cases)
    ]


def predicted(*overrides):
    rows = fastflow.validate(*overrides).rows
    assert rows["predicted_s"].notna().all(), rows["reason"].tolist()
    return rows["predicted_s"].tolist()


# --- a user's own files


def own_file(folder, group, choice):
    """Copy a choice of the library, for `group=FILE`."""
    path = folder / f"own_{group}.yaml"
    shutil.copy(CONF / group / f"{choice}.yaml", path)
    return path.name


OWN = {
    "chip": "h100_sxm", "system": "superpod_h100", "model": "llama3_8b", "framework": "nemo",
    "server": "vllm", "serve": "continuous",
}  # fmt: skip
LEAVES = {
    "training": ("model.ffn=4096", "parallel.overlap.data=false"),
    "serving": ("serve.length_range_ratio=0.1", "model.kv_heads=4"),
}


@pytest.mark.long
@pytest.mark.parametrize(
    ("kind", "group"),
    some_long(
        [(kind, group) for kind in ROWS for group in OWN if kind != "training" or group[:5] != "serve"], 0
    ),
)
def test_a_leaf_goes_with_a_users_own_file_as_with_the_library(cli, tmp_path, file, kind, group):
    """Hydra, which knows no row, would refuse leaves that are there with the model of a row alone."""
    override = file(ROWS[kind])
    own = own_file(tmp_path, group, OWN[group])
    assert cli(main, override, f"{group}={own}", *LEAVES[kind], "output=here")[0] == 0
    known = predicted(override, f"{group}={OWN[group]}", *LEAVES[kind])
    assert [path.name for path in tmp_path.iterdir() if path.name == "here"] == ["here"]
    assert predicted(override, f"{group}={tmp_path / own}", *LEAVES[kind]) == known


@pytest.mark.parametrize(
    ("override", "says"),
    some_long([
        ("model.fnn=4", "model.fnn=4 (from the command line) is invalid: expected a key of model"),
        ("model.ffn=1,2", "one value only"),
        ("system=superpod_h100,dgx_h100", "one value only"),
        ("chip=nosuch.yaml", "chip=nosuch.yaml (from the command line) is invalid: expected a file that"),
        ("hydra.jub.name=x", "hydra.jub.name"),
        ("output=here/${model.fnn}", "output=here/${model.fnn} (from the command line) is invalid"),
    ], 0),
)  # fmt: skip
def test_what_is_wrong_beside_a_users_own_file_is_said(cli, tmp_path, file, override, says):
    own = own_file(tmp_path, "chip", "h100_sxm")
    chip = [] if override.startswith("chip") else [f"chip={own}"]
    output = [] if override.startswith("output") else ["output=here"]
    code, _, err = cli(main, file(RUN), *chip, override, *output)
    assert (code, len(err)) == (2, 1)
    assert says in err[0]
    assert not (tmp_path / "here").exists()


# --- the command line goes before what names stand for

UNKNOWN = "nobody's"
BEFORE = {
    # a row whose name is unknown, or stands for another thing; what replaces it; a row of the same point
    "training.devices": ({"device": UNKNOWN}, ("system=superpod_h100",), {}),
    "training.networks": (
        {"interconnect_note": "800 Gbps per node"}, ("chip.pinned.inter_Bps='50 GB/s'",), {},
    ),
    "training.frameworks": ({"framework": UNKNOWN}, ("framework=nemo",), {}),
    "training.families": ({"model": UNKNOWN}, ("model=mixtral_8x7b",), {}),
    "training.selective": (
        {"framework": "torchtitan", "recompute": "selective"}, ("parallel.recompute=full",),
        {"framework": "torchtitan", "recompute": "full"},
    ),
    "training.adapters": ({"model": "Mixtral-8x7B LoRA r8"}, ("model.lora.rank=16",),
                          {"model": "Mixtral-8x7B LoRA r16"}),
    "training.chunks": ({"source": "mlcommons GPT-3"}, ("parallel.strategy=TP-2-c2-e2-d2-p2",), {}),
    "training.types": ({"source": "mlcommons GPT-3", "dtype": "", "vp": 2}, ("model.dtype=bf16",),
                       {"vp": 2}),
    "training.dispatchers": ({"framework": "Megatron-Bridge Qwen3 30B (NeMo 24.09)"},
                             ("parallel.token_dispatcher=alltoall",), {}),
    "training.expert_parallel": ({"ep": ""}, ("parallel.strategy=TP-2-c2-e2-d2-p2x2",
                                              "+training.expert_parallel.NeMo=4"), {}),
    "training.hidden": ({"framework": "Megatron-Bridge DeepSeek H100 (NeMo 24.09)"},
                        ("parallel.overlap.expert=false", "parallel.token_dispatcher=alltoall"), {}),
    "training.pipelines": ({}, ("parallel.pipeline_layout='Et*5|t*3L'",
                                "+training.pipelines.NeMo='Et*4|t*4L'"), {}),
    "training.benchmarks": ({"benchmark": UNKNOWN}, ("model=bert_large", "model.sequence=256"), {}),
    "training.layouts": ({}, ("parallel.strategy=TP-2-d4", "+training.layouts.bert=TP-4"), {}),
    "training.lengths": ({}, ("model.sequence=128", "training.lengths.bert=64"), {}),
    "training.evaluations": ({}, ("+training.evaluations.bert=1000000000",), {}),
    "training.examples": ({}, ("+training.examples.bert=100",), {}),
    "serving.devices": ({"system": UNKNOWN}, ("system=superpod_h100",), {}),
    "serving.servers": ({"backend": UNKNOWN}, ("server=vllm",), {}),
    "serving.models": ({"model": UNKNOWN}, ("model=llama3_8b",), {}),
    "serving.dtypes": (
        {"gemm_quant_mode": "", "model": "Llama-8B-FP8"}, ("model.dtype=bf16",), {"gemm_quant_mode": "bf16"},
    ),
    "serving.experts": ({}, ("precision.experts=bf16", "+serving.experts.Llama_8B=mxfp4",
                             "model.dtype=fp8"), {"moe_quant_mode": "bf16"}),
    "serving.caches": ({}, ("precision.cache=operand", "+serving.caches.vllm_Llama_8B=bf16"), {}),
    "serving.spreads": ({}, ("serve.length_range_ratio=0", "+serving.spreads.Llama_8B=0.4"), {}),
    "serving.prompts": ({"isl": 1000}, ("serve.num_unique_prompts=0", "+serving.prompts.vllm=3"),
                        {"isl": 1000}),
    "serving.connections": ({}, ("serve.batch=0", "+serving.connections.vllm_Llama_8B=1"), {}),
    "serving.recipes": ({}, ("server.max_num_seqs=4", "+serving.recipes.vllm='server.max_num_seqs=2'"), {}),
    "serving.prompt_lengths": ({"task": UNKNOWN}, ("serve.isl=256", "serve.sampling=top_p"), {}),
    "serving.memory_shares": ({}, ("server.gpu_memory_utilization=0.9",
                                  "serving.memory_shares.gpqa=0.5"), {}),
    "serving.sampling": ({}, ("serve.sampling=greedy", "serving.sampling.gpqa=greedy"), {}),
}  # fmt: skip


ROW_OF_TABLE = {
    "serving.prompt_lengths": STATE,
    "serving.memory_shares": STATE,
    "serving.sampling": STATE,
    **{
        f"training.{name}": BENCHMARK
        for name in ("benchmarks", "layouts", "lengths", "evaluations", "examples")
    },
}
"""Tables that another kind of the section reads."""


def test_every_table_of_names_is_among_these():
    kinds = (TrainingRuns, TrainingEnergy, ServedPoints, ServedEnergy)
    of_kinds = {f"{kind.section}.{name}" for kind in kinds for name in kind.alias_tables}
    files = {
        f"{section}.{name}"
        for section in ROWS
        for name in yaml.safe_load((CONF / "measurement_files.yaml").read_text())[section]
        if name != "source"
    }
    assert set(BEFORE) == of_kinds == files


@pytest.mark.parametrize("name", some_long(BEFORE, 0, 4, 7, 10))
def test_the_command_line_goes_before_what_names_stand_for(file, name):
    changed, overrides, same = BEFORE[name]
    row = ROW_OF_TABLE.get(name, ROWS[name.partition(".")[0]])
    overrides = [one.replace("+serving.prompts.vllm", "serving.prompts.vllm") for one in overrides]
    got = predicted(file(row | changed), *overrides)
    more = [
        one for one in overrides if "=" in one and not one.lstrip("+").startswith(("serving", "training"))
    ]
    assert got == predicted(file(row | same), *more)


def test_spreads_of_the_command_line_are_those_of_the_lengths(file):
    drawn = POINT | {"model": "meta-llama/Llama-3.1-70B", "tp": 4, "moe_tp": 4}
    whole = fastflow.validate(file(drawn), "serve.length_range_ratio=0").rows
    same = fastflow.evaluate(
        "serve=continuous", "server=vllm", "model=llama3_70b", "system=superpod_h100", "chip=h100_sxm",
        "model.dtype=fp8", "precision.cache=fp8", "parallel.strategy=TP-4", "system.devices=4",
        "serve.isl=128", "serve.osl=16", "serve.length_range_ratio=0", "serve.concurrency=2",
        "serve.simulate=true",
        "precision.experts=fp8",
    )  # fmt: skip
    assert whole["predicted_s"].tolist() == [same["ttft_s"].item(), same["tpot_s"].item()]


CONFIG = (
    '{"model_type": "llama", "hidden_size": 1024, "num_hidden_layers": 8, "num_attention_heads": 16,'
    ' "num_key_value_heads": 4, "intermediate_size": 2816, "vocab_size": 32000, "hidden_act": "silu",'
    ' "max_position_embeddings": 16384, "rms_norm_eps": 1e-5}'
)


@pytest.mark.parametrize("kind", ROWS)
def test_a_config_json_describes_rows_of_unknown_models(tmp_path, file, kind):
    path = tmp_path / "config.json"
    path.write_text(CONFIG)
    unknown = ROWS[kind] | {"model": UNKNOWN}
    bare = unknown | dict.fromkeys(("hidden", "layers", "heads", "ffn", "experts", "topk", "ep"), "")
    row = {name: text for name, text in bare.items() if name in ROWS[kind]}
    by_line = predicted(file(row), "model=transformer", f"model.config={path}")
    assert predicted(file(row), f"model.config={path}") == by_line
    by_column = fastflow.validate(file(row | {"model.config": path}, ROWS[kind])).rows["predicted_s"]
    alone = predicted(file(ROWS[kind]))
    assert by_column.tolist() == [*by_line, *alone]
    assert by_line != alone


def test_a_mapping_of_a_group_sets_leaves_and_chooses_nothing(file):
    assert predicted(file(RUN), "model={ffn: 2048, tied: true}") == predicted(
        file(RUN), "model.ffn=2048", "model.tied=true"
    )


def test_needed_cells_may_be_on_the_command_line(file):
    keys = ("hidden", "layers", "heads", "seq", "global_batch", "gpus")
    said = [f"{TrainingRuns.inputs_of_columns[name]}={RUN[name]}" for name in keys]
    assert predicted(file(RUN | dict.fromkeys(keys, "")), *said) == predicted(file(RUN))
    words = {"dtype": "magic", "dp_kind": "magic", "recompute": "magic"}
    said = ("model.dtype=bf16", "parallel.zero_stage=1", "parallel.recompute=none")
    assert predicted(file(RUN | words), *said) == predicted(file(RUN))


# --- names of several words


@pytest.mark.parametrize("name", BEFORE)
def test_a_name_of_several_words_can_be_added_on_the_command_line(compose, name):
    """`_` stands for a blank; a user's name has the place of a library's of the same words."""
    known = yaml.safe_load((CONF / "measurement_files.yaml").read_text())
    section, _, part = name.partition(".")
    entries = {f"{name}.{key}": value for key, value in known[section][part].items()}
    for text, key in (("NVIDIA RTX PRO 6000", "RTX_PRO_6000"), ("4090 D", "_4090_D")):
        names = alias_table({**entries, f"{name}.{key}": "mine"}, name)
        assert names[match_name(text, names)] == "mine"
    for text in known[section][part]:
        names = alias_table({**entries, f"{name}.{text.replace(' ', '_')}": "mine"}, name)
        assert names[match_name(text, names)] == "mine"
        assert len(names) == len(entries)


@pytest.mark.parametrize(
    ("kind", "column", "text", "override"),
    some_long([
        ("training", "device", "RTX PRO 6000", "+training.devices.RTX_PRO_6000=h100_sxm/superpod_h100"),
        ("training", "device", "4090 D", "+training.devices._4090_D=h100_sxm/superpod_h100"),
        ("training", "model", "My Mixture", "+training.families.My_Mixture=mixtral_8x7b"),
        ("training", "framework", "My NeMo", "+training.frameworks.My_NeMo=nemo"),
        ("serving", "system", "my h-100", "+serving.devices.my_h_100=h100_sxm/superpod_h100"),
        ("serving", "model", "me/Foo-7B", "+serving.models={Foo 7B: llama3_8b}"),
        ("serving", "backend", "my server", "+serving.servers.my_server=vllm"),
    ], 0, 5),
)  # fmt: skip
def test_names_of_several_words_by_the_command_line(file, kind, column, text, override):
    row = ROWS[kind]
    more = ("serving.prompts.vllm=0",) if kind == "serving" else ()
    assert predicted(file(row | {column: text}), override) == predicted(file(row), *more)


@pytest.mark.parametrize(
    ("kind", "text"),
    some_long(
        [(kind, text) for kind in ROWS for text in ("RTX PRO 6000", "4090 D", "a/b--c_d.e (f)", "é è")], 1
    ),
)
def test_the_advice_for_an_unknown_name_works(file, kind, text):
    columns = {"serving": {"system": "devices", "model": "models", "backend": "servers"}}
    stands_for = {"devices": "h100_sxm/superpod_h100", "models": "llama3_8b", "servers": "vllm"}
    for column, names in columns.get(kind, {"device": "devices"}).items():
        reason = fastflow.validate(file(ROWS[kind], ROWS[kind] | {column: text})).rows["reason"].iloc[-1]
        key = f"+{kind}.{names}.{key_for(text)}="
        assert f"'{key}" in reason
        if any(letter.isascii() and letter.isalnum() for letter in text):
            predicted(file(ROWS[kind] | {column: text}), key + stands_for[names])


def test_a_device_may_stand_for_files_of_the_user(tmp_path, file):
    chip, system = (tmp_path / own_file(tmp_path, *one) for one in list(OWN.items())[:2])
    own = f"+training.devices.Mine={chip}/{system}"
    assert predicted(file(RUN | {"device": "Mine"}), own) == predicted(file(RUN))


# --- columns named by keys


def other_than(base, column):
    """Return another value of an input than it has, as it is written; None for a text without choices."""
    value = base.get(column.name)
    if column.kind == "bool":
        return "false" if value else "true"
    if column.choices:
        return next(choice for choice in column.choices if choice != value)
    if column.kind == "str":
        return {"parallel.recompute": "full", "model.pattern": "2*dense, experts"}.get(column.name)
    if column.kind == "int":
        return str(
            int(min(max(1, column.low) if value is None else value + 1 if value >= 0 else 2, column.high))
        )
    low = max(column.low, 0.0)
    near = 0.5 * (low + min(column.high, low + 1.0))
    number = near if value is None or value == low else 0.9 * value + 0.1 * low
    return f"{number:.6g} {column.unit}".strip()


def keys_of(kind, base):
    """Return every key that may be a column of a kind's files, beside its own, and another value."""
    plain = {*kind.inputs_of_columns.values(), *kind.keys_of_columns.values()}
    return {
        column.name: other_than(base, column)
        for column in INPUTS
        if "*" not in column.name and "." in column.name and column.name not in SETS_OTHERS
        if not kind.instead_of_key(column.name)
        if not any(f"{column.name}.".startswith(f"{key}.") for key in plain)
        if other_than(base, column) is not None
    }


def quoted(text):
    return f"'{text}'" if " " in text else text


def check_keys(file, keys, base, row):
    """Each key in a row of its own: the row is as with the command line, and the others are as without."""
    times = fastflow.validate(file(row, *(row | {key: text} for key, text in keys.items()), row)).rows
    alone = predicted(file(row))
    every = np.array([*times["predicted_s"]]).reshape(-1, len(alone))
    assert every[0].tolist() == every[-1].tolist() == alone
    for own, (key, text) in zip(every[1:-1], keys.items(), strict=True):
        try:
            override = f"{'' if key in base else '+'}{key}={quoted(text)}"
            said = fastflow.validate(file(row), override).rows["predicted_s"].to_numpy()
        except fastflow.InputError:
            said = np.full(own.size, np.nan)  # of the only row; beside others it has a reason
        np.testing.assert_array_equal(own, said, err_msg=f"{key}={text}")


OFTEN = (
    "model.window", "model.query_latent", "model.norm", "model.tied", "model.fused_attention",
    "chip.pinned.dram_Bps", "chip.pinned.l2_Bps", "system.package.devices", "tiling.tiles",
)  # fmt: skip


@pytest.mark.long
def test_some_columns_named_by_keys_are_as_the_command_line(compose, file):
    base = compose(*OF_RUN)
    check_keys(file, {one.name: other_than(base, one) for one in INPUTS if one.name in OFTEN}, base, RUN)


@pytest.mark.long
def test_every_column_named_by_a_key_is_as_the_command_line(compose, file):
    base = compose(*OF_RUN)
    keys = keys_of(TrainingRuns, base)
    assert len(keys) > 200
    check_keys(file, keys, base, RUN)


@pytest.mark.long
def test_columns_named_by_keys_of_servers(compose, file):
    base = compose("serve=continuous", "server=vllm", "model=llama3_8b", "system=superpod_h100")
    keys = {"serve.prefix_cache_hit_rate": "0.5", "server.max_num_seqs": "1", "server.step_overhead": "3 ms",
            "model.ffn": "4096",
            "model.mtp": "1", "serve.slo.ttft": "1 s", "chip.tdp": "300 W"}  # fmt: skip
    check_keys(file, keys, base, POINT)


def test_a_key_of_a_row_goes_before_what_is_derived_of_it(file):
    """The pattern, machines of a job, the split of layers and what is computed again."""
    row = {name: text for name, text in RUN.items() if name != "recompute"} | {"layers": 7}
    said = {
        "model.pattern": "dense, experts", "system.package.devices": "2",
        "parallel.pipeline_partition": "even",
        "parallel.recompute": "selective", "framework": "torchtitan",
    }  # fmt: skip
    for keys in ({"model.pattern": "dense, experts"}, {"system.package.devices": "2"}):
        (own,) = predicted(file(row | {"model": "Mine"} | keys))
        (by_line,) = predicted(
            file(row | {"model": "Mine"}), *(f"{key}={quoted(text)}" for key, text in keys.items())
        )
        assert own == by_line != predicted(file(row | {"model": "Mine"}))[0]
    mine = row | {"model": "Mine"}
    assert predicted(file(mine | {"pattern": "dense, experts"})) == predicted(
        file(mine), "model.pattern='dense, experts'"
    )
    rows = fastflow.validate(
        file(row, row | {"parallel.pipeline_partition": said["parallel.pipeline_partition"]})
    ).rows
    assert "stages" in rows["reason"].iloc[1]
    half = row | {"framework": "torchtitan", "pp": 1}
    (own,) = predicted(file(half | {"parallel.recompute": "selective"}))
    assert own == predicted(file(half), "parallel.recompute=selective")[0]
    assert own != predicted(file(half | {"recompute": "selective"}))[0]


@pytest.mark.parametrize("key", ["chip.pinned.inter_Bps", "chip.area.link"])
def test_an_empty_cell_of_a_key_that_the_configuration_lacks_says_nothing(file, key):
    """As a pin of a chip that has none: a 0 there would be another chip."""
    filled = RUN | {key: "50 GB/s" if key.endswith("Bps") else "0.01"}
    beside = (
        "system=cluster",
        "chip=pathfinding",
        "model.layers=2",
        "model.vocabulary=1000",
        "model.experts=2",
    )
    rows = fastflow.validate(file(RUN, filled), *beside).rows
    (alone,) = predicted(file(RUN), *beside)
    assert rows["predicted_s"].iloc[0] == alone != rows["predicted_s"].iloc[1]


def test_the_command_line_goes_before_a_column_named_by_a_key(file):
    row = RUN | {"model.norm": "layer", "parallel.overlap.data": "false"}
    overrides = ("model.norm=rms", "parallel.overlap.data=true")
    assert predicted(file(row), *overrides) == predicted(file(RUN), *overrides)


def test_a_layout_may_be_said_by_a_strategy(file):
    rows = fastflow.validate(
        file(RUN, RUN | {"parallel.strategy": "TP-4-d4"}, RUN | {"gpus": 15, "parallel.strategy": "TP-1-d15"})
    ).rows
    assert rows["strategy"].tolist()[1:] == ["TP-4-d4", "TP-1-d15"]
    assert predicted(file(RUN), "parallel.strategy=TP-4-d4") == [rows["predicted_s"].iloc[1]]


# --- plain names


PLAIN = [
    ({"overlap": "none"}, {f"parallel.overlap.{name}": "false" for name in
                           ("tensor", "context", "expert", "data", "pipeline")}),
    ({"overlap": "data + tensor"}, {f"parallel.overlap.{name}": str(name in ("data", "tensor")).lower() for
                                    name in ("tensor", "context", "expert", "data", "pipeline")}),
    ({"overlap": "all"}, {f"parallel.overlap.{name}": "true" for name in
                          ("tensor", "context", "expert", "data", "pipeline")}),
    ({"cp_comm_type": "a2a"}, {"parallel.cp_comm_type": "a2a"}),
    ({"cp_comm_type": "p2p"}, {"parallel.cp_comm_type": "p2p"}),
    ({"first_k_dense": 3}, {"model.pattern": "3*dense, 5*experts"}),
    ({"first_k_dense_replace": 0}, {"model.pattern": "experts"}),
    ({"pattern": "dense, experts"}, {"model.pattern": "dense, experts"}),
    ({"shared_experts": 1}, {"model.shared_experts": "1"}),
    ({"mtp": 1}, {"model.mtp": "1"}),
    ({"head_dim": 128}, {"model.head_dim": "128"}),
    (
        {"kv_lora_rank": 512, "q_lora_rank": 768, "qk_rope_head_dim": 64, "qk_nope_head_dim": 128,
         "v_head_dim": 128},
        {"model.latent": "512", "model.query_latent": "768", "model.rotary": "64", "model.head_dim": "128",
         "model.value_dim": "128"},
    ),
]  # fmt: skip


def test_plain_names_say_what_keys_say(file):
    """Rows that differ in them are in one file; an empty cell says nothing."""
    plain = predicted(file(RUN, *(RUN | said for said, _ in PLAIN)))
    assert plain == predicted(file(RUN, *(RUN | keys for _, keys in PLAIN)))
    assert plain[:1] == predicted(file(RUN))
    assert len({*plain}) >= len(PLAIN) - 3  # what is as the framework has it changes nothing


def test_every_plain_name_is_in_the_documentation():
    text = (Path(library_root()) / "docs" / "measurements.md").read_text()
    for name in (*STRUCTURE, *FIRST_DENSE, *TrainingRuns.keys_of_columns):
        assert f"`{name}`" in text, name


# --- what is wrong with a column


WRONG = [
        ({"parallel.overlap.data": "maybe"}, "parallel.overlap.data=maybe (from rows.csv, line 2) is"),
        ({"parallel.overlap.dta": "true"}, "did you mean parallel.overlap.data?"),
        ({"engine.threads": "2"}, "column=engine.threads (from rows.csv, line 1) is invalid"),
        ({"hydra.job.name": "x"}, "column=hydra.job.name (from rows.csv, line 1) is invalid"),
        ({"model.name": "gemm"}, "model=NAME on the command line chooses for all rows"),
        ({"model.m": "4"}, "m is of other models"),
        ({"model.strategy": "TP-1"}, "expected parallel.strategy"),
        ({"model.config": "nosuch.json"}, "model.config=nosuch.json (from rows.csv, line 2) is invalid"),
        ({"chip.tdp": "700"}, "chip.tdp=700 (from rows.csv, line 2) is invalid: expected a number in W"),
        ({"dtype": "bf16", "gemm_quant_mode": "bf16", "model.dtype": "bf16"}, "expected an empty cell"),
        ({"model.pattern": "3*dnse"}, "model.pattern=3*dnse (from rows.csv, line 2) is invalid"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "columns", "says"),
    some_long([(kind, *case) for kind in ROWS for case in WRONG], *range(len(WRONG)), len(WRONG)),
)
def test_what_is_wrong_with_a_column_named_by_a_key_is_said(tmp_path, monkeypatch, file, kind, columns, says):
    file(ROWS[kind] | columns)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(fastflow.InputError) as error:
        fastflow.validate("measurements=rows.csv")
    assert says in str(error.value)
    assert "\n" not in str(error.value)


def test_what_is_wrong_is_one_line_on_the_command_line(cli, tmp_path, file):
    file(RUN | WRONG[0][0])
    code, out, err = cli(main, "measurements=rows.csv", "output=here")
    assert (code, out, len(err)) == (2, [], 1)
    assert WRONG[0][1] in err[0]
    assert [path.name for path in tmp_path.iterdir()] == ["rows.csv"]


@pytest.mark.parametrize(
    ("kind", "columns", "says"),
    [
        ("training", {"n_gpus": 16}, "n_gpus=16 (from rows.csv, line 2) is invalid: expected an empty cell"),
        ("training", {"overlap": "none", "parallel.overlap.data": "true"}, "since overlap says the same"),
        ("training", {"first_k_dense": 1, "pattern": "dense"}, "since first_k_dense says the same"),
        ("training", {"serve.isl": 4}, "expected a key that training runs depend on, of the sections model,"),
        ("training", {"first_k_dense": -1}, "first_k_dense=-1 (from rows.csv, line 2) is invalid"),
        ("serving", {"tp": "many"}, "tp=many (from rows.csv, line 2) is invalid: expected a whole number"),
        ("serving", {"isl": "long"}, "isl=long (from rows.csv, line 2) is invalid: expected tokens"),
        ("serving", {"serve.isl": 4}, "serve.isl=4 (from rows.csv, line 2) is invalid: expected an empty"),
    ],
)
def test_what_is_wrong_with_a_column_of_one_kind_is_said(tmp_path, monkeypatch, file, kind, columns, says):
    file(ROWS[kind] | columns)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(fastflow.InputError) as error:
        fastflow.validate("measurements=rows.csv")
    assert says in str(error.value)


@pytest.mark.parametrize(
    ("kind", "columns", "says"),
    some_long([
        ("training", {"overlap": "data+magic"}, "overlap=data+magic is unknown: expected none, all, or some"),
        ("training", {"cp_comm_type": "a2a+p2p"}, "cp_comm_type=a2a+p2p is unknown: expected one of p2p"),
        ("training", {"model.window": 128}, "model.window=128 is invalid: expected 0, unless model.pattern"),
        ("training", {"model.kv_heads": ""}, ""),
        ("training", {"pattern": "experts", "experts": "", "topk": "", "model": "Llama"}, "model.experts="),
        ("training", {"tiling.tiles": "random"}, "tiling.samples=nothing is invalid"),
        ("serving", {"isl": ""}, "isl is not said: expected a cell, or serve.isl=VALUE for all rows"),
        ("serving", {"model.heads": 5}, "model.heads=5 is invalid"),
        ("serving", {"tiling.tiles": "random"}, "tiling.samples=nothing is invalid"),
    ], 0, 4, 6),
)  # fmt: skip
def test_a_row_that_makes_no_point_has_a_reason_and_the_others_stay(file, kind, columns, says):
    row = ROWS[kind]
    rows = fastflow.validate(file(row, row | columns)).rows
    last = rows.iloc[-1]
    assert rows["predicted_s"].notna().iloc[0]
    assert says in (last["reason"] or "")
    assert bool(says) == np.isnan(last["predicted_s"])


@pytest.mark.parametrize(
    ("override", "says"),
    [
        (
            "+training.devices.Mine=h100_sxm",
            "training.devices.Mine=h100_sxm is invalid: expected CHIP/SYSTEM",
        ),
        (
            "training.devices.H100=h100_sxm/nosuch",
            "system=nosuch (from a name of training, conf/measurement_files.yaml",
        ),
        (
            "+training.families.Mixtral_8x7B=nosuch",
            "model=nosuch (from a name of training, conf/measurement_files.yaml",
        ),
    ],
)
def test_a_name_that_stands_for_nothing_is_refused(file, override, says):
    with pytest.raises(fastflow.InputError) as error:
        fastflow.validate(file(RUN), override)
    assert says in str(error.value)


@pytest.mark.parametrize("serve", ["none", "prefill", "decode"])
def test_served_points_are_served(file, serve):
    with pytest.raises(fastflow.InputError, match=f"serve={serve} .*one of continuous, disaggregated"):
        fastflow.validate(file(POINT), f"serve={serve}")
