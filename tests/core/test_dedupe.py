"""What repeats in a chunk is computed once, and that changes no bit of a result."""

import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastflow.config.composer import Composer
from fastflow.core.dedupe import factorize, map_values, unique_rows
from fastflow.core.jit.dispatcher import Kernel
from fastflow.core.tables import is_broadcast, take
from fastflow.engine.grid.plan import plan
from fastflow.performance import admission, crossflow
from fastflow.performance.results import summary
from tests.conftest import columns_of
from tests.support.checks import cases

LIBRARY = [
    "tech=n12", "mem=hbm3", "tech=n3", "net=gdr_x8", "model.dtype=fp32", "chip.area.core=0",
    "parallel.strategy=CR-8-d64", "parallel.strategy=d7", "model.training=false", "model.layers=3",
    "model.hidden=2048", "system.devices=1024", "tiling=random",
]  # fmt: skip


@pytest.fixture(scope="module")
def inputs(compose):
    """A chunk whose points differ in one thing or two, each point there three times, in no order."""
    changes = [(), *((change,) for change in LIBRARY), ("tech=n3", "model.hidden=2048"), ("chip=v100",)]
    points = [compose(*change) for change in changes]
    # points of a call have the same keys
    points = [point for point in points if point.keys() == points[0].keys()]
    assert len(points) >= len(LIBRARY)
    rows = np.random.default_rng(1).permutation(np.repeat(np.arange(len(points)), 3))
    return take(columns_of(points), rows)


def bits(column):
    """Return a column's kind and bytes; a text's without what only fills it up."""
    if column.dtype.kind == "U":
        return column.tolist()
    return column.dtype, np.ma.getmaskarray(column).tolist(), np.ma.getdata(column).tobytes()


def test_a_chunk_has_the_bits_of_its_points_one_by_one(inputs):
    together = summary(crossflow.predict(inputs))
    for point in range(inputs["model.hidden"].size):
        rows = np.array([point])
        alone = summary(crossflow.predict(take(inputs, rows)))
        assert alone.keys() == together.keys()
        for name, column in alone.items():
            assert bits(column) == bits(together[name][rows]), (point, name)


def test_two_chips_among_a_thousand_points_are_generated_twice(compose, monkeypatch):
    rows = np.random.default_rng(2).integers(0, 2, 1000)
    inputs = take(columns_of([compose("tech=n7"), compose("tech=n3")]), rows)
    inputs["model.hidden"] = np.arange(1000) + 1024
    generated = []
    generate = admission.generate

    def counting(inputs):
        generated.append(inputs["chip.tdp"].size)
        return generate(inputs)

    monkeypatch.setattr(admission, "generate", counting)
    prediction = crossflow.predict(inputs)
    assert generated == [2]
    assert prediction.chip.bundles.size == 1000
    assert np.unique(prediction.chip.bundles[rows == 0]).size == 1
    assert (prediction.chip.core_power[rows == 0] != prediction.chip.core_power[rows == 1][0]).all()


numbers = st.sampled_from([0.0, -0.0, 1.5, np.nan, np.inf, 1e-300])
columns = st.tuples(numbers, st.integers(-2, 2), st.sampled_from(["", "a", "ab", "ä€"]), st.booleans())


@given(st.lists(columns, max_size=30))
@cases(300)
def test_kinds(rows):
    table = [
        np.array([row[place] for row in rows], dtype=dtype)
        for place, dtype in enumerate([np.float64, np.int64, "U3", np.bool_])
    ]
    first, place = unique_rows(table, len(rows))
    seen = [(np.float64(number).tobytes(), *others) for number, *others in rows]
    expected = list(dict.fromkeys(seen))
    assert [seen[row] for row in first] == expected
    assert first.tolist() == [seen.index(kind) for kind in expected]
    assert place.tolist() == [expected.index(kind) for kind in seen]


def test_a_vocabulary_keeps_the_order_of_first_use():
    texts = np.array(["fp32", "bf16", "fp32", "fp16"])
    names, place = factorize(texts)
    assert names == ["fp32", "bf16", "fp16"]
    assert place.tolist() == [0, 1, 0, 2]
    assert map_values({"fp16": 2, "bf16": 2, "fp32": 4}, texts).tolist() == [4.0, 2.0, 4.0, 2.0]


def signatures():
    """Return what every kernel is compiled for."""
    modules = [module for name, module in sys.modules.items() if name.startswith("fastflow.")]
    kernels = {id(one): one for module in modules for one in vars(module).values() if isinstance(one, Kernel)}
    return {name: set(one.signatures) for name, one in kernels.items()}


@pytest.mark.parametrize(
    "overrides",
    [
        ["mem=hbm2,hbm3"],
        ["mem=hbm2,hbm3", "parallel.strategy=RC-1-4-d32-p4", "parallel.concurrent_kernels=2"],
        ["mem=hbm2,hbm3", "tiling=random"],
        ["mem=hbm2,hbm3", "parallel.softmax=CR-8-d64", "system=torus"],
        ["model=gemm", "chip=a100", "model.m=128,256"],
        ["model=rnn", "chip=v100", "model.hidden=512,1024"],
        ["model=operator", "chip=v100", "model.rows=512,1024"],
    ],
)
def test_columns_that_repeat_a_value_change_nothing_and_reach_no_kernel(overrides):
    """Numba would compile anew for them."""
    grid = plan(Composer.of_library(), overrides).grid
    given = grid.inputs(next(grid.shares(0, grid.points)))
    assert any(map(is_broadcast, given.values()))
    plain = {key: np.array(column) for key, column in given.items()}
    expected = summary(crossflow.predict(plain))
    assert np.isfinite(expected["time_s"]).all()
    before = signatures()
    got = summary(crossflow.predict(given))
    assert signatures() == before
    for name, column in expected.items():
        assert bits(column) == bits(got[name]), name
