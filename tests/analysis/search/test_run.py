"""Searches of designs, from overrides to what they leave (section 7)."""

import numpy as np
import pandas as pd
import pytest

import fastflow
from fastflow.analysis.search import history as histories
from fastflow.analysis.search import scorer
from fastflow.analysis.search.optimizers.objective import LACKS_MEMORY, NO_CHIP
from fastflow.core.errors import InputError

POINT = (
    "tech=n7",
    "mem=hbm3",
    "model.hidden=4096",
    "model.vocabulary=100000",
    "model.batch=2048",
    "model.devices=16",
)
FIXED = (*POINT, "parallel.strategy=RC-1-4-d4")
QUICK = ("steps=6", "starts=2")


def shares_of(frame):
    return [name for name in frame.columns if name.startswith("chip.")]


def settings_of(row):
    """The overrides that give a row its design."""
    return [f"{name}={float(row[name])!r}" for name in shares_of(row.to_frame().T)]


@pytest.fixture(scope="module")
def found():
    return fastflow.search(*FIXED, *QUICK)


def test_every_design_keeps_to_its_budgets(found):
    history = found.history
    assert len(history) > 50
    for budget in ("area", "power", "perimeter"):
        shares = history[[name for name in shares_of(history) if f".{budget}." in name]]
        assert (shares >= 0.0).all(axis=None)
        assert (shares.sum(axis=1) <= 1.0 + 1e-12).all()


def test_the_first_design_is_the_chips_own_and_none_beats_the_best(found):
    own = fastflow.evaluate(*FIXED).iloc[0]
    assert found.history["time_s"][0] == own["time_s"] == found.best["baseline_objective"]
    feasible = found.history[found.history["feasible"]]
    assert found.best["time_s"] == feasible["time_s"].min() < own["time_s"]
    assert found.best["gain"] == own["time_s"] / found.best["time_s"]
    assert found.best["designs"] == len(found.history)
    assert found.history.attrs["units"]["time_s"] == "s"
    assert found.ranking.attrs["units"]["baseline_objective"] == "s"


def test_a_row_of_the_history_is_what_a_sweep_predicts(found):
    row = found.history.iloc[int(found.history["time_s"].argmax())]  # far from the best
    again = fastflow.evaluate(*FIXED, *settings_of(row)).iloc[0]
    for name in ("time_s", "energy_J", "dram_Bps", "l2_B", "mcus", "bound_by", "feasible"):
        assert again[name] == row[name], name


def test_the_best_chip_is_a_file_that_gives_the_same_time(found, tmp_path):
    (name,) = found.chips
    assert name == ""
    path = tmp_path / "best.yaml"
    path.write_text(found.chips[name])
    again = fastflow.evaluate(*FIXED, f"chip={path}").iloc[0]
    assert again["time_s"] == found.best["time_s"]
    assert again["energy_J"] == found.best["energy_J"]


@pytest.mark.long
@pytest.mark.parametrize("jobs", [1, 2])
def test_any_number_of_jobs_gives_the_same_history_of_gradient_descent(jobs):
    how = (*FIXED, "method=gradient", *QUICK)
    history = fastflow.search(*how, f"engine.jobs={jobs}").history
    pd.testing.assert_frame_equal(history, fastflow.search(*how).history)


@pytest.mark.parametrize("jobs", [1, 2])
def test_any_number_of_jobs_gives_the_same_history(found, jobs):
    history = fastflow.search(*FIXED, *QUICK, "tolerance=0", f"engine.jobs={jobs}").history
    pd.testing.assert_frame_equal(history, found.history)


def test_another_seed_starts_elsewhere(found):
    other = fastflow.search(*FIXED, *QUICK, "seed=1").history
    assert not found.history["score"].equals(other["score"])


@pytest.mark.long
def test_a_search_that_was_cut_short_goes_on(found, tmp_path, monkeypatch):
    monkeypatch.setattr(histories, "PART_ROWS", 40)
    score = scorer.Scorer._score
    calls, how = [], (*FIXED, *QUICK, "tolerance=0")  # ranges are scored anew

    def break_down(self, batch, rows):
        calls.append(rows.size)
        if len(calls) == 5:
            raise KeyboardInterrupt
        return score(self, batch, rows)

    monkeypatch.setattr(scorer.Scorer, "_score", break_down)
    with pytest.raises(KeyboardInterrupt, match="resumes from there"):
        fastflow.search(*how, output=tmp_path / "run")
    kept = len(pd.read_parquet(tmp_path / "run"))
    assert kept == sum(calls[:4])
    again = fastflow.search(*how, output=tmp_path / "run")
    pd.testing.assert_frame_equal(again.history, found.history)
    assert sum(calls) - calls[4] == len(found.history)  # nothing was scored twice
    stored = pd.read_parquet(tmp_path / "run")
    pd.testing.assert_frame_equal(stored, found.history.reset_index(drop=True), check_dtype=False)
    before = len(calls)
    fastflow.search(*how, output=tmp_path / "run")
    assert len(calls) == before
    ranking = pd.read_parquet(tmp_path / "run-ranking")
    assert ranking["time_s"][0] == found.best["time_s"]
    assert (tmp_path / "run-best.yaml").read_text() == found.chips[""]


@pytest.mark.long
def test_a_folder_of_something_else_is_refused(tmp_path):
    fastflow.search(*FIXED, *QUICK, output=tmp_path / "run")
    for other, word in (
        ((*FIXED, "steps=7", "starts=2"), "this one belongs to .*starts=2 steps=6"),
        ((*FIXED, *QUICK, "objective=energy"), "this one belongs to .*objective=time"),
        ((*FIXED, *QUICK, "tech=n5"), "this one belongs to .*tech=n7"),
    ):
        with pytest.raises(InputError, match=word):
            fastflow.search(*other, output=tmp_path / "run")
    part = tmp_path / "run" / "part-00000.parquet"
    part.rename(part.with_name("part-00001.parquet"))
    with pytest.raises(InputError, match=r"lacks part-00000\.parquet"):
        fastflow.search(*FIXED, *QUICK, output=tmp_path / "run")
    part.write_bytes(b"PAR1")
    with pytest.raises(InputError, match="damaged"):
        fastflow.search(*FIXED, *QUICK, output=tmp_path / "run")
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "a.txt").touch()
    with pytest.raises(InputError, match=r"holds a\.txt"):
        fastflow.search(*FIXED, *QUICK, output=tmp_path / "notes")


@pytest.mark.long
def test_a_breakdown_that_makes_no_chip_is_led_to_one_that_does():
    nothing = ("chip.area.l2=0", "chip.power.core=0", "chip.perimeter.dram=0.01")
    assert np.isnan(fastflow.evaluate(*FIXED, *nothing)["time_s"][0])
    for method in ("gradient", "mirror", "cma"):
        found = fastflow.search(*FIXED, *nothing, f"method={method}", "starts=1", "steps=60")
        assert found.history["score"][0] >= NO_CHIP
        assert found.best["feasible"], method
        assert found.best["time_s"] < 1.2 * fastflow.evaluate(*FIXED)["time_s"][0]


@pytest.mark.long
def test_a_strategy_that_lacks_memory_is_given_more_where_a_breakdown_can():
    # the chip's own four stacks have room for what three have not, which its die edge is cut to here
    point = ("mem=hbm2", "parallel.strategy=RC-1-16-d32", "chip.perimeter.dram=0.2")
    own = fastflow.evaluate(*point).iloc[0]
    assert own["footprint_B"] > own["dram_offered_B"]
    found = fastflow.search(*point, "steps=24")
    assert LACKS_MEMORY <= found.history["score"].iloc[1:].max() < NO_CHIP + 50.0
    assert found.best["feasible"]
    assert found.best["dram_offered_B"] >= own["footprint_B"]


def test_where_no_breakdown_has_memory_enough_memory_does_not_count():
    found = fastflow.search("mem=hbm2", "parallel.strategy=d512", "steps=4")
    assert not found.best["feasible"]
    assert found.best["time_s"] < found.best["baseline_objective"]
    assert "GB" in found.best["reason"]


@pytest.mark.long
def test_all_strategies_compete_and_those_that_cannot_fit_are_left_out():
    point = (*POINT, "mem=hbm2", "model.vocabulary=1500000")
    found = fastflow.search(*point, "parallel.strategy=auto", "steps=8")
    ranking = found.ranking
    assert ranking["strategy"].is_unique
    left_out = ranking[ranking["designs"] == 1]
    assert left_out["reason"].str.contains("no breakdown has more").any()
    assert found.best["rank"] == 1
    assert found.best["feasible"]
    scored = ranking[ranking["reason"] == ""]
    assert scored["time_s"].is_monotonic_increasing
    assert (ranking["rank"] == np.arange(1, len(ranking) + 1)).all()
    # the budget goes to the promising
    assert scored["designs"].iloc[:3].min() > scored["designs"].median()
    ranks = fastflow.rank_strategies(*point)
    own = ranking.set_index("strategy")["baseline_objective"]
    np.testing.assert_array_equal(own[ranks["strategy"]].to_numpy(), ranks["time_s"].to_numpy())


@pytest.mark.long
def test_where_the_own_breakdown_makes_no_chip_strategies_are_told_apart_by_an_even_one():
    found = fastflow.search(*POINT, "parallel.strategy=auto", "chip.area.l2=0", "steps=32")
    assert found.best["feasible"]
    whole = fastflow.search(*POINT, "parallel.strategy=auto", "steps=32")
    assert found.best["time_s"] < 1.2 * whole.best["time_s"]
    searched = found.ranking[found.ranking["reason"] == ""]
    assert len(searched) > 5


@pytest.mark.long
def test_candidates_are_alike_only_if_they_are_under_any_design():
    package = (
        "system.package.devices=8",
        "system.package.topology=mesh",
        "net=gdr_x8",
        "tech=n7",
        "mem=hbm3",
    )
    found = fastflow.search(*package, "parallel.strategy=auto", "steps=1").ranking
    alike = found[found["reason"].str.startswith("gives the same results as ")]
    assert len(alike) > 20
    area = np.random.default_rng(5).dirichlet(np.ones(7))
    names = ("core", "l2", "l1", "l0", "dram", "intra", "inter")
    design = [f"chip.area.{name}={share!r}" for name, share in zip(names, area.tolist(), strict=True)]
    both = alike["strategy"].tolist(), alike["reason"].str.split().str[-1].tolist()
    mine, other = (
        fastflow.evaluate(*package, *design, "parallel.strategy=" + ",".join(names))["time_s"].to_numpy()
        for names in both
    )
    np.testing.assert_array_equal(mine, other)


def test_a_mistake_leaves_nothing_behind(tmp_path):
    with pytest.raises(InputError, match="no design can be searched"):
        fastflow.search(*POINT, "parallel.strategy=d7", output=tmp_path / "run")
    (tmp_path / "run-ranking").mkdir()
    (tmp_path / "run-ranking" / "notes.txt").touch()
    with pytest.raises(InputError, match=r"holds notes\.txt"):
        fastflow.search(*FIXED, output=tmp_path / "run")
    (tmp_path / "mine-best.yaml").mkdir()
    with pytest.raises(InputError, match=r"mine-best\.yaml is in the way"):
        fastflow.search(*FIXED, f"output={tmp_path / 'mine'}")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["mine-best.yaml", "run-ranking"]


SERVED = [("model=gpt_1_7b", f"serve={mode}") for mode in ("continuous", "decode", "prefill")]
QUICK_KINDS = ["model=lstm_lm", "model=gpt_1_7b", SERVED[0]]  # iterations, layer runs, servers
LONG_KINDS = ["model=gemm", "model=gemm,gpt_1_7b", *SERVED[1:]]
KINDS = [*QUICK_KINDS, *(pytest.param(kind, marks=pytest.mark.long) for kind in LONG_KINDS)]


@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize(
    ("fault", "says"),
    [
        (("parallel.strategy=d7",), "no design can be searched: .*divides"),
        (("parallel.strategy=TP-4", "net.inter.minimum_voltage=2 V"), "no design can be searched: .*rise"),
        (("parallel.strategy=TP-4", "chip.node_area=500 mm2", "chip.die_area=499 mm2"), ""),  # no memory fits
    ],
    ids=["strategy", "chip", "shares"],
)
def test_where_no_design_has_a_time_the_search_says_why(kind, fault, says):
    words = (*((kind,) if isinstance(kind, str) else kind), "system.devices=8", *fault)
    if says:
        with pytest.raises(InputError, match=says):
            fastflow.search(*words)
        return
    answer = fastflow.search(*words, "steps=1", "starts=1", "tolerance=0")
    assert answer.history["time_s"].isna().all()
    assert answer.history["reason"].str.contains("dram has no room").all()
    assert not answer.ranking["feasible"].any()


@pytest.mark.parametrize("kind", ["model=gpt_1_7b", SERVED[0]], ids=str)
def test_a_search_goes_on_from_a_breakdown_that_makes_no_chip(kind):
    words = (kind,) if isinstance(kind, str) else kind
    fixed = (
        "system=dgx_h100",
        "calibration=none",
        "parallel.strategy=TP-8",
        "steps=1",
        "starts=1",
        "tolerance=0",
    )
    answer = fastflow.search(*words, *fixed)
    assert answer.history["time_s"].notna().any()
    assert answer.history["reason"][0].startswith("intra has no room")


@pytest.mark.long
def test_points_of_a_grid_are_searched_beside_each_other():
    both = fastflow.search(*FIXED, "tech=n7,n5", *QUICK)
    assert both.ranking["rank"].tolist() == [1, 1]
    assert set(both.chips) == {"n7", "n5"}
    alone = fastflow.search(*FIXED, "tech=n5", *QUICK)
    assert both.ranking.set_index("tech")["time_s"]["n5"] == alone.best["time_s"]
    together = fastflow.search(*FIXED, "tech=n7,n5", *QUICK, "compare=all")
    assert together.ranking["rank"].tolist() == [1, 2]
    assert together.best["tech"] == "n5"


@pytest.mark.parametrize(
    ("key", "values"),
    [
        ("model.hidden", [2048, 4096]),
        pytest.param("precision", ["mixed", "fp32_gradients"], marks=pytest.mark.long),
    ],
)
def test_models_compete_with_strategies_unless_they_are_not_to(key, values):
    rest = [text for text in POINT if not text.startswith(f"{key}=")]
    axis = f"{key}={','.join(map(str, values))}"
    grid = (*rest, axis, "parallel.strategy=d16,RC-1-4-d4", "steps=2", "starts=1")
    ranking = fastflow.search(*grid).ranking
    assert ranking["rank"].tolist() == [1, 2, 3, 4]
    apart = fastflow.search(*grid, "compare=strategies").ranking
    assert apart["rank"].tolist() == [1, 2, 1, 2]
    assert apart[key].tolist() == np.repeat(values, 2).tolist()


@pytest.mark.parametrize("objective", ["edp", pytest.param("energy", marks=pytest.mark.long), "time_area"])
def test_other_objectives(objective, found):
    other = fastflow.search(*FIXED, *QUICK, f"objective={objective}")

    def value(row):
        area = sum(row[name] for name in shares_of(found.history) if ".area." in name) * 850e-6
        return {
            "energy": row["energy_J"],
            "edp": row["energy_J"] * row["time_s"],
            "time_area": row["time_s"] * area,
        }[objective]

    assert other.best["objective"] == pytest.approx(value(other.best), rel=1e-12)
    assert value(other.best) < value(found.best)
    assert other.best["time_s"] > 0.98 * found.best["time_s"]  # of few steps: neither is the very best


def test_a_front_of_two_objectives():
    found = fastflow.search(*FIXED, "pareto=energy", "steps=10", "starts=4")
    front = found.front
    assert front["time_s"].is_monotonic_increasing
    assert front["energy_J"].is_monotonic_decreasing
    assert len(front) > 3
    feasible = found.history[found.history["feasible"]]
    for row in front.itertuples():
        better = (feasible["time_s"] <= row.time_s) & (feasible["energy_J"] < row.energy_J)
        assert not better.any()
    assert found.best["time_s"] == front["time_s"].iloc[0] == feasible["time_s"].min()


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("method=newton", "method=newton.*one of mirror, cma, gradient, random"),
        ("steps=0", "steps=0.*whole number from 1"),
        ("starts=many", "starts=many"),
        ("objective=cost", "objective=cost.*time, energy, edp"),
        ("seed=null", "seed=null.*whole number from 0 to 1,000,000"),
        (
            "chip.area.core=0.2,0.3",
            "chip.area.core=several values.*a search starts there and finds the best shares itself",
        ),
        ("pareto=time", "pareto=time.*an objective other than time"),
        ("compare=nobody", "compare=nobody"),
        ("chip=a100", "chip=.*a chip generated from its shares"),
        ("trace=a.json", "trace=a.json"),
        ("parallel.strategy=d7", "divide"),
    ],
)
def test_mistakes(override, message):
    others = [text for text in FIXED if text.partition("=")[0] != override.partition("=")[0]]
    with pytest.raises(InputError, match=message):
        fastflow.search(*others, override)


@pytest.mark.parametrize("key", ["parallel.strategy", "serve.prefill.strategy"])
def test_a_search_splits_no_devices(key):
    strategies = {"parallel.strategy": "TP-4", "serve.prefill.strategy": "TP-4", key: "auto"}
    asked = ("serve=disaggregated", "model=gpt_1_7b", "system.devices=8", "steps=1", "starts=1")
    with pytest.raises(InputError, match=rf"^{key}=auto .* a search does not split devices"):
        fastflow.search(*asked, **strategies)
