"""`parallel.strategy=auto` of a transformer: what is tried, that the best is found, bounds, results."""

import numpy as np
import pandas as pd
import pytest

import fastflow
from fastflow.analysis.search import candidates
from fastflow.cli.commands.sweep import main
from fastflow.core.errors import InputError
from fastflow.core.tables import take
from fastflow.performance.auto import transformer
from fastflow.performance.auto.resolve import resolve_any_strategy, resolve_strategy
from fastflow.performance.partial_predictions import lower_bounds
from fastflow.physics.parallelism.bounds import limits, parse
from fastflow.physics.parallelism.candidates import CHOSEN, every_layout
from tests.conftest import columns_of
from tests.naive import choices as naive

SMALL = [
    "model=transformer", "model.layers=6", "model.hidden=1024", "model.heads=8", "model.sequence=1024",
    "model.batch=32", "model.vocabulary=8000", "system=dgx_h100", "system.devices=16",
]  # fmt: skip
MIXTURE = ["model.pattern=experts", "model.experts=4", "model.topk=2"]
CASES = {
    "dense": [],
    "experts": MIXTURE,
    "experts of whole tensors": [*MIXTURE, "parallel.expert_tensor_parallel=false"],
    "attention in three kernels": ["model.fused_attention=false"],
    "no machines": ["system=fat_tree", "chip=h100_sxm"],
    "an odd number": ["system.devices=24", "model.batch=48", "model.layers=10"],
    "bounds": ['parallel.search_bounds="tp<=4, cp=1, chunks<=2, pp<=machine"'],
}


def inputs_of(compose, *overrides):
    return columns_of([compose(*SMALL, "parallel.strategy=auto", *overrides)])


def rows_of(columns):
    return list(zip(*(columns[key].tolist() for key in CHOSEN), strict=True))


def expected_of(inputs, **more):
    own = {
        name: int(inputs[f"model.{name}"][0]) for name in ("layers", "heads", "sequence", "batch", "experts")
    }
    devices, machine = (int(inputs[f"system.{name}"][0]) for name in ("devices", "package.devices"))
    fused, cut = bool(inputs["model.fused_attention"][0]), bool(inputs["parallel.expert_tensor_parallel"][0])
    return naive.layouts(devices, machine, **own, fused=fused, tp_cuts=cut, **more)


@pytest.mark.parametrize("case", CASES)
def test_what_is_tried(compose, case):
    inputs = inputs_of(compose, *CASES[case])
    most = [("tp", 4), ("cp", 1), ("chunks", 2), ("pp", 8)] if case == "bounds" else []
    found = rows_of(every_layout(inputs))
    assert len(found) == len(set(found))
    assert set(found) == expected_of(inputs, most=most)


@pytest.mark.parametrize("given", [
    {"parallel.microbatch": 2}, {"parallel.recompute": "full"}, {"parallel.recompute": "3"},
    {"parallel.zero_stage": 0}, {"parallel.zero_stage": 3}, {"parallel.pipeline_partition": "even"},
])  # fmt: skip
def test_what_is_given_is_not_searched(compose, given):
    found = every_layout(inputs_of(compose, *(f"{key}={value}" for key, value in given.items())))
    ((key, value),) = given.items()
    assert set(found[key].tolist()) == {value}
    others = [name for name in CHOSEN[:4] if name != key]
    assert all(len(set(found[name].tolist())) > 1 for name in others)


@pytest.mark.parametrize(
    ("schedule", "chunks"),
    [
        ("gpipe", False),
        ("zero-bubble", False),
        ("zb-2p", False),
        ("dualpipe", False),
        ("interleaved", True),
        ("zb-v", True),
        ("dualpipe-v", True),
    ],
)
def test_a_schedule_that_is_given(compose, schedule, chunks):
    found = every_layout(inputs_of(compose, f"parallel.schedule={schedule}"))["parallel.strategy"]
    assert any("x" in one for one in found.tolist()) == chunks
    assert any("-p2" in one for one in found.tolist())


def test_stages_that_are_balanced_need_not_divide_the_layers(compose):
    found = every_layout(inputs_of(compose, "model.layers=7", "parallel.pipeline_partition=balanced"))[
        "parallel.strategy"
    ]
    assert {one.partition("-p")[2] for one in found.tolist()} == {"", "2", "4"}


@pytest.fixture(scope="module", params=["dense", "experts", "attention in three kernels"])
def all_of_them(compose, summary, request):
    """Inputs, and every layout of them predicted on its own: its row, time and whether it fits."""
    memory = {"dense": 2.2e8, "experts": 4e8, "attention in three kernels": 2.5e8}[request.param]
    memory = f"chip.pinned.dram_capacity_B={memory} B"
    inputs = inputs_of(compose, *CASES[request.param], memory, "memory=tensors")
    tried = every_layout(inputs)
    rows = np.zeros(tried["parallel.strategy"].size, dtype=np.int64)
    points = take(dict(inputs), rows) | tried
    table = summary([{key: column[i] for key, column in points.items()} for i in range(rows.size)])
    return inputs, tried, table


def test_some_lack_memory_and_some_do_not(all_of_them):
    _, _, table = all_of_them
    assert 20 < table["feasible"].sum() < 0.8 * table["feasible"].size


@pytest.mark.long
@pytest.mark.parametrize(("kept", "first"), [(1, 4), (5, 16), (40, 64), (1000, 1024)])
def test_the_best_are_those_of_all(monkeypatch, all_of_them, kept, first):
    inputs, tried, table = all_of_them
    monkeypatch.setattr(transformer, "KEPT", kept)
    monkeypatch.setattr(transformer, "FIRST", first)
    found = transformer.best_layouts(inputs)
    order = [i for i in np.argsort(table["time_s"], kind="stable") if table["feasible"][i]][:kept]
    assert rows_of(found.best) == rows_of(take(tried, np.array(order)))
    assert found.layouts == table["time_s"].size
    assert found.num_without_memory == (~table["feasible"]).sum()
    if kept < 10:
        assert found.predicted < 0.9 * table["feasible"].sum()


def test_no_layout_is_faster_than_it_is_weighed(all_of_them):
    inputs, tried, table = all_of_them
    rows = np.zeros(table["time_s"].size, dtype=np.int64)
    bounds = lower_bounds(take(dict(inputs), rows) | tried)
    assert (bounds.time <= table["time_s"] * (1 + 1e-9)).all()
    assert (bounds.time > 0.2 * table["time_s"]).any()
    np.testing.assert_array_equal(bounds.memory, table["footprint_B"])


def test_where_nothing_fits_the_fastest_is_best(compose):
    inputs = inputs_of(compose, "chip.pinned.dram_capacity_B=1 MB")
    found = transformer.best_layouts(inputs)
    assert found.num_without_memory == found.layouts
    best = fastflow.evaluate(*SMALL, "parallel.strategy=auto", "chip.pinned.dram_capacity_B=1 MB").iloc[0]
    assert best["strategy"] == found.best["parallel.strategy"][0]
    assert not best["feasible"]


def test_a_point_of_a_grid_has_what_was_chosen_for_it():
    asked = ["parallel.recompute=auto,full", "parallel.zero_stage=auto,3", "system.devices=8,16"]
    got = fastflow.evaluate(*SMALL, "parallel.strategy=auto", *asked)
    assert len(got) == 8
    for row in got.to_dict("records"):
        alone = fastflow.evaluate(
            *SMALL, f"system.devices={row['system.devices']}", f"parallel.strategy={row['strategy']}",
            f"parallel.microbatch={row['microbatch']}", f"parallel.recompute={row['recompute']}",
            f"parallel.zero_stage={row['zero']}", f"parallel.pipeline_partition={row['split']}",
        ).iloc[0]  # fmt: skip
        for name in ("time_s", "footprint_B", "microbatch", "recompute", "zero", "schedule", "placement"):
            assert row[name] == alone[name]
        assert row["recompute"] == "full" or row["parallel.recompute"] == "auto"
        assert row["zero"] == 3 or row["parallel.zero_stage"] == -1
    assert got["time_s"].nunique() > 2


def test_the_ranking():
    ranking = fastflow.rank_strategies(*SMALL)
    best = fastflow.evaluate(*SMALL, "parallel.strategy=auto").iloc[0]
    assert len(ranking) == transformer.KEPT
    assert ranking["time_s"].is_monotonic_increasing
    assert ranking["feasible"].all()
    same = [
        "strategy",
        "microbatch",
        "recompute",
        "zero",
        "schedule",
        "time_s",
        "mfu",
        "bubble_s",
        "footprint_B",
    ]
    assert ranking.loc[0, same].tolist() == best[same].tolist()
    assert (ranking["strategy"] == ranking["parallel.strategy"]).all()
    assert set(ranking["schedule"]) <= {"1f1b", "interleaved"}


def test_the_screen_and_the_files(cli, tmp_path):
    code, lines, err = cli(main, *SMALL, "parallel.strategy=auto", "output=here")
    out = "\n".join(lines)
    assert (code, err) == (0, [])
    for words in ("Best of ", " layouts predicted; ", " compute too long ", "micro-batches of "):
        assert words in out
    best, ranking = (pd.read_parquet(tmp_path / name) for name in ("here", "here-ranking"))
    assert len(ranking) == transformer.KEPT
    assert best.loc[0, "time_s"] == ranking.loc[0, "time_s"]


def test_a_rehearsal_takes_some_layout(compose):
    settled = resolve_any_strategy(inputs_of(compose))
    assert [settled[key][0] for key in CHOSEN] in [
        list(row) for row in rows_of(every_layout(inputs_of(compose)))
    ]


def test_the_rest_of_a_column_stays(compose):
    fixed = compose(*SMALL, "parallel.strategy=TP-2-d8", "parallel.zero_stage=2")
    auto = compose(*SMALL, "parallel.strategy=auto")
    found = resolve_strategy(columns_of([fixed, auto]))
    assert [found[key][0] for key in CHOSEN] == ["TP-2-d8", 0, "auto", 2, "auto"]
    assert found["parallel.strategy"][1] != "auto"


@pytest.mark.parametrize("text", [
    "tp", "tp<8", "tp<=0", "tp<=x", "tp<=8,", "kp1<=4", "tp<=8 pp<=4", "tp>=8, tp<=4", "tp=2, tp=4", "",
    "tp<=99999999999", "any, tp<=8", "tp<=machines",
])  # fmt: skip
def test_what_is_no_bound_is_refused(text):
    with pytest.raises(InputError) as error:
        fastflow.evaluate(*SMALL, f'parallel.search_bounds="{text}"')
    assert str(error.value).startswith("parallel.search_bounds=")
    assert "\n" not in str(error.value)


def test_bounds():
    spans = limits(parse("pp<=16, cp=2 ,ep<=machine,microbatch>=2, pp>=4"), 8)
    assert spans["pp"] == (4, 16)
    assert spans["cp"] == (2, 2)
    assert spans["ep"] == (1, 8)
    assert spans["microbatch"] == (2, np.inf)
    assert spans["tp"] == (1, 8)
    assert spans["dp"] == (1, np.inf)
    assert limits(parse("any"), 1)["tp"] == (1, np.inf)  # devices stand alone
    assert limits(parse("tp<=64"), 8)["tp"] == (1, 64)


def test_bounds_that_leave_nothing_are_refused():
    with pytest.raises(InputError, match=r"parallel\.search_bounds=tp=8, pp=4 .*system\.devices=16"):
        fastflow.evaluate(*SMALL, "parallel.strategy=auto", 'parallel.search_bounds="tp=8, pp=4"')


def test_a_system_without_any_layout_has_a_reason():
    got = fastflow.evaluate(*SMALL, "parallel.strategy=auto", "system.devices=16,88").iloc[1]
    assert np.isnan(got["time_s"])
    assert "32" in got["reason"]


def test_a_search_of_designs_takes_the_best_layouts():
    asked = [*SMALL, "system=cluster", "chip=pathfinding", "system.devices=8", "parallel.microbatch=1"]
    found = fastflow.search(*asked, "parallel.strategy=auto", "steps=3")
    ranking = fastflow.rank_strategies(*asked).head(candidates.MAX_LAYOUTS)
    columns = ["strategy", "microbatch", "recompute", "zero"]
    assert set(found.ranking[columns].itertuples(index=False, name=None)) == set(
        ranking[columns].itertuples(index=False, name=None)
    )
    own = found.ranking.sort_values("baseline_objective", kind="stable")["baseline_objective"].dropna()
    np.testing.assert_allclose(own.iloc[0], ranking["time_s"].iloc[0])
    assert found.best["time_s"] <= ranking["time_s"].iloc[0]
    (text,) = found.chips.values()
    for key, name in (("strategy", "strategy"), ("recompute", "recompute"), ("zero_stage", "zero")):
        assert f"parallel.{key}={found.best[name]}" in text


def test_layers_of_a_transformer_are_cut_alike():
    with pytest.raises(InputError, match=r"parallel\.per_layer=true"):
        fastflow.evaluate(*SMALL, "parallel.strategy=auto", "parallel.per_layer=true")
