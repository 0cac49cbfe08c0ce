"""`parallel.per_layer=true`: the best cut of every layer, against all combinations of cuts."""

import re

import numpy as np
import pandas as pd
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

import fastflow
from fastflow.cli.commands.sweep import main
from fastflow.core.errors import InputError
from fastflow.performance.auto import per_layer
from fastflow.performance.auto.per_layer import CHOSEN, PER_LAYER
from fastflow.performance.auto.rank import rank
from fastflow.performance.auto.resolve import resolve_strategy
from fastflow.physics.parallelism.sharding.layout import LAYERS
from tests.conftest import columns_of
from tests.naive import per_layer as naive
from tests.support.checks import cases
from tests.support.paths import ROOT

AUTO = ["tech=n7", "placement=auto", "parallel.strategy=auto"]


def model(devices, hidden, batch, vocabulary, layers=2, sequence=4):
    """Return a language model on some devices as overrides."""
    return [
        f"system.devices={devices}", f"model.hidden={hidden}", f"model.batch={batch}",
        f"model.vocabulary={vocabulary}", f"model.layers={layers}", f"model.sequence={sequence}",
    ]  # fmt: skip


QUICK = ("four devices", "packages", "a full memory", "a cut that is given", "nothing trained")
CASES = {
    "four devices": model(4, 512, 512, 4000),
    "a wide softmax": model(8, 512, 512, 800_000),
    "a narrow one": model(8, 4096, 512, 4000),
    "links that kinds share": [*model(8, 512, 16, 800_000), "system=torus"],
    "packages": [*model(8, 512, 512, 800_000), "system=mcm"],
    "a full memory": [*model(8, 4096, 512, 4000), "mem.device_capacity=0.1 GB"],
    "no memory at all": [*model(8, 512, 16, 800_000), "mem.device_capacity=0.05 GB"],
    "overlapped kernels": [*model(8, 512, 512, 800_000), "parallel.concurrent_kernels=4"],
    "a pipeline": [
        *model(8, 4096, 64, 1000, 14, 32), "mem.device_capacity=0.5 GB", "net.inter.maximum_links=1",
    ],
    "a cut that is given": [*model(8, 512, 512, 800_000), "parallel.hidden=CR-2"],
    "two that are given": [
        *model(8, 512, 512, 800_000), "parallel.hidden=CR-8", "parallel.softmax=RC-1-8", "model.layers=1",
    ],
    "nothing trained": [*model(8, 512, 512, 800_000), "model.training=false"],
}  # fmt: skip
ALL_ALIKE = {"two that are given", "nothing trained"}  # where nothing is gained by cuts of their own


@pytest.fixture(scope="module")
def known(compose, summary):
    """A function from a case's name to its point, and the best time of all combinations."""
    found = {}

    def of(name):
        if name not in found:
            point = compose(*AUTO, *CASES[name])
            given = {kind: point[f"parallel.{kind}"] for kind in naive.KINDS}
            given = {kind: cut for kind, cut in given.items() if cut != "same"}
            every = naive.every_combination(point["system.devices"], point["model.layers"] + 2, given)
            got = summary([point | combination for combination in every])
            times = [None if np.isnan(time) else time for time in got["time_s"]]
            found[name] = point, naive.best(times, got["feasible"].tolist()), len(every)
        return found[name]

    return of


def chosen(point):
    """Return a point with its best cuts."""
    settled = resolve_strategy(columns_of([point | {PER_LAYER: True}]))
    return point | {key: str(settled[key][0]) for key in (*CHOSEN, LAYERS) if key in settled}


@pytest.mark.parametrize("few", [pytest.param(1, marks=pytest.mark.long), 256])
@pytest.mark.parametrize(
    "name", [name if name in QUICK else pytest.param(name, marks=pytest.mark.long) for name in CASES]
)
def test_the_best_of_all_combinations(monkeypatch, known, summary, name, few):
    monkeypatch.setattr(per_layer, "BATCH", few)
    point, (time, fits), _ = known(name)
    best = chosen(point)
    got = summary([best])
    assert got["time_s"][0] == pytest.approx(time, rel=1e-9)
    assert got["feasible"][0] == fits
    given = {key: point[key] for key in CHOSEN[1:] if point[key] != "same"}
    assert given.items() <= best.items()


@pytest.mark.long
@pytest.mark.parametrize("name", CASES)
def test_never_worse_than_one_strategy_for_all_layers(known, summary, name):
    point, _, _ = known(name)
    best = chosen(point)
    alike = point | {"parallel.strategy": str(next(rank(columns_of([point])))[0])}
    got = summary([best, alike])
    assert (not got["feasible"][0], got["time_s"][0]) <= (not got["feasible"][1], got["time_s"][1])
    if name in ALL_ALIKE:
        assert best == alike
    elif all(point[key] == "same" for key in CHOSEN[1:]):
        assert got["time_s"][0] < got["time_s"][1]


@pytest.mark.long
@pytest.mark.parametrize("name", ["four devices", "a wide softmax", "a pipeline"])
def test_few_combinations_are_predicted(monkeypatch, known, name):
    """Of 8 devices half of those that all cuts of kinds make, less the more devices there are."""
    point, _, every = known(name)
    assert predicted(monkeypatch, point) < every / 2


def test_few_combinations_of_512_devices(monkeypatch, compose):
    cuts = np.array([64, 53, 43])  # with 1, 2 and 4 stages
    assert predicted(monkeypatch, compose("tech=n7", "parallel.strategy=auto")) < (cuts**3).sum() / 100


def predicted(monkeypatch, point):
    """Return how many combinations are predicted for a point."""
    counts, model = [], per_layer.predict

    def counted(inputs):
        counts.append(inputs[PER_LAYER].size)
        return model(inputs)

    monkeypatch.setattr(per_layer, "predict", counted)
    chosen(point)
    return sum(counts)


NETWORK = """
name: two kinds
rows: 512
layers:
- name: table
  kind: embedding
  kernels:
  - {name: lookup, type: lookup, vocabulary: 50000, cols: 256}
- name: head
  kind: softmax
  kernels:
  - {name: logits, type: gemm, inner: 256, cols: 50000}
"""


def test_a_network_without_hidden_layers(tmp_path, compose, summary):
    path = tmp_path / "two.yaml"
    path.write_text(NETWORK, encoding="utf-8")
    point = compose(*AUTO, "model=graph", f"model.file={path}", "system.devices=8")
    every = naive.every_combination(8, 2, {"hidden": "same"})
    got = summary([point | one for one in every])
    time, fits = naive.best(got["time_s"].tolist(), got["feasible"].tolist())
    mine = summary([chosen(point)])
    assert mine["time_s"][0] == pytest.approx(time, rel=1e-9)
    assert mine["feasible"][0] == fits


def test_a_model_of_one_kind_of_layer(compose):
    point = compose(*AUTO, "model=gemm", "model.m=4096", "system.devices=8")
    assert chosen(point) == point | {"parallel.strategy": str(next(rank(columns_of([point])))[0])}


def test_points_of_a_grid_choose_for_themselves():
    """What is chosen is in the columns: given as inputs, it makes the same row."""
    grid = [*AUTO, *CASES["a wide softmax"], "mem=hbm2,hbm3"]
    got = fastflow.evaluate(*grid, f"{PER_LAYER}=false,true")
    assert (got["layer_strategies"] != "").tolist() == got[PER_LAYER].tolist() == [False, True, False, True]
    for row in got[got[PER_LAYER]].to_dict("records"):
        cuts = [f"parallel.{cut.replace(' ', '=')}" for cut in row["layer_strategies"].split(", ")]
        own = fastflow.evaluate(*grid, f"mem={row['mem']}", f"parallel.strategy={row['strategy']}", *cuts)
        results = [name for name in own if name in got and not name.startswith(("parallel.", "point", "mem"))]
        pd.testing.assert_series_equal(own.loc[0, results], pd.Series(row)[results], check_names=False)
        assert row["layer_strategies"] == own.loc[0, "layer_strategies"]


@pytest.mark.parametrize(
    ("strategy", "softmax", "cuts"),
    [
        ("d8", "RC-1-4", "softmax RC-1-4-d2"),
        ("d8", "same", ""),
        ("RC-1-4-d2", "RC-1-4", ""),
        ("RC-1-2-d2-p2", "d4", "softmax d4"),
        ("CR-4", "CR-8", "softmax CR-8"),  # which does not suit the strategy
    ],
)
def test_the_column_of_cuts(compose, summary, strategy, softmax, cuts):
    """It names what differs, in full; a row without any cut of its own stands beside it."""
    point = compose(*model(8, 512, 64, 4000), f"parallel.strategy={strategy}", f"parallel.softmax={softmax}")
    alike = point | {"parallel.softmax": "same"}
    assert summary([alike, point, point])["layer_strategies"].tolist() == ["", cuts, cuts]


def test_a_point_that_asks_for_no_choice_has_a_reason():
    got = fastflow.evaluate(*AUTO, *CASES["four devices"], "parallel.strategy=d4,auto", f"{PER_LAYER}=true")
    assert got["feasible"].tolist() == [False, True]
    assert got["reason"][0] == (
        f"{PER_LAYER}=true is invalid: expected false, unless parallel.strategy=auto and parallel.layout=null"
    )


def test_a_file_lays_out_all_kinds_of_layer(tmp_path):
    path = tmp_path / "own.yaml"
    path.write_text("axes: {dp: [rows]}\n", encoding="utf-8")
    grid = [*AUTO, *CASES["four devices"], f"parallel.layout={path}"]
    got = fastflow.evaluate(*grid, f"{PER_LAYER}=true,false")
    assert [PER_LAYER in reason for reason in got["reason"]] == [True, False]
    assert got["feasible"].tolist() == [False, True]


@pytest.mark.parametrize("ask", [fastflow.rank_strategies, fastflow.search])
def test_what_is_of_strategies_for_all_layers_refuses(ask):
    with pytest.raises(InputError, match=f"{PER_LAYER}.*true") as error:
        ask(*AUTO, *CASES["four devices"], f"{PER_LAYER}=true")
    assert "\n" not in str(error.value)


def test_commands_show_what_is_chosen(cli):
    point = [*AUTO, *CASES["a wide softmax"]]
    row = fastflow.evaluate(*point, f"{PER_LAYER}=true").iloc[0]
    code, out, err = cli(main, *point, f"{PER_LAYER}=true", "output=one")
    assert (code, err) == (0, [])
    assert any(line.endswith(f"strategy {row['strategy']}, {row['layer_strategies']}") for line in out)
    code, out, _ = cli(main, "-m", *point, f"{PER_LAYER}=true,false", "output=two")
    assert code == 0
    head, first, second = [line.split() for line in out if line.split() and line.split()[0] in "point01"][-3:]
    assert "layer_strategies" in head
    assert " ".join(first).count(row["layer_strategies"]) == 1
    assert row["layer_strategies"] not in " ".join(second)
    code, _, err = cli(main, "parallel.strategy=d512", f"{PER_LAYER}=true", "output=three")
    assert code == 2
    assert len(err) == 1
    assert err[0].startswith(f"{PER_LAYER}=true (from the command line) is invalid")


WIDTHS = [128, 512, 2048, 8192]


@st.composite
def networks(draw):
    """Draw a small network of two to five layers that differ, some of which read what no neighbour makes."""
    layers, made, below = [], [], None
    rows, most = draw(st.sampled_from([64, 4096, 32768])), draw(st.integers(2, 5))
    for number in range(most):
        kernels, entering = [], below or draw(st.sampled_from(WIDTHS))
        below = entering
        ends = {0: ["embedding"], most - 1: ["softmax"]}
        kind = draw(st.sampled_from([*ends.get(number, ()), "hidden"]))
        if kind == "embedding":
            kernels.append({"name": "table", "type": "lookup", "vocabulary": 50_000, "cols": below})
        for place in range(draw(st.integers(1, 2)) if kind != "embedding" else 0):
            kernel = {"name": f"product {place}", "type": "gemm", "inner": below}
            if place == 0 and number > 1 and draw(st.booleans()):
                other, cols = draw(st.sampled_from(made[:-1]))
                kernel |= {"reads": ["input", other], "inner": below + cols}
            below = draw(st.sampled_from(WIDTHS))
            kernels.append(kernel | {"cols": below})
            if draw(st.booleans()):
                pass_ = draw(st.sampled_from(["elementwise", "rowwise"]))
                kernels.append({"name": f"pass {place}", "type": pass_, "cols": below, "flop": 2})
        layer = {"name": f"l{number}", "kind": kind, "kernels": kernels}
        if kind != "embedding" and below == entering:
            layer["repeat"] = draw(st.integers(1, 2))
        layers.append(layer)
        made.append((f"l{number}.{kernels[-1]['name']}", below))
    return {"rows": rows, "layers": layers}


@pytest.mark.long
@given(networks(), st.sampled_from(["2", "2, of little memory", "4"]), st.booleans())
@cases(12)
def test_the_best_of_all_cuts_of_layers(tmp_path_factory, compose, summary, document, devices, overlaps):
    path = tmp_path_factory.mktemp("nets") / "net.yaml"
    layers = document["layers"][: 3 if devices == "4" else None]
    document["layers"] = layers
    path.write_text(yaml.safe_dump(document), encoding="utf-8")
    point = compose(
        *AUTO, "model=graph", f"model.file={path}", f"system.devices={devices[0]}",
        f"parallel.concurrent_kernels={4 if overlaps else 1}",
    )  # fmt: skip
    borders = sum(layer.get("repeat", 1) for layer in layers)
    every = naive.every_cut_of_layers(int(devices[0]), borders, [layer["name"] for layer in layers])
    if "memory" in devices:  # that a third of the combinations fit
        needed = summary([point | one for one in every])["footprint_B"]
        point["mem.device_capacity"] = float(np.nanquantile(needed, 1 / 3))
    got = summary([point | one for one in every])
    times = [None if np.isnan(time) else time for time in got["time_s"]]
    time, fits = naive.best(times, got["feasible"].tolist())
    mine = summary([chosen(point)])
    assert mine["time_s"][0] == pytest.approx(time, rel=1e-9)
    assert mine["feasible"][0] == fits


@pytest.fixture
def towers(tmp_path):
    """The convolutions, then wide layers, of docs/graphs.md on 16 devices."""
    docs = (ROOT / "docs" / "graphs.md").read_text(encoding="utf-8")
    (text,) = re.findall(r"```yaml\n(name: towers\n.*?)```", docs, re.DOTALL)
    path = tmp_path / "towers.yaml"
    path.write_text(text, encoding="utf-8")
    return [*AUTO, "model=graph", f"model.file={path}", "system.devices=16"]


def test_layers_of_a_kind_have_cuts_of_their_own(monkeypatch, compose, summary, towers):
    """Krizhevsky, arXiv:1404.5997: convolutions share the batch, and what follows them the weights."""
    point = compose(*towers)
    by_layer = chosen(point)
    ways = per_layer._partitions
    monkeypatch.setattr(per_layer, "_partitions", lambda inputs: list(ways(inputs))[:1])
    by_kind = chosen(point)
    assert LAYERS not in by_kind
    got = summary([by_layer, {LAYERS: "same"} | by_kind])
    assert got["time_s"][0] < got["time_s"][1] / 2
    assert by_layer["parallel.strategy"] == "d16"
    assert got["layer_strategies"][0] == by_layer[LAYERS].replace(":", "") == "dense RC-1-8-d2, head CR-8-d2"


def test_a_layer_whose_cut_is_given_keeps_it(compose, towers):
    best = chosen(compose(*towers, "parallel.layers='tower: CR-16'", "parallel.softmax=d16"))
    assert best[LAYERS].startswith("tower: CR-16, ")
    assert "head" not in best[LAYERS]
    assert best["parallel.softmax"] == "d16"


@pytest.mark.parametrize("name", ["wide: d8, b", ", wide", "wide ", "a, b", "wide: d8", "wide:"])
def test_a_layer_is_named_or_cut_by_the_strategy(tmp_path, compose, towers, name):
    """What the text of cuts reads as something else is left alone."""
    path = tmp_path / "towers.yaml"
    text = path.read_text(encoding="utf-8")
    path.write_text(text.replace("name: dense", f"name: '{name}'"), encoding="utf-8")
    cuts = chosen(compose(*towers)).get(LAYERS, "same")
    assert (cuts == f"{name}: RC-1-8-d2, head: CR-8-d2") == (name in ("a, b", "wide: d8", "wide:"))


@pytest.mark.long
def test_points_of_a_grid_choose_layers_for_themselves(towers):
    """What is chosen is in the columns: given as inputs, it makes the same row."""
    got = fastflow.evaluate(*towers, "mem=hbm2,hbm3", f"{PER_LAYER}=false,true")
    assert ["," in cuts for cuts in got["layer_strategies"]] == [False, True, False, True]
    for row in got[got[PER_LAYER]].to_dict("records"):
        cuts = ", ".join(cut.replace(" ", ": ") for cut in row["layer_strategies"].split(", "))
        own = fastflow.evaluate(
            *towers, f"mem={row['mem']}", f"parallel.strategy={row['strategy']}", f"{LAYERS}='{cuts}'"
        )
        results = [name for name in own if name in got and not name.startswith(("parallel.", "point", "mem"))]
        pd.testing.assert_series_equal(own.loc[0, results], pd.Series(row)[results], check_names=False)


@given(
    st.integers(0, 10_000),
    st.sampled_from([(2, 9), (4, 8), (6, 5), (14, 8)]),
    st.sampled_from([0.1, 0.3, 0.6, 0.9]),
)
@cases(60)
def test_the_least_sums_that_fit(seed, sizes, filled):
    """Of long chains, of which more beginnings are as good as any than go on, within a hundredth."""
    borders, cuts = sizes
    drawn = np.random.default_rng(seed)
    own, between, more = (drawn.random((borders, *shape)) for shape in ((1, cuts), (cuts, cuts), (1, cuts)))
    times, memory = own + between / 10, np.rint(20 * (1.2 - own + more / 3) + between)
    least = memory.min(axis=(1, 2)).sum()
    room = int(least + filled * (memory.mean(axis=(1, 2)).sum() - least))
    names = [f"l{part}" for part in range(borders + 1)]
    space = per_layer._Space({}, [""] * cuts, np.ones(cuts, dtype=np.int64), None, names, 0, room)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(per_layer, "_transition_costs", lambda *_: per_layer._TransitionCosts(times, memory))
        ((combinations, sums, fits),) = per_layer._viterbi(space)
    at = np.arange(borders)[:, None], combinations[:, :-1].T, combinations[:, 1:].T
    assert sums == pytest.approx(times[at].sum(axis=0))
    assert ((memory[at].sum(axis=0) <= room) == fits).all()
    assert len({tuple(one) for one in combinations.tolist()}) == len(combinations)
    exact = naive.least_sum(times.tolist(), memory.tolist(), room)
    assert sums[fits].min(initial=np.inf) == pytest.approx(exact, rel=1e-9 if borders < 7 else 1e-2)
