"""Layers that are cut each in its own way, and what moves between them (3.3, 5.1)."""

from itertools import product

import numpy as np
import pytest

import fastflow
from fastflow.errors import InputError
from fastflow.parallelism.layout import parse_layout
from fastflow.parallelism.strategy import NO_KERNEL, Strategy
from fastflow.workload.graph import COLLECTIVES
from tests.naive import layouts as naive
from tests.networks import three_products

SMALL = [
    "model.hidden=512", "model.batch=64", "model.vocabulary=4000", "model.sequence=4", "system.devices=16",
]  # fmt: skip
ROWS, COLS, FP16 = 16, 16, 2.0
CUTS = [
    ("", 1, 1, 8), ("RC", 8, 1, 1), ("RC", 4, 2, 1), ("RC", 2, 2, 2), ("RC", 2, 4, 1), ("RC", 1, 4, 2),
    ("RC", 1, 8, 1), ("CR", 2, 1, 4), ("CR", 4, 1, 2), ("CR", 8, 1, 1),
]  # fmt: skip


def written(cut):
    kernel, kp1, kp2, dp = cut
    words = {"": [], "RC": ["RC", str(kp1), str(kp2)], "CR": ["CR", str(kp1)]}[kernel]
    return "-".join([*words, *([f"d{dp}"] if dp > 1 or not kernel else [])])


@pytest.mark.parametrize("kind", ["embedding", "hidden", "softmax"])
@pytest.mark.parametrize(
    "text", ["RC-1", "same-", "Same", "", "RC-0-8", "auto", "d4-p2", "CR-2-p2", "x", "-d8"]
)
def test_what_is_no_cut_is_refused_by_its_key(kind, text):
    key = f"parallel.{kind}"
    with pytest.raises(InputError, match=key):
        parse_layout(text, key)
    with pytest.raises(InputError, match=key) as error:
        fastflow.evaluate(*SMALL, f"{key}='{text}'")
    assert "\n" not in str(error.value)


def test_same_is_no_cut_of_its_own():
    assert parse_layout("same", "parallel.softmax") == Strategy(NO_KERNEL, 1, 1, 1, 1)


@pytest.mark.parametrize(
    ("strategy", "kind", "text", "devices"),
    [
        ("d16", "softmax", "RC-1-3", 16),
        ("d16", "hidden", "d8", 16),
        ("d8-p2", "embedding", "d16", 8),
        ("d4", "softmax", "CR-8", 4),
        ("RC-2-2-d2-p2", "hidden", "RC-1-8-d2", 8),
    ],
)
def test_a_cut_for_other_devices_has_a_reason(compose, summary, strategy, kind, text, devices):
    point = compose(*SMALL, f"parallel.strategy={strategy}")
    got = summary([point | {f"parallel.{kind}": text}, point])
    assert np.isnan(got["time_s"][0])
    assert np.isfinite(got["time_s"][1])
    assert got["feasible"].tolist() == [False, True]
    assert got["reason"][0].startswith(f"parallel.{kind}={text} is invalid: ")
    assert f"{devices} devices" in got["reason"][0]
    assert "\n" not in got["reason"][0]


@pytest.mark.parametrize(
    ("short", "full"), [("RC-1-4", "RC-1-4-d2"), ("CR-2", "CR-2-d4"), ("RC-2-2", "RC-2-2-d2")]
)
def test_devices_that_a_cut_leaves_share_the_batch(compose, summary, short, full):
    point = compose(*SMALL, "parallel.strategy=d8-p2")
    got = summary([point | {"parallel.softmax": text} for text in (short, full)])
    for name, column in got.items():
        assert str(column[0]) == str(column[1]), name


@pytest.mark.parametrize("system", ["cluster", "mcm", "torus"])
@pytest.mark.parametrize("strategy", ["d16", "RC-2-4-d2", "CR-4-d4", "RC-2-2-d2-p2", "CR-2-d2-p4"])
def test_the_same_cut_everywhere_is_the_strategy(compose, summary, system, strategy):
    """To the bit, all three kinds named or some."""
    point = compose(*SMALL, f"system={system}", f"parallel.strategy={strategy}")
    own = strategy.partition("-p")[0]
    named = [
        point | {f"parallel.{kind}": own for kind in kinds}
        for kinds in ((), ("softmax",), ("embedding", "hidden"), ("embedding", "hidden", "softmax"))
    ]
    got = summary(named)
    for name, column in got.items():
        for i in range(1, len(named)):
            assert np.array_equal(column[i], column[0], equal_nan=column.dtype.kind == "f"), name


@pytest.fixture(scope="module")
def exchanges(tmp_path_factory, compose, predict):
    """What reaches a device between two layers, forward and backward [elements], by their cuts and border.

    A network of an embedding, a hidden and a softmax layer, each a product; at the lower border the first
    layer differs from the others, at the upper one the last.
    """
    file = tmp_path_factory.mktemp("networks") / "three.yaml"
    file.write_text(three_products(ROWS, [COLS] * 4, loss=False), encoding="utf-8")
    base = compose("model=graph", f"model.file={file}", "system.devices=8", "parallel.strategy=d8")

    def point(maker, reader, border):
        cuts = {"lower": (maker, reader, reader), "upper": (maker, maker, reader)}[border]
        kinds = zip(("embedding", "hidden", "softmax"), map(written, cuts), strict=True)
        return base | {f"parallel.{kind}": text for kind, text in kinds}

    pairs = [(*pair, border) for pair in product(CUTS, CUTS) for border in ("lower", "upper")]
    prediction = predict([point(*pair) for pair in pairs])
    assert prediction.timed.size == len(pairs)
    graph, shards = prediction.graph, prediction.shards

    def reached(place, label, edges):
        rows = np.arange(*graph.offset[place : place + 2])
        (row,) = rows[graph.names[graph.label[rows]] == label]
        name = COLLECTIVES[edges.collective[row]]
        if name not in ("all-gather", "all-to-all"):
            return 0.0  # a sum of partial results
        return naive.arriving(name, edges.ranks[row], edges.bytes[row]) / FP16

    found = {}
    for place, pair in enumerate(pairs):
        maker, reader = {"lower": ("low", "middle"), "upper": ("middle", "high")}[pair[2]]
        backward = reached(place, f"{reader} input gradient", shards.relayout)
        forward = reached(place, maker, shards.sync) + reached(place, maker, shards.relayout)
        found[pair] = forward, backward
    return found


PAIRS = list(product(CUTS, CUTS))


def expected(maker, reader):
    return tuple(way(maker, reader, ROWS, COLS) for way in (naive.forward, naive.backward))


@pytest.mark.parametrize("border", ["lower", "upper"])
def test_what_moves_is_what_is_missing(exchanges, border):
    for pair in PAIRS:
        assert exchanges[*pair, border] == pytest.approx(expected(*pair)), pair
