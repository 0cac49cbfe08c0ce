"""No silent wrong answer, whatever the inputs: drawn at their bounds, far apart, or missing.

Every draw takes a point of the library and changes some of its inputs within what the registry allows. It
may be refused with a line that names a key, or be a row with a reason; else all that is predicted is a
number that means something. NumPy's warnings are errors here, as in all tests.
"""

import math
import re
import sys
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastflow.core.errors import InputError
from fastflow.engine.run.predict import results_of
from fastflow.performance import crossflow, results
from fastflow.physics.parallelism.mesh import AXES
from fastflow.physics.parallelism.strategy import parse
from fastflow.schema import find_input, find_result
from tests.conftest import columns_of
from tests.support.checks import cases

FILE = """
rows: 4096
sequences: 8
layers:
- {name: table, kind: embedding, kernels: [{name: lookup, type: lookup, vocabulary: 999, cols: 64}]}
- name: block
  repeat: 3
  kernels:
  - {name: norm, type: rowwise, cols: 64, flop: 8}
  - {name: qkv, type: gemm, inner: 64, cols: 192}
  - {name: scores, type: batched_gemm, batch: 32, rows: 128, inner: 16, cols: 128, keeps: 0}
  - {name: act, type: elementwise, cols: 64, flop: 1, reads: [input, norm]}
- {name: head, kind: softmax, kernels: [{name: logits, type: gemm, inner: 64, cols: 999}]}
"""
LM = ("model=lstm_lm", "model.hidden=256", "model.batch=1024", "model.vocabulary=5000", "model.sequence=5")
BASES = (
    ("model=gemm",),
    ("model=gemm", "model.training=true", "model.batch=3", "tiling=random_5", "tech=n3"),
    ("model=gemm", "chip=a100"),
    ("model=gemm", "chip=v100", "model.dtype=fp32", "model.transposed=true"),
    ("model=gemm", "chip=h100_sxm", "tiling=divisors"),
    ("model=operator", "model.training=true"),
    ("model=operator", "chip=a100", "model.op=softmax"),
    ("model=operator", "chip=p4"),
    ("model=rnn",),
    ("model=rnn", "chip=t4", "model.cell=gru"),
    (*LM, "tech=n7", "mem=hbm3"),
    (*LM, "chip=mi210", "model.dtype=bf16", "system.devices=16", "parallel.strategy=CR-4-d4"),
    (*LM, "system=torus", "system.devices=64", "parallel.strategy=RC-2-4-d2-p4", "tiling=blocks"),
    (*LM, "system=mcm", "system.devices=16", "parallel.strategy=d4-p4", "parallel.microbatches=4"),
    (*LM, "system=fat_tree", "parallel.strategy=d64", "parallel.hidden=RC-2-8", "model.optimizer=adam"),
    ("model=graph", "model.file=FILE", "system.devices=8", "parallel.strategy=RC-2-2-d2"),
    ("model=graph", "model.file=FILE", "chip=a100", "system.devices=8", "parallel.strategy=d2-p4"),
)
SMALL = ("model.layers=4", "model.hidden=512", "model.heads=8", "model.sequence=256", "model.batch=64")
NODES = ("chip=h100_sxm", "system=dgx_h100", "system.devices=16")
TRANSFORMERS = (
    ("model=transformer", *SMALL, *NODES, "parallel.strategy=TP-2-c2-d2-p2x2", "model.window=64",
     "model.pattern='dense, dense window'"),
    ("model=transformer", *SMALL, "chip=a100", "system.devices=8", "parallel.strategy=d8",
    "parallel.zero_stage=3",
     "parallel.offload=all", "model.block=parallel", "model.biases=all", "model.position=learned"),
    ("model=mixtral_8x7b", *SMALL, *NODES, "model.kv_heads=2", "parallel.strategy=TP-2-e4-d4-p2",
     "parallel.microbatch=2", "parallel.recompute=selective", "parallel.expert_tensor_parallel=false"),
    ("model=deepseek_v3", "model.layers=4", "model.pattern='dense, 3*experts'", "model.batch=64", *NODES,
     "parallel.strategy=TP-2-e4-d4-p2", "parallel.schedule=zero-bubble", "parallel.recompute=full"),
    ("model=llama3_8b", *SMALL, "model.kv_heads=2", "chip=h100_sxm", "model.training=false",
     "system.devices=2", "parallel.strategy=TP-2", "model.dtype=fp8", "precision.cache=fp8"),
    ("model=encoder_decoder", *SMALL, "model.encoder_layers=2", *NODES, "parallel.strategy=TP-2-c2-d2-p2"),
    ("model=whisper_large_v3", *SMALL, "model.encoder_layers=1", "chip=a100", "system.devices=8",
     "parallel.strategy=TP-2-d4", "model.training=false", "model.step=decode"),
)  # fmt: skip
STRATEGIES = ("d1", "d2", "d8", "d512", "CR-4", "CR-8-d2", "RC-2-2", "RC-1-4-d2", "RC-3-5-d7", "d2-p2", "p4")
TENSOR = (
    "TP-2", "TP-3-d5", "TP-2-c2-e4-d2-p2", "TP-1-e8-d8", "TP-8-d2-p1", "TP-2-d2-p4x2", "TP-1-c16",
    "TP-16-e16", "TP-1-e3-d6", "2D-2-4", "3D-2-2-2",
)  # fmt: skip
TEXTS = {
    "parallel.strategy": (*STRATEGIES, *TENSOR, "d1000000000000000", "p99999"),
    "model.pattern": ("dense", "experts", "dense, 3*experts", "2*dense window, dense", "9*dense", "x"),
    "parallel.recompute": ("none", "selective", "full", "1", "0", "99999"),
    "parallel.embedding": ("same", "d1", "RC-1-2", "CR-2"),
    "parallel.hidden": ("same", "d2", "RC-2-1", "CR-8"),
    "parallel.softmax": ("same", "d1", "RC-1-8", "CR-3"),
    "serve.prefill.strategy": ("same", "auto", "TP-1", "TP-2-p2", "d4"),
    "placement": ("auto", "kp1-kp2-dp-pp", "pp-dp-kp2-kp1", "dp-pp-kp1-kp2"),
    "system.shape": ("1d", "2d", "3d", "2x2", "8x8"),
    "system.package.shape": ("1d", "2d", "3d", "2x2"),
    "chip.blocks.matrix": ("1x1", "64x64", "999999999x3", "16x64 64x16"),
    "chip.blocks.vector": ("1x1", "128x128"),
    "chip.blocks.batched_vector": ("1x1", "128x128"),
    "chip.blocks.warp": ("1x1", "64x64", "9x9999999"),
}  # fmt: skip
# what takes long rather than being wrong: many layers to write out, combinations to try one by one
MOST = {
    "serve.num_requests": 300,
    "serve.concurrency": 1000,
    "model.layers": 12,
    "tiling.samples": 10,
    "parallel.microbatches": 1e12,
    "tiling.seed": 1e12,
}
FLOATS = (1e-320, 1e-300, 1e-100, 1e-30, 1e-15, 1e-6, 1e-3, 0.5, 1.0, 2.0, 1e3, 1e6, 1e12, 1e30, 1e100, 1e300)
INTS = (0, 1, 2, 3, 7, 8, 63, 64, 1000, 4097, 2**20, 2**31, 2**40, 10**12)
SERVED = [
    (*words, f"server={server}", f"serve={mode}", "serve.isl=128", "serve.osl=32", "serve.num_requests=20")
    for words in (
        ("model=gpt_1_7b", "chip=a100_sxm_80", "system=dgx_a100"),
        ("model=llama2_7b", "chip=v100_sxm", "system=dgx_v100", "model.dtype=fp16"),
        ("model=deepseek_v3", "chip=h200_sxm", "system=dgx_h200", "model.dtype=fp8"),
        ("model=gpt_oss_120b", "chip=b200_sxm", "system=dgx_b200"),
        ("model=llama4_maverick", "chip=mi300x", "system=mi300x_node", "model.dtype=fp8_block"),
        ("model=mpt_7b", "chip=l40s", "system=cluster"),
    )
    for server, mode in zip(
        ("vllm", "sglang", "trtllm", "ideal"),
        ("prefill", "decode", "continuous", "disaggregated"),
        strict=True,
    )
]
LAYOUTS = (
    "TP-1", "TP-2", "TP-8", "TP-4-d2", "TP-2-p2", "TP-1-p3", "TP-1-p7", "TP-8-p2", "TP-1-e8-d8", "TP-8-e8",
    "TP-2-e4-d2", "TP-1-d4-p2", "auto", "TP-2-c2",
)  # fmt: skip
OF_SERVERS = (
    "serve.",
    "server.",
    "model.",
    "parallel.pipeline_partition",
    "parallel.zero_stage",
    "precision.",
)
LONG_NAMES = re.compile(r"([a-z_]+(?:\.[a-z_]+)+)=\S+ is invalid")
LIMITS = ("power_limit_W", "prefill_power_limit_W", "rack_limit_W", "site_limit_W")
NULLABLE = {"intensity", "bottleneck_stage", *LIMITS, *(f"{name}_Bps" for name in AXES)}
"""Results that are null where there is nothing to speak of."""


SEEDS = st.integers(0, 2**32 - 1)
"""Of a case: all else is drawn from a seed, so that a case is the same however often it runs."""


def value_of(draws, column, now):
    """Draw an allowed value of an input; now: what the library says."""
    if column.kind == "bool":
        return draws.random() < 0.5
    if column.kind == "str":
        choices = column.choices or TEXTS.get(column.name, ())
        return draws.choice(choices) if choices else now
    high = min(column.high, MOST.get(column.name, math.inf))
    if column.kind == "int":
        known = [value for value in (*INTS, int(column.low), now) if column.low <= value <= high]
        if draws.random() < 0.5:
            return draws.choice(known)
        return draws.randint(int(column.low), int(min(high, 300)))
    ends = [end for end in (column.low, high) if math.isfinite(end)]
    around = [now * factor for factor in (0.5, 0.99, 1.01, 3.0)]
    known = [*FLOATS, *ends, *around, 0.0, sys.float_info.min, sys.float_info.max]
    above = [
        value
        for value in known
        if (column.low < value if column.above_low else column.low <= value) and value <= high
    ]
    return draws.choice(above)


def changes_of(draws, point, among=None, most=4):
    """Draw what is changed of a point: key to value, None where the key is taken away.

    among: the keys, or beginnings of them, that are changed; None: all.
    """
    known = [key for key in sorted(point) if among is None or key.startswith(among)]
    changed = {}
    for key in draws.sample(known, draws.randint(1, most)):
        absent = draws.random() < 1.0 / 6.0
        changed[key] = None if absent else value_of(draws, find_input(key), point[key])
    return changed


def wrong(columns):
    """Say what is wrong with the results of a row, as `results.summary` makes them; "" for nothing."""
    row = {name: column[0] for name, column in columns.items()}
    if (row["reason"] == "") != (row["reason_code"] == ""):
        return f"the code {row['reason_code']!r} of the reason {row['reason']!r}"
    if row["reason"]:
        if row["feasible"]:
            return "feasible, and has a reason"
    elif not row["feasible"]:
        return "not feasible without a reason"
    timed = row["time_s"] is not np.ma.masked and row["time_s"] == row["time_s"]
    if not timed and not row["reason"]:
        return "neither time nor reason"
    for name, value in row.items():
        kind = find_result(name).kind
        if kind in ("str", "bool"):
            continue
        if value is np.ma.masked or value != value:
            if timed and name not in NULLABLE:
                return f"{name} is null, and there is a time"
            continue
        if value < 0 or not np.isfinite(value):
            return f"{name}={value}"
        share = name.endswith("_frac") or name in ("mfu", "gemm_utilization")
        if share and value > 1.0:
            return f"{name}={value}"
    return ""


def refused(point):
    """Predict a point; returns what is wrong with the answer, "" for a sound one or an honest refusal."""
    try:
        prediction = crossflow.predict(columns_of([point]))
        columns = results.summary(prediction)
        kernels = results.explain(prediction, 0)
    except InputError:
        return ""
    except KeyError as error:  # which the engine turns into an InputError
        key = str(error.args[0])
        return "" if find_input(key) is not None and key not in point else f"KeyError: {error}"
    bad = [name for name, column in kernels.items() if column.dtype.kind in "fi" and not (column >= 0).all()]
    return f"kernels: {bad}" if bad else wrong(columns)


@pytest.fixture(scope="module")
def points(compose, tmp_path_factory):
    path = tmp_path_factory.mktemp("fuzz") / "net.yaml"
    path.write_text(FILE, encoding="utf-8")
    return [compose(*(text.replace("FILE", str(path)) for text in base)) for base in BASES]


@pytest.fixture(scope="module")
def transformers(compose):
    return [compose(*base) for base in TRANSFORMERS]


def check(seed, points, keys=None):
    draws = Random(seed)
    point = draws.choice(points)
    changed = changes_of(draws, point, keys)
    drawn = {key: value for key, value in (point | changed).items() if value is not None}
    assert refused(drawn) == "", changed


@cases(100)
@given(seed=SEEDS)
def test_no_silent_wrong_answer(points, seed):
    check(seed, points)


OF_MODELS = ("model.", "parallel.", "precision.", "system.devices", "chip.rate", "mem.")


@cases(60)
@given(seed=SEEDS)
def test_no_silent_wrong_answer_of_a_transformer(transformers, seed):
    check(seed, transformers, OF_MODELS)


@pytest.mark.long
@cases(150)
@given(seed=SEEDS)
def test_no_silent_wrong_answer_of_transformers_in_many_draws(transformers, seed):
    check(seed, transformers, OF_MODELS)


@pytest.mark.long
@cases(1_000)
@given(seed=SEEDS)
def test_no_silent_wrong_answer_in_many_draws(points, seed):
    check(seed, points)


def wrong_served(point, columns, asked):
    """Say what is wrong with the results of a row of a server; "" for nothing.

    asked: the keys that its user gave: a refusal names one of them.
    """
    row = {name: column[0] for name, column in columns.items() if column[0] is not np.ma.masked}
    reason = str(row["reason"])
    if (reason == "") != (row["reason_code"] == ""):
        return f"the code {row['reason_code']!r} of the reason {reason!r}"
    if bool(row["feasible"]) == bool(reason):
        return f"feasible={row['feasible']}, with the reason {reason!r}"
    named = LONG_NAMES.match(reason)
    if named and named[1] not in asked:
        return f"{reason!r} names what nobody gave"
    lacks = re.match(r"caches need (\S+) GB.* leave them (\S+) GB(,?)", reason)
    if lacks and float(lacks[1]) <= float(lacks[2]) and not lacks[3]:
        return f"{reason!r} is not true"
    for name, value in row.items():
        if find_result(name).kind in ("str", "bool") or name in LIMITS:
            continue
        if name.endswith("_slo_s"):
            limit = f"serve.slo.{name[:4]}"
            mean = row.get(f"{name[:4]}_s", np.nan)
            if (value == value) != (point[limit] > 0.0 and mean == mean):
                return f"{name}={value} with {limit}={point[limit]}"
            continue
        missing = name == "tpot_s" or "per_user" in name or name.startswith("tpot_")
        if value != value:
            if not reason and not (
                missing and (point["serve.osl"] == 1.0 or point["serve.mode"] == "prefill")
            ):
                return f"{name} is null without a reason"
        elif value < 0 or not np.isfinite(value):
            return f"{name}={value}"
    if not reason and row["footprint_B"] > row["dram_capacity_B"]:
        return "more than the memory, and feasible"
    return ""


def check_served(seed, points):
    draws = Random(seed)
    number, layout = draws.randrange(len(points)), draws.choice(LAYOUTS)
    devices = 1 if layout == "auto" else parse(layout).devices
    point = points[number] | {
        "parallel.strategy": layout, "system.devices": devices * draws.choice([1, 1, 2]),
    }  # fmt: skip
    if point["serve.mode"] == "disaggregated":
        prefills = draws.choice([1, 2, 4])
        point |= {"serve.prefill.devices": prefills, "serve.prefill.strategy": f"d{prefills}"}
        point["system.devices"] += prefills
    changed = {
        key: value for key, value in changes_of(draws, point, OF_SERVERS, 3).items() if value is not None
    }
    given = {word.partition("=")[0] for word in SERVED[number]} | {"parallel.strategy", "system.devices"}
    # what follows from a model that is changed, and from a mode without what it needs
    given |= {*changed, "serve.prefill.devices", "serve.concurrency", "serve.batch", "model.dtype"}
    if any(key.startswith("model.") for key in changed):
        given |= {key for key in point if key.startswith("model.")}
    point = {key: value for key, value in (point | changed).items() if key != "serve.mode"} | {
        "serve.mode": points[number]["serve.mode"]
    }
    try:
        columns = results_of(columns_of([point]))
    except InputError:
        return
    assert wrong_served(point, columns, given) == "", (SERVED[number], layout, changed)


@pytest.fixture(scope="module")
def servers(compose):
    return [compose(*words) for words in SERVED]


@cases(40)
@given(seed=SEEDS)
def test_no_silent_wrong_answer_of_a_server(servers, seed):
    check_served(seed, servers)


@pytest.mark.long
@cases(400)
@given(seed=SEEDS)
def test_no_silent_wrong_answer_of_servers_in_many_draws(servers, seed):
    check_served(seed, servers)
