"""Layers that are cut each in its own way, and what moves between them (3.3, 5.1)."""

from itertools import product

import numpy as np
import pandas as pd
import pytest
import yaml

import fastflow
from fastflow.core.errors import InputError
from fastflow.performance.partial_predictions import time_collectives
from fastflow.physics.parallelism.mesh import AXES
from fastflow.physics.parallelism.sharding.layout import LAYERS as KEY
from fastflow.physics.parallelism.sharding.layout import parse_layers, parse_layout
from fastflow.physics.parallelism.strategy import Strategy
from fastflow.physics.workload.graph import COLLECTIVES
from tests.conftest import columns_of
from tests.naive import layouts as naive
from tests.support.checks import near
from tests.support.networks import LAYERS, MLP, three_products

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
    assert parse_layout("same", "parallel.softmax") == Strategy()


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

    def cuts_of(maker, reader, border):
        return {"lower": (maker, reader, reader), "upper": (maker, maker, reader)}[border]

    def point(*pair):
        kinds = zip(("embedding", "hidden", "softmax"), map(written, cuts_of(*pair)), strict=True)
        return base | {f"parallel.{kind}": text for kind, text in kinds}

    pairs = [(*pair, border) for pair in product(CUTS, CUTS) for border in ("lower", "upper")]
    prediction = predict([point(*pair) for pair in pairs])
    assert prediction.timed.size == len(pairs)
    graph, shards = prediction.graph, prediction.shards
    assert ((shards.relayout.collective > 0) == (shards.relayout.bytes > 0.0)).all()

    def reached(place, label, edges):
        rows = np.arange(*graph.offset[place : place + 2])
        (row,) = rows[graph.names[graph.label[rows]] == label]
        if edges is shards.relayout:
            check_group(place, row)
        name = COLLECTIVES[edges.collective[row]]
        if name not in ("all-gather", "all-to-all"):
            return 0.0  # a sum of partial results
        return naive.arriving(name, edges.ranks[row], edges.bytes[row]) / FP16

    def check_group(place, row):
        """A relayout takes place among the devices of the end that has more of them."""
        kinds = graph.layer.kind[row], graph.comm.peer_kind[row]
        ranks = {kind: naive.degrees(*cuts_of(*pairs[place])[kind])[1] for kind in kinds}
        most = max(ranks.values())
        if shards.relayout.collective[row]:
            assert shards.relayout.ranks[row] == most
            number, kind = divmod(shards.relayout.group[row], 3)
            mask = shards.groups.sets[number]
            assert ranks[kind] == most
            assert mask == 1 << AXES.index({"RC": "kp2", "CR": "kp1"}[cuts_of(*pairs[place])[kind][0]])
        else:
            assert shards.relayout.bytes[row] == 0.0

    def moved_by(place, label):
        """By which collectives, but for reduce-scatters: those sum partial results."""
        (row,) = np.flatnonzero((graph.point == place) & (graph.names[graph.label] == label))
        names = {COLLECTIVES[edges.collective[row]] for edges in (shards.sync, shards.relayout)}
        return names - {"", "reduce-scatter"}

    found = {}
    for place, pair in enumerate(pairs):
        maker, reader = {"lower": ("low", "middle"), "upper": ("middle", "high")}[pair[2]]
        backward = reached(place, f"{reader} input gradient", shards.relayout)
        forward = reached(place, maker, shards.sync) + reached(place, maker, shards.relayout)
        found[pair] = forward, backward, moved_by(place, maker), moved_by(place, f"{reader} input gradient")
    return found


PAIRS = list(product(CUTS, CUTS))


def expected(maker, reader):
    return tuple(way(maker, reader, ROWS, COLS) for way in (naive.forward, naive.backward))


@pytest.mark.parametrize("border", ["lower", "upper"])
def test_what_moves_is_what_is_missing(exchanges, border):
    for pair in PAIRS:
        assert exchanges[*pair, border][:2] == pytest.approx(expected(*pair)), pair


@pytest.mark.parametrize("border", ["lower", "upper"])
def test_a_gather_brings_all_of_a_group_the_same_and_all_to_all_the_rest(exchanges, border):
    for pair in PAIRS:
        wanted = naive.collective(*pair, ROWS, COLS)
        assert exchanges[*pair, border][2] == ({wanted} if wanted else set()), pair
        maker, reader = pair
        alike = (maker[0], naive.degrees(*maker)) == (reader[0], naive.degrees(*reader))
        if alike or (reader[0] == "RC" and naive.degrees(*reader)[1] > 1 and maker[0] != "CR"):
            continue  # nothing moves but within the layer; or sums end wherever they are wanted
        wanted = naive.collective(*pair, ROWS, COLS, backward=True)
        assert exchanges[*pair, border][3] == ({wanted} if wanted else set()), pair


@pytest.mark.parametrize("softmax", ["same", "RC-1-8-d2", "CR-4-d4", "RC-2-8"])
@pytest.mark.parametrize("strategy", ["d16", "RC-1-2-d8", "CR-8-d2"])
def test_exchanges_take_as_long_as_their_collectives_among_their_own_devices(
    compose, predict, strategy, softmax
):
    """On a switch, where neighbours are as good as any: a layer's own exchange and its relayout, and sums."""
    point = compose(*SMALL, f"parallel.strategy={strategy}", f"parallel.softmax={softmax}")
    prediction = predict([point])
    shards, took = prediction.shards, prediction.communication.exchanges
    inputs = columns_of([point])

    def alone(edges, row):
        if not edges.collective[row]:
            return 0.0
        size, ranks = edges.bytes[[row]], edges.ranks[[row]]
        return time_collectives(inputs, int(edges.collective[row]), size, ranks)[0]

    assert (shards.relayout.collective > 0).any() == (softmax != "same")
    for row in range(took.sync_s.size):
        assert near(took.sync_s[row], alone(shards.sync, row) + alone(shards.relayout, row))
        assert near(took.gradient_s[row], alone(shards.gradient, row))


def test_the_longer_of_an_exchange_and_a_relayout_says_where_it_was(compose, predict):
    """Pairs within a package gather h for the next step; the softmax's cut is over all packages."""
    point = compose(*SMALL, "system=mcm", "parallel.strategy=RC-1-2-d8", "placement=kp2-kp1-dp-pp")
    prediction = predict([point | {"parallel.softmax": text} for text in ("same", "RC-1-16")])
    graph, took = prediction.graph, prediction.communication.exchanges
    levels = [
        took.sync_level[(graph.point == place) & (graph.names[graph.label] == "lstm gates")].tolist()
        for place in (0, 1)
    ]
    assert levels == [[0, 0], [0, 1]]


NORM_FIRST = """\
name: norm first
rows: 64
layers:
- name: low
  kind: embedding
  kernels: [{name: low, type: lookup, vocabulary: 100, cols: 32}]
- name: high
  kernels: [{name: norm, type: rowwise, cols: 32, flop: 4}, {name: high, type: gemm, inner: 32, cols: 32}]
"""


@pytest.mark.parametrize("embedding", ["same", "d8", "RC-1-8"])
def test_statistics_are_summed_however_the_neighbours_are_laid_out(tmp_path, compose, predict, embedding):
    (tmp_path / "norm.yaml").write_text(NORM_FIRST)
    network = ("model=graph", f"model.file={tmp_path / 'norm.yaml'}", "system.devices=8")
    prediction = predict([compose(*network, "parallel.strategy=CR-8", f"parallel.embedding={embedding}")])
    graph, sync = prediction.graph, prediction.shards.sync
    for name in ("norm", "norm gradient"):
        (row,) = np.flatnonzero(graph.names[graph.label] == name)
        moved = COLLECTIVES[sync.collective[row]], sync.bytes[row], sync.ranks[row]
        assert moved == ("all-reduce", 64 * 4 * FP16, 8)


def without_kinds(text):
    """Return a file whose layers are all hidden ones."""
    document = yaml.safe_load(text)
    for layer in document["layers"]:
        layer.pop("kind", None)
    return yaml.safe_dump(document)


@pytest.fixture
def files(tmp_path):
    """A folder with two files of the same network: its layers are of three kinds, or of one."""
    text = three_products(64, [32, 64, 48, 32])
    (tmp_path / "kinds.yaml").write_text(text, encoding="utf-8")
    (tmp_path / "layers.yaml").write_text(without_kinds(text), encoding="utf-8")
    return tmp_path


def alike(one, other):
    """Check that two rows have the same results, but for the names of what is cut otherwise."""
    results = [name for name in one if name in other and name != "layer_strategies" and "." not in name]
    pd.testing.assert_series_equal(one[results], other[results], check_names=False, check_exact=True)


@pytest.mark.parametrize("strategy", ["d8", "RC-2-2-d2", "CR-2-d2-p2"])
@pytest.mark.parametrize("system", ["cluster", pytest.param("torus", marks=pytest.mark.long)])
def test_a_layer_is_cut_as_a_kind_is(files, strategy, system):
    """To the bit, whatever kind it is of; every shard in both layers, many pairs in the long tests."""
    pairs = list(zip(CUTS, CUTS[3:] + CUTS, strict=False))
    if system == "torus":
        pairs = list(product(CUTS, CUTS[::3]))
    if strategy.endswith("p2"):
        pairs = [(("", 1, 1, 4), ("RC", 1, 4, 1))]
    for first, second in pairs:
        cuts = [written(first), written(second), "same"]
        base = [f"system={system}", "system.devices=8", f"parallel.strategy={strategy}", "model=graph"]
        kinds = [f"parallel.{kind}={cut}" for (_, kind), cut in zip(LAYERS, cuts, strict=True)]
        text = ", ".join(f"{name}: {cut}" for (name, _), cut in zip(LAYERS, cuts[:2], strict=False))
        by_kind = fastflow.evaluate(*base, *kinds, f"model.file={files}/kinds.yaml").loc[0]
        for file in ("kinds", "layers"):
            by_layer = fastflow.evaluate(*base, f"{KEY}='{text}'", f"model.file={files}/{file}.yaml").loc[0]
            alike(by_layer, by_kind)
            assert np.isfinite(by_layer["time_s"])


def test_a_layer_goes_before_its_kind(files):
    base = ["system.devices=8", "parallel.strategy=d8", "model=graph", f"model.file={files}/layers.yaml"]
    own = fastflow.evaluate(*base, "parallel.hidden=CR-8", f"{KEY}='low: RC-1-8, high: d8'").loc[0]
    alike(own, fastflow.evaluate(*base, f"{KEY}='low: RC-1-8, middle: CR-8'").loc[0])
    assert own["layer_strategies"] == "low RC-1-8, middle CR-8"


def test_models_of_other_layers_share_a_call(files, compose, summary):
    """Of as many columns as that of most layers has; and points without a cut by name."""
    (files / "mlp.yaml").write_text(MLP, encoding="utf-8")
    base = ["system.devices=8", "model=graph", "parallel.strategy=RC-2-2-d2"]
    points = [
        compose(*base, f"model.file={files}/{file}.yaml", f"{KEY}='{text}'", f"parallel.softmax={softmax}")
        for file, text, softmax in (
            ("mlp", "head: CR-8", "same"), ("layers", "low: d8, high: CR-4", "same"),
            ("kinds", "same", "RC-1-8"), ("kinds", "low: CR-8", "same"), ("mlp", "same", "same"),
            ("mlp", "low: CR-8", "same"),
        )
    ]  # fmt: skip
    together = summary(points)
    for place, point in enumerate(points):
        for name, column in summary([point]).items():
            assert str(together[name][place]) == str(column[0]), (place, name)
    own = ["head CR-8", "low d8, high CR-4-d2", "softmax RC-1-8", "low CR-8", "", ""]
    assert together["layer_strategies"].tolist() == own
    assert together["reason"][5] == (f"{KEY}=low: CR-8 is invalid: expected layers of the model: mlp, head")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "low",
        "low: ",
        "low CR-8",
        "low: CR-8,",
        "low: d8, low: d8",
        ": d8",
        "low: d4-p2",
    ],
)
def test_what_is_no_list_of_layers_is_refused(text):
    with pytest.raises(InputError, match=KEY) as error:
        fastflow.evaluate(*SMALL, f"{KEY}='{text}'")
    assert "\n" not in str(error.value)


def test_names_of_layers_may_have_any_signs():
    cuts = parse_layers("tower, low : RC-1-8 ,a: b:d8")
    assert {name: str(cut) for name, cut in cuts.items()} == {"tower, low": "RC-1-8", "a: b": "d8"}


def test_a_file_lays_out_layers_by_name(files):
    (files / "kinds_cut.yaml").write_text(
        "axes: {kp1: [rows]}\nembedding: {kp2: [cols]}\nsoftmax: {kp2: [rows]}"
    )
    named = "axes: {kp1: [rows]}\nlayers: {low: {kp2: [cols]}, high: {kp2: [rows]}}"
    (files / "layers_cut.yaml").write_text(named)
    base = ["system.devices=8", "parallel.strategy=RC-2-4", "model=graph"]
    by_kind, by_layer = (
        fastflow.evaluate(
            *base, f"model.file={files}/{way}.yaml", f"parallel.layout={files}/{way}_cut.yaml"
        ).loc[0]
        for way in ("kinds", "layers")
    )
    alike(by_kind, by_layer)
    assert np.isfinite(by_kind["time_s"])
    (files / "layers_cut.yaml").write_text(named.replace("low", "lower"))
    row = fastflow.evaluate(
        *base, f"model.file={files}/layers.yaml", f"parallel.layout={files}/layers_cut.yaml"
    )
    assert row["reason"][0].endswith(
        "a file whose layers are layers of the model: low, middle, high, not lower"
    )
    for wrong, said in (
        ("layers: [low]", "layers is a mapping"),
        ("layers: {low: {x: [rows]}}", "without layers.low.x"),
    ):
        (files / "layers_cut.yaml").write_text(f"axes: {{kp1: [rows]}}\n{wrong}")
        with pytest.raises(InputError, match=said):
            fastflow.evaluate(*base, f"parallel.layout={files}/layers_cut.yaml")


def test_a_relayout_between_layers_of_a_kind_names_the_layer(files):
    frame = fastflow.explain_sharding(
        "system.devices=8", "parallel.strategy=d8", "model=graph", f"model.file={files}/layers.yaml",
        f"{KEY}='high: RC-1-8'",
    )  # fmt: skip
    said = frame.set_index("kernel").loc["middle", "exchange"]
    assert said.startswith("all-gather to the layout of high along kp2")
