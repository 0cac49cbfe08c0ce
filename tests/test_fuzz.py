"""No silent wrong answer, whatever the inputs: drawn at their bounds, far apart, or missing.

Every draw takes a point of the library and changes some of its inputs within what the registry allows. It
may be refused with a line that names a key, or be a row with a reason; else all that is predicted is a
number that means something. NumPy's warnings are errors here, as in all tests.
"""

import math
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastflow import crossflow, results
from fastflow.columns import find_input, find_result
from fastflow.errors import InputError
from fastflow.parallelism.mesh import AXES
from tests.checks import cases
from tests.conftest import columns_of

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
    ("model=transformer", *SMALL, "chip=a100", "system.devices=8", "parallel.strategy=d8", "parallel.zero=3",
     "parallel.offload=all", "model.block=parallel", "model.biases=all", "model.position=learned"),
    ("model=mixtral_8x7b", *SMALL, *NODES, "model.kv_heads=2", "parallel.strategy=TP-2-e4-d4-p2",
     "parallel.microbatch=2", "parallel.recompute=selective", "parallel.expert_tensor=false"),
    ("model=deepseek_v3", "model.layers=4", "model.pattern='dense, 3*experts'", "model.batch=64", *NODES,
     "parallel.strategy=TP-2-e4-d4-p2", "parallel.schedule=zero-bubble", "parallel.recompute=full"),
    ("model=llama3_8b", *SMALL, "model.kv_heads=2", "chip=h100_sxm", "model.training=false",
     "system.devices=2", "parallel.strategy=TP-2", "model.dtype=fp8", "precision.cache=fp8"),
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
    "placement": ("auto", "kp1-kp2-dp-lp", "lp-dp-kp2-kp1", "dp-lp-kp1-kp2"),
    "system.shape": ("1d", "2d", "3d", "2x2", "8x8"),
    "system.package.shape": ("1d", "2d", "3d", "2x2"),
    "chip.blocks.matrix": ("1x1", "64x64", "999999999x3", "16x64 64x16"),
    "chip.blocks.vector": ("1x1", "128x128"),
    "chip.blocks.batched_vector": ("1x1", "128x128"),
    "chip.blocks.warp": ("1x1", "64x64", "9x9999999"),
}  # fmt: skip
# what takes long rather than being wrong: many layers to write out, combinations to try one by one
MOST = {"model.layers": 12, "tiling.samples": 10, "parallel.microbatches": 1e12, "tiling.seed": 1e12}
FLOATS = (1e-320, 1e-300, 1e-100, 1e-30, 1e-15, 1e-6, 1e-3, 0.5, 1.0, 2.0, 1e3, 1e6, 1e12, 1e30, 1e100, 1e300)
INTS = (0, 1, 2, 3, 7, 8, 63, 64, 1000, 4097, 2**20, 2**31, 2**40, 10**12)
NULLABLE = {"intensity", *(f"{name}_Bps" for name in AXES)}
"""Results that are null where there is nothing to speak of."""


@st.composite
def values(draw, column, now):
    """Draw an allowed value of an input, None for a missing one; now: what the library says."""
    if column.kind == "bool":
        return draw(st.booleans())
    if column.kind == "str":
        choices = column.choices or TEXTS.get(column.name, ())
        return draw(st.sampled_from(choices)) if choices else now
    high = min(column.high, MOST.get(column.name, math.inf))
    if column.kind == "int":
        known = [value for value in (*INTS, int(column.low), now) if column.low <= value <= high]
        return draw(st.one_of(st.sampled_from(known), st.integers(int(column.low), int(min(high, 300)))))
    ends = [end for end in (column.low, high) if math.isfinite(end)]
    around = [now * factor for factor in (0.5, 0.99, 1.01, 3.0)]
    known = [*FLOATS, *ends, *around, 0.0, sys.float_info.min, sys.float_info.max]
    above = [
        value
        for value in known
        if (column.low < value if column.above_low else column.low <= value) and value <= high
    ]
    return draw(st.sampled_from(above))


@st.composite
def changes(draw, point, among=None, most=4):
    """Draw what is changed of a point: key to value, None where the key is taken away.

    among: the keys, or beginnings of them, that are changed; None: all.
    """
    count = draw(st.integers(1, most))
    known = [key for key in sorted(point) if among is None or key.startswith(among)]
    keys = draw(st.lists(st.sampled_from(known), min_size=count, max_size=count, unique=True))
    changed = {}
    for key in keys:
        absent = draw(st.integers(0, 5)) == 0
        changed[key] = None if absent else draw(values(find_input(key), point[key]))
    return changed


def wrong(columns):
    """Say what is wrong with the results of a row, as `results.summary` makes them; "" for nothing."""
    row = {name: column[0] for name, column in columns.items()}
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


def check(data, points, keys=None):
    point = data.draw(st.sampled_from(points))
    changed = data.draw(changes(point, keys))
    drawn = {key: value for key, value in (point | changed).items() if value is not None}
    assert refused(drawn) == "", changed


@cases(100)
@given(data=st.data())
def test_no_silent_wrong_answer(points, data):
    check(data, points)


OF_MODELS = ("model.", "parallel.", "precision.", "system.devices", "chip.rate", "mem.")


@cases(60)
@given(data=st.data())
def test_no_silent_wrong_answer_of_a_transformer(transformers, data):
    check(data, transformers, OF_MODELS)


@pytest.mark.long
@cases(150)
@given(data=st.data())
def test_no_silent_wrong_answer_of_transformers_in_many_draws(transformers, data):
    check(data, transformers, OF_MODELS)


@pytest.mark.long
@cases(1_000)
@given(data=st.data())
def test_no_silent_wrong_answer_in_many_draws(points, data):
    check(data, points)
