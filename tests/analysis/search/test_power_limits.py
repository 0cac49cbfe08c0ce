"""Searches under limits of the power of racks and of the site, and for tokens of a megawatt."""

from math import log

import numpy as np
import pytest

import fastflow
from fastflow.analysis.search.optimizers.objective import (
    INVERSES,
    LACKS_MEMORY,
    NO_CHIP,
    OBJECTIVES,
    devices_short,
    measure,
    score,
    with_shortage,
)
from fastflow.analysis.search.options import read_options
from fastflow.core.errors import InputError
from fastflow.performance.results import summary
from fastflow.schema import find_result
from tests.conftest import columns_of
from tests.naive.site_limits import site_limits
from tests.support.checks import near

SMALL = {"model.hidden": 512, "model.batch": 64, "model.vocabulary": 4000, "model.sequence": 4}
TRAINING = (
    "model=lstm_lm", "model.hidden=512", "model.batch=64", "model.vocabulary=4000", "model.sequence=4",
    "system.devices=8", "parallel.strategy=d8", "method=mirror", "starts=2", "steps=6", "tolerance=0",
)  # fmt: skip
TOKENS = (
    "model=transformer", "model.layers=2", "model.hidden=512", "model.heads=8", "model.batch=8",
    "model.sequence=256", "system.devices=8", "parallel.strategy=d8", "method=mirror", "starts=2", "steps=6",
    "tolerance=0",
)  # fmt: skip
SERVED = (
    "model=transformer", "model.layers=2", "model.hidden=512", "model.heads=8", "model.training=false",
    "system.devices=1", "parallel.strategy=TP-1", "serve=decode", "serve.batch=64", "serve.context=512",
    "method=mirror", "starts=2", "steps=6", "tolerance=0",
)  # fmt: skip


@pytest.fixture(scope="module")
def point(compose):
    return compose("parallel.strategy=d8", "system.devices=8") | SMALL


def test_a_design_above_limits_scores_by_the_sum_of_what_it_exceeds(point, predict):
    row = {name: column[0] for name, column in summary(predict([point])).items()}
    row["rack_devices"] = point["power.rack_devices"]
    for rack, site in ((0.5, 2.0), (2.0, 0.3), (0.5, 0.3), (2.0, 2.0)):
        limits = rack * row["rack_W"], site * row["system_W"]
        found = predict([point | dict(zip(("power.rack_limit", "power.site_limit"), limits, strict=True))])
        got = score(found, "time", None, np.zeros(1), np.full(1, True))[0]
        exceeded, excess = site_limits(row, *limits)
        assert len(exceeded) == (rack < 1.0) + (site < 1.0)
        assert near(got, LACKS_MEMORY + excess if exceeded else log(row["time_s"]), 1e-9)


def test_what_lacks_memory_too_is_worse(point, predict):
    row = {name: column[0] for name, column in summary(predict([point])).items()}
    limit = {"power.site_limit": 0.5 * row["system_W"]}
    small = point | {"mem.device_capacity": 1e5}
    both, memory = (predict([one]) for one in (small | limit, small))
    held = np.full(1, True)
    short = devices_short(columns_of([small]), memory.footprint.total)[0]
    assert score(memory, "time", None, np.zeros(1), held)[0] == LACKS_MEMORY + short
    drawn = summary(both)["system_W"][0]
    excess = max(log(drawn / limit["power.site_limit"]), 0.0)
    assert near(score(both, "time", None, np.zeros(1), held)[0], LACKS_MEMORY + excess + short, 1e-9)
    assert excess > 0.0
    assert with_shortage(np.array([-3.0, LACKS_MEMORY + 2.0]), np.ones(2)).tolist() == [101.0, 103.0]


@pytest.mark.long
@pytest.mark.parametrize("words", [TRAINING, SERVED], ids=["training", "served"])
def test_the_best_design_is_within_the_limit(words):
    free = fastflow.search(*words)
    drawn = free.history["system_W"]
    limit = float(0.5 * (drawn.min() + free.best["system_W"]))
    assert drawn.min() < limit < free.best["system_W"]
    found = fastflow.search(*words, f"power.site_limit='{limit!r} W'")
    assert found.best["feasible"]
    assert found.best["system_W"] <= limit
    history = found.history
    over = history["time_s"].notna() & (history["system_W"] > limit)
    assert over.any()
    assert (history.loc[over, "reason_code"] == "site_power").all()
    assert history.loc[over, "score"].between(LACKS_MEMORY, NO_CHIP).all()
    scored = history.loc[over & (history["footprint_B"] <= history["dram_offered_B"])]
    scored = scored[scored["step"] > 0]
    assert len(scored)
    assert scored["score"].to_numpy() == pytest.approx(LACKS_MEMORY + np.log(scored["system_W"] / limit))
    within = history["feasible"].astype(bool)
    assert history.loc[within, "score"].max() < LACKS_MEMORY


@pytest.mark.long
def test_a_search_comes_into_the_limit_from_outside():
    """Where the configured design is above the limit, and random ones are too, the excess leads inside."""
    free = fastflow.search(*TRAINING).history
    limit = float(0.9 * free["system_W"].min())
    words = (*TRAINING, "starts=1", "steps=60", f"power.site_limit='{limit!r} W'")
    found = fastflow.search(*words)
    assert not found.history["feasible"].iloc[0]
    assert found.best["feasible"]


# --- tokens of a megawatt


@pytest.mark.parametrize("words", [TOKENS, SERVED], ids=["training", "served"])
def test_the_objective_is_a_megajoule_over_the_tokens_of_a_megawatt(words):
    found = fastflow.search(*words, "objective=tokens_per_s_per_MW")
    history = found.history[found.history["time_s"].notna()]
    assert history["objective"].to_numpy() == pytest.approx(1e6 / history["tokens_per_s_per_MW"], rel=1e-12)
    feasible = history[history["feasible"].astype(bool)]
    assert found.best["tokens_per_s_per_MW"] == feasible["tokens_per_s_per_MW"].max()
    same = fastflow.search(*words, "objective=site_joules_per_token")
    assert same.history["score"].equals(found.history["score"])


def test_inverses_are_columns_and_objectives():
    for column, objective in INVERSES.items():
        assert find_result(column) is not None
        assert objective in OBJECTIVES
        section = {"method": "mirror", "seed": 0, "objective": column, "pareto": "time",
                   "compare": "all", "tolerance": 0.0}  # fmt: skip
        assert read_options(section).objective == objective
        with pytest.raises(InputError, match="an objective other than"):
            read_options(section | {"pareto": objective})


def test_models_without_tokens_have_no_such_objective(point, predict):
    with pytest.raises(InputError, match=r"objective=site_joules_per_token .*energy, or another objective"):
        fastflow.search(*TRAINING, "objective=tokens_per_s_per_MW")


@pytest.mark.long
def test_a_sensitivity_is_of_tokens_of_a_megawatt():
    words = ("model=llama3_8b", "system=dgx_h100", "parallel.strategy=TP-8", "serve=decode", "serve.batch=8")
    found = fastflow.sensitivity(*words, "objective=tokens_per_s_per_MW")
    assert found.objective == "tokens_per_s_per_MW"
    assert found.value == fastflow.evaluate(*words)["tokens_per_s_per_MW"][0]
    of_tdp = found.parameters.set_index("parameter").loc["chip.tdp", "elasticity"]
    assert of_tdp < -0.1  # hosts and rest draw a share of the budget


def test_the_measure_is_power_times_time_over_tokens(predict, compose):
    point = compose(*TOKENS[:8])
    found = predict([point])
    row = {name: column[0] for name, column in summary(found).items()}
    expected = row["site_J"] / (point["model.batch"] * point["model.sequence"])
    assert near(measure(found, "site_joules_per_token")[0], expected, 1e-12)
