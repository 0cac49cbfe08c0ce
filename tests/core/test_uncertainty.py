"""Uncertain figures: what files say, draws, bands and chances against slow ones, mistakes."""

import math
import os
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

import fastflow
from fastflow.analysis.search.options import read_options
from fastflow.analysis.search.results import front, ranking
from fastflow.analysis.search.run import search_designs
from fastflow.config.composer import Composer
from fastflow.config.library import hydra_rules, library_root
from fastflow.core.errors import InputError
from fastflow.core.uncertainty.percentiles import chance, percentiles
from fastflow.core.uncertainty.sampling import (
    P90,
    Distribution,
    ModelError,
    Uncertainty,
    factors,
    figure_factors,
    model_factors,
    normals,
)
from fastflow.engine.grid.plan import plan
from fastflow.physics.workload import FAMILIES, WORK
from fastflow.schema import BANDED, band_of, find_input
from tests.naive import uncertainty as naive
from tests.support.checks import cases

POINT = ("tech=n3", "mem=hbm4", "parallel.strategy=RC-1-16-d32", "uncertainty=on")
FEW = (*POINT, "uncertainty.samples=8")
CERTAIN = [f"uncertainty.model.{work}.{name}=0%" for work in WORK for name in ModelError._fields]
ROADMAP = {
    "tech": ("n3", "n2", "n1_4", "n1"),
    "mem": ("hbm4",),
    "net": ("xdr_x8", "gdr_x8"),
    "scaling": ("foundry",),
}


def grid_of(*overrides):
    with hydra_rules():
        return plan(Composer.of_library(), overrides).grid


def distributions(*overrides):
    grid = grid_of(*overrides)
    return {one.key: one for one in grid.uncertainty.distributions[0]}, grid.uncertainty.draws


# --- draws


def test_a_figure_has_the_percentiles_that_its_file_says():
    drawn = normals("a file and a key", 0, 20_000)[None]
    found = factors(drawn, np.array([0.8]), np.array([1.5]))[0]
    assert np.percentile(found, [10, 50, 90]) == pytest.approx([0.8, 1.0, 1.5], rel=2e-3)
    assert [naive.factor(draw, 0.8, 1.5) for draw in drawn[0, :50]] == pytest.approx(found[:50])


@cases(30)
@given(st.text(max_size=8), st.integers(0, 2**31), st.integers(1, 64))
def test_draws_are_those_of_their_name_alone(name, seed, samples):
    drawn = normals(name, seed, samples)
    assert drawn.tolist() == pytest.approx(naive.draws(name, seed, samples), abs=1e-9)
    parts = np.floor([0.5 * (1.0 + math.erf(draw / math.sqrt(2.0))) * samples + 1e-12 for draw in drawn])
    assert sorted(parts) == list(range(samples))


def test_draws_of_different_names_are_independent():
    one, other = normals("one", 0, 4096), normals("other", 0, 4096)
    assert abs(np.corrcoef(one, other)[0, 1]) < 0.05


def test_the_models_error_is_what_its_validation_says():
    """Mean error of a time and of a ratio, over many samples."""
    said = Uncertainty(65_536, 0, {"products": ModelError(0.09, 0.04)}, (), ())
    errors = np.array([0.09, 0.09])
    one, other = np.log(model_factors("products", ["one", "other"], errors, said))
    assert np.abs(one).mean() == pytest.approx(0.09, rel=0.02)
    assert np.abs(one - other).mean() == pytest.approx(0.04, rel=0.02)
    again, same = model_factors("products", ["one", "one"], errors, said)
    assert (again == same).all()
    _, larger = np.log(model_factors("products", ["one", "other"], np.array([0.09, 0.2]), said))
    assert np.abs(larger).mean() == pytest.approx(0.2, rel=0.02)


def test_an_exact_row_of_a_batch_is_not_changed():
    distribution = Distribution("x", np.array([0, -1]), np.array([0.5, 1.0]), np.array([2.0, 1.0]))
    said = Uncertainty(16, 0, {}, ("a figure",), ((distribution,),))
    drawn, exact = figure_factors(distribution, np.array([0, 1]), said)
    assert (exact == 1.0).all()
    assert drawn.std() > 0.1


# --- what samples say

VALUES = st.one_of(st.floats(0.1, 10.0), st.just(math.nan), st.just(1.0))


@cases(50)
@given(st.integers(1, 12).flatmap(lambda n: st.tuples(*[st.lists(VALUES, min_size=n, max_size=n)] * 2)))
def test_chances_are_counted(both):
    one, other = (np.array(values) for values in both)
    found = float(chance(one, other))
    assert found == pytest.approx(naive.chance(*both), nan_ok=True)
    assert found + float(chance(other, one)) == pytest.approx(1.0, nan_ok=True) or math.isnan(found)


@cases(50)
@given(st.lists(st.lists(VALUES, min_size=5, max_size=5), min_size=1, max_size=4))
def test_percentiles_are_of_samples_that_are_numbers(rows):
    found = percentiles(np.array(rows))
    for place, row in enumerate(rows):
        known = [value for value in row if not math.isnan(value)]
        for which, nth in enumerate((10, 50, 90)):
            expected = naive.percentile(known, nth) if known else math.nan
            assert found[which, place] == pytest.approx(expected, nan_ok=True)


def test_bands_are_those_of_samples_that_are_commands_of_their_own():
    """Figures set by overrides, one sample after the other; the model's own error beside."""
    stated, names = distributions(*FEW)
    (row,) = fastflow.evaluate(*FEW).to_dict("records")
    grid = grid_of(*FEW)
    inputs = grid.first_inputs()
    drawn = {key: naive.draws(names[one.draw[0]], 0, 8) for key, one in stated.items()}

    def written(key, sample):
        low, high = stated[key].low[0], stated[key].high[0]
        value = float(inputs[key][0]) * naive.factor(drawn[key][sample], low, high)
        known = find_input(key)
        value = max(known.low, min(value, known.high))
        return f"{key}='{value!r} {known.unit}'" if known.unit else f"{key}={value!r}"

    texts = [[written(key, sample) for key in stated] for sample in range(8)]
    exact = [fastflow.evaluate(*POINT[:-1], *sample).iloc[0] for sample in texts]
    design = " ".join(str(grid.labels[name][0]) for name in ("tech", "mem", "net", "chip", "system"))
    error = model_factors("recurrent", [design], np.array([0.17]), grid.uncertainty)[0]
    for name in ("time_s", "device_usd", "energy_J", "dram_Bps"):
        values = [one[name] * error[sample] ** BANDED[name] for sample, one in enumerate(exact)]
        bands = [row[band] for band in band_of(name)]
        assert bands == pytest.approx([naive.percentile(values, nth) for nth in (10, 50, 90)], rel=1e-9), name


# --- grids

GRID = (
    "tech=n7,n3", "mem=hbm3,hbm4", "chip.die_area=600 mm2,800 mm2", "uncertainty=on",
    "uncertainty.samples=16", "parallel.strategy=RC-1-16-d32",
)  # fmt: skip


@pytest.fixture(scope="module")
def frame():
    return fastflow.evaluate(*GRID)


@pytest.mark.parametrize(
    "how", ["engine.chunk=1", "engine.chunk=3", "engine.jobs=2", "engine.chunk_bytes=1 MB"]
)
def test_bands_are_the_same_to_the_bit_however_points_are_cut(frame, how):
    pd.testing.assert_frame_equal(fastflow.evaluate(*GRID, how), frame, check_exact=True)


def test_a_point_has_the_bands_that_it_has_in_a_grid(frame):
    alone = fastflow.evaluate("tech=n3", "mem=hbm4", "chip.die_area=600 mm2", *GRID[3:])
    own = frame[(frame["tech"] == "n3") & (frame["mem"] == "hbm4") & (frame["chip.die_area"] < 7e-4)]
    names = [band for name in BANDED if name in frame for band in band_of(name)]
    pd.testing.assert_frame_equal(alone[names], own[names].reset_index(drop=True), check_exact=True)


def test_bands_stand_beside_their_column_and_hold_the_median(frame):
    names = list(frame)
    assert names[names.index("time_s") + 1 : names.index("time_s") + 4] == list(band_of("time_s"))
    assert (frame["time_s_p10"] < frame["time_s_p50"]).all()
    assert (frame["time_s_p50"] < frame["time_s_p90"]).all()
    assert frame.attrs["units"]["time_s_p90"] == "s"
    assert frame["model_error_share"].between(0.0, 1.0).all()


def test_off_changes_nothing():
    off = fastflow.evaluate(*POINT[:-1])
    assert not [name for name in off if name.endswith(("_p10", "_p50", "_p90"))]
    on = fastflow.evaluate(*FEW)
    pd.testing.assert_frame_equal(on[list(off)], off, check_exact=True)
    assert grid_of(*POINT[:-1]).provenance.fingerprint != grid_of(*FEW).provenance.fingerprint


def test_drawn_shares_of_a_budget_stay_within_the_whole():
    """Else a chip would have more power than it has: half of the samples had no result."""
    one = ("model=gemm", "system.devices=1", "parallel.strategy=d1", "uncertainty=on")
    rows = fastflow.evaluate(*one, "uncertainty.samples=16", "+chip.uncertainty={power: {core: 50%}}")
    assert rows["samples_failed"].tolist() == [0]


def test_another_seed_makes_other_bands_and_another_dataset():
    one, other = (fastflow.evaluate(*FEW, f"uncertainty.seed={seed}") for seed in (0, 1))
    assert one["time_s_p50"][0] != other["time_s_p50"][0]
    assert one["time_s"][0] == other["time_s"][0]
    assert grid_of(*FEW).provenance.fingerprint != grid_of(*FEW, "uncertainty.seed=1").provenance.fingerprint


def test_a_point_without_a_time_has_no_bands_and_a_reason():
    row = fastflow.evaluate(*FEW, "chip.tdp=1 W").iloc[0]
    assert row["reason"]
    assert math.isnan(row["time_s_p50"])
    assert row["samples_failed"] == 8


def test_the_strategy_is_that_of_the_figures_themselves():
    auto = fastflow.evaluate("tech=n3", "mem=hbm4", "parallel.strategy=auto", *FEW[3:]).iloc[0]
    fixed = fastflow.evaluate("tech=n3", "mem=hbm4", f"parallel.strategy={auto['strategy']}", *FEW[3:]).iloc[
        0
    ]
    assert [auto[band] for band in band_of("time_s")] == [fixed[band] for band in band_of("time_s")]


@pytest.mark.parametrize(
    "point",
    [
        ("chip=h100_sxm", "model=gemm"),
        ("chip=h100_sxm", "model=llama3_8b", "serve=decode", "serve.batch=8", "system.devices=1"),
        ("model=llama3_8b", "tech=n3", "mem=hbm4", "system.devices=64", "parallel.strategy=auto"),
        ("chip=b200_sxm", "model=llama3_8b", "serve=disaggregated", "serve.concurrency=8", "system.devices=8",
         "serve.prefill.chip=h100_sxm", "serve.prefill.devices=4"),
    ],
)  # fmt: skip
def test_whatever_is_predicted_has_bands(point):
    row = fastflow.evaluate(*point, "uncertainty=on", "uncertainty.samples=8").iloc[0]
    assert row["time_s_p10"] <= row["time_s_p50"] <= row["time_s_p90"]
    assert row["time_s_p10"] < row["time_s_p90"]
    assert row["samples_failed"] < 8  # some have less memory


SERVED = (
    "chip=h100_sxm", "model=llama3_8b", "serve=continuous", "serve.concurrency=8", "system.devices=1",
    "server=vllm", "uncertainty=on", "uncertainty.samples=32",
)  # fmt: skip


def test_a_served_result_errs_as_its_own_times_do():
    """Each error alone, set to 20%: that per token reaches times per token and rates, not first tokens."""
    kinds = {"serving": ("tpot_s", "time_s", "tokens_per_s", "requests_per_s"), "first_token": ("ttft_s",)}
    every = {name for names in kinds.values() for name in names}
    for work, names in kinds.items():
        others = [text for text in CERTAIN if f".{work}.error" not in text]
        row = fastflow.evaluate(*SERVED, *others, f"uncertainty.model.{work}.error=20%").iloc[0]
        said = Uncertainty(32, 0, {work: ModelError(0.2, 0.0)}, (), ())
        (drawn,) = model_factors(work, ["any"], np.array([0.2]), said)
        for name in sorted(every):
            model = drawn ** BANDED[name] if name in names else np.ones(32)
            expected = [row[name] * naive.percentile(model.tolist(), nth) for nth in (10, 50, 90)]
            assert [row[band] for band in band_of(name)] == pytest.approx(expected, rel=1e-9), (work, name)


def test_first_tokens_are_less_certain_than_further_ones():
    row = fastflow.evaluate(*SERVED).iloc[0]
    first, further = (math.log(row[f"{name}_p90"] / row[f"{name}_p10"]) for name in ("ttft_s", "tpot_s"))
    assert first > 2.0 * further


@pytest.mark.long
def test_the_models_error_is_that_of_the_class_unless_another_is_said():
    exact = [text for text in CERTAIN if ".training." not in text]
    point = ("model=llama3_8b", "system=dgx_h100", "parallel.strategy=TP-1-d8", "uncertainty=on", *exact)
    row = fastflow.evaluate(*point, "uncertainty.samples=16384").iloc[0]
    width = math.log(row["time_s_p90"] / row["time_s_p10"])  # of a normal: two of P90 deviations
    assert width / (2.0 * P90) == pytest.approx(row["typical_error"] * math.sqrt(math.pi / 2.0), rel=0.02)
    own = fastflow.evaluate(*point, "uncertainty.samples=16384", "uncertainty.model.training.error=40%").iloc[
        0
    ]
    assert math.log(own["time_s_p90"] / own["time_s_p10"]) / width == pytest.approx(
        0.4 / row["typical_error"], rel=0.02
    )


def test_a_point_in_no_class_errs_as_others_do():
    exact = [text for text in CERTAIN if ".recurrent." not in text and ".others.error" not in text]
    said = ("uncertainty.model.others.error=30%", "uncertainty.samples=4096")
    row = fastflow.evaluate(*POINT, *exact, *said).iloc[0]
    assert np.isnan(row["typical_error"])
    alone = fastflow.evaluate(*POINT, *CERTAIN, said[1]).iloc[0]  # the figures of the roadmap
    wide, narrow = (math.log(one["time_s_p90"] / one["time_s_p10"]) / (2.0 * P90) for one in (row, alone))
    assert math.sqrt(wide**2 - narrow**2) == pytest.approx(0.3 * math.sqrt(math.pi / 2.0), rel=0.1)


def test_every_family_has_a_kind_of_work():
    assert {one.work for one in FAMILIES.values()} <= set(WORK)


# --- chances


def test_what_two_designs_share_does_not_tell_them_apart():
    """The same chip with a little more power."""
    found = fastflow.probability_better(*POINT, "chip.tdp=300 W,303 W", *CERTAIN)
    assert found.loc[300.0, 303.0] + found.loc[303.0, 300.0] == pytest.approx(1.0)
    assert found.loc[303.0, 300.0] > 0.9  # though their bands overlap almost wholly
    assert found.attrs["reason"] == ["", ""]


def test_what_nothing_tells_apart_has_even_chances():
    found = fastflow.probability_better(
        "tech=n7", "mem=hbm3", POINT[2], "net=xdr_x8", "cost=public,market", *CERTAIN
    )
    assert found.loc["public", "market"] == found.loc["market", "public"] == 0.5


def test_chances_take_any_result_with_bands():
    usd = fastflow.probability_better(*POINT, "cost=public,market", objective="device_usd")
    assert usd.loc["public", "market"] == 1.0
    rate = fastflow.probability_better(*POINT, "tech=n7,n3", objective="compute_flops")
    assert rate.loc["n3", "n7"] > 0.9
    with pytest.raises(InputError, match="objective=mfu is invalid: expected one of time_s"):
        fastflow.probability_better(*POINT, objective="mfu")


def test_chances_are_called_as_what_is_swept():
    one = fastflow.probability_better(*POINT, "uncertainty.samples=16", "chip.tdp=300 W,400 W")
    assert list(one.index) == list(one.columns) == [300.0, 400.0]
    assert one.index.name == "chip.tdp"
    both = fastflow.probability_better("tech=n7,n3", "mem=hbm3,hbm4", *FEW[2:])
    assert both.index.names == both.columns.names == ["tech", "mem"]
    alone = fastflow.probability_better("tech=n7,n3", "mem=hbm4", *FEW[2:])
    assert both.loc[("n3", "hbm4"), ("n7", "hbm4")] == alone.loc["n3", "n7"]


def test_chances_of_a_study_of_single_points_are_called_as_their_points(tmp_path):
    """No key is swept: what differs is in the grids that the study joins."""
    (tmp_path / "sweeps").mkdir()
    (tmp_path / "sweeps" / "two.yaml").write_text(
        "# @package _global_\n"
        "hydra: {sweeper: {union: [{params: {chip.tdp: 300 W}}, {params: {chip.tdp: 303 W}}]}}\n"
    )
    joined = fastflow.probability_better(*FEW, "+sweeps=two", config_dir=tmp_path)
    assert joined.index.name == joined.columns.name == "point"
    assert list(joined.index) == list(joined.columns) == [0, 1]
    swept = fastflow.probability_better(*FEW, "chip.tdp=300 W,303 W")
    np.testing.assert_array_equal(joined, swept)


def test_a_point_that_cannot_be_made_is_in_no_pair_and_keeps_its_reason():
    found = fastflow.probability_better(*FEW, "chip.tdp=1 W,300 W,400 W")
    assert found.loc[1.0].isna().all()
    assert found[1.0].isna().all()
    assert found.loc[300.0, 400.0] + found.loc[400.0, 300.0] == pytest.approx(1.0)
    reason = fastflow.evaluate(*FEW, "chip.tdp=1 W").iloc[0]["reason"]
    assert reason
    assert found.attrs["reason"] == [reason, "", ""]


def test_a_point_that_exceeds_its_memory_is_compared_and_keeps_its_reason():
    found = fastflow.probability_better("tech=n7,n3", "mem=hbm3", "parallel.strategy=d512", *FEW[3:])
    assert found.loc["n3", "n7"] > 0.5
    assert all("of memory a device" in reason for reason in found.attrs["reason"])


def test_a_point_of_a_model_without_tokens_is_in_no_pair():
    models = ("model=lstm_lm,llama3_8b,llama3_70b", "system.devices=64", "parallel.strategy=auto")
    found = fastflow.probability_better("tech=n3", "mem=hbm4", *models, *FEW[3:], objective="token_usd")
    assert found.loc["lstm_lm"].isna().all()
    assert found.attrs["reason"][0] == "has no token_usd"
    assert found.loc["llama3_8b", "llama3_70b"] == 1.0


@pytest.mark.parametrize(
    ("overrides", "objective", "message"),
    [
        (
            ("tech=n7,n5",),
            "token_usd",
            "objective=token_usd is invalid: expected a result of these points, which",
        ),
        (
            ("chip.tdp=1 W,2 W",),
            "time_s",
            "objective=time_s is invalid: expected points that have it, and none",
        ),
        ((), "time_s", "points=1 is invalid: expected two points or more"),
    ],
)
def test_chances_of_nothing_are_refused(overrides, objective, message):
    with pytest.raises(InputError) as error:
        fastflow.probability_better("mem=hbm3", *FEW[2:], *overrides, objective=objective)
    assert str(error.value).startswith(message)


# --- what files say


def test_every_figure_of_a_roadmap_says_how_uncertain_it_is():
    """Those that stand in the file itself; whole numbers, switches and names are no figures."""
    for group, names in ROADMAP.items():
        for name in names:
            text = (library_root() / "conf" / group / f"{name}.yaml").read_text()
            content = {group: yaml.safe_load(text)}
            if group == "scaling":
                content = {group: {node: content[group][node] for node in ("n3", "n2", "n1_4", "n1")}}
            for key, blocks in _figures(content):
                assert key.rpartition(".")[2] in blocks, f"{group}/{name}: {key}"


def _figures(section, above=""):
    blocks = set(section.get("uncertainty", {}))
    for name, value in section.items():
        key = f"{above}.{name}" if above else name
        if name in ("source", "uncertainty", "defaults"):
            continue
        if isinstance(value, dict):
            yield from _figures(value, key)
        elif (column := find_input(key)) is not None and column.kind == "float":
            yield key, blocks


def test_every_price_says_how_uncertain_it_is():
    for group in ("tech", "mem", "net"):
        for file in sorted((library_root() / "conf" / group).glob("*.yaml")):
            content = {group: yaml.safe_load(file.read_text())}
            for key, blocks in _figures(content):
                if key.endswith("price") and not str(_at(content, key)).startswith("0 "):
                    assert key.rpartition(".")[2] in blocks, f"{file.name}: {key}"


def _at(content, key):
    for name in key.split("."):
        content = content[name]
    return content


@pytest.mark.parametrize("group", ["tech", "mem", "net", "cost", "scaling"])
def test_every_block_of_the_library_can_be_read(group):
    names = [file.stem for file in (library_root() / "conf" / group).glob("*.yaml")]
    grid_of(f"{group}={','.join(sorted(names))}", "uncertainty=on")


def test_a_figure_that_is_set_is_exact_unless_something_is_said_of_it():
    assert "mem.price" in distributions(*POINT)[0]
    assert "mem.price" not in distributions(*POINT, "mem.price=12 USD/GB")[0]
    said = distributions(*POINT, "mem.price=12 USD/GB", "mem.uncertainty.price=50%")[0]["mem.price"]
    assert (said.low[0], said.high[0]) == pytest.approx((1.0 / 1.5, 1.5))
    grid = grid_of(*POINT, "mem.price=12 USD/GB,13 USD/GB")
    assert "mem.price" not in {one.key for one in grid.uncertainty.distributions[0]}


def test_a_later_file_that_sets_a_figure_makes_it_exact(tmp_path):
    (tmp_path / "mem").mkdir()
    (tmp_path / "mem" / "mine.yaml").write_text("defaults: [hbm3, _self_]\nprice: 9 USD/GB\n")
    with hydra_rules():
        mine = plan(Composer.of_library(tmp_path), ("mem=mine", "uncertainty=on")).grid.uncertainty
    assert "mem.price" not in {one.key for one in mine.distributions[0]}
    (tmp_path / "mem" / "other.yaml").write_text(
        "defaults: [hbm3, _self_]\nprice: 9 USD/GB\nuncertainty: {price: 8 USD/GB to 12 USD/GB}\n"
    )
    with hydra_rules():
        other = plan(Composer.of_library(tmp_path), ("mem=other", "uncertainty=on")).grid.uncertainty
    (said,) = (one for one in other.distributions[0] if one.key == "mem.price")
    assert (said.low[0], said.high[0]) == pytest.approx((8 / 9, 12 / 9))
    assert "mem/other mem.price" in other.draws


CELL = "tech.memory.cache.cell_area"


@pytest.mark.parametrize(
    "override",
    [
        f"{CELL}=0.05 um2/bit",
        "tech.memory.cache={cell_area: 0.05 um2/bit}",
        f"{CELL}=0.05 um2/bit,0.06 um2/bit",
    ],
)
def test_a_range_of_the_library_is_of_its_own_value_alone(override):
    """That of cells is 0.064 to 0.08: it says nothing of a value that is set after."""
    point = ("tech=n12", "mem=hbm3", POINT[2], "uncertainty=on")
    assert CELL in distributions(*point)[0]
    assert CELL not in distributions(*point, override)[0]


def test_a_range_beside_a_value_that_is_set_holds_it():
    said = "tech.memory.cache.uncertainty.cell_area"
    point = ("tech=n12", "uncertainty=on", f"{CELL}=0.05 um2/bit")
    found = distributions(*point, f"{said}=0.04 um2/bit to 0.06 um2/bit")[0][CELL]
    assert (found.low[0], found.high[0]) == pytest.approx((0.8, 1.2))
    for wrong in ("0.06 um2/bit to 0.08 um2/bit", "some"):
        with pytest.raises(InputError, match=f"{said}={wrong} .*range that holds the value"):
            distributions(*point, f"{said}={wrong}")


def test_a_range_in_a_later_file_holds_the_value_of_the_file_that_it_builds_on(tmp_path):
    (tmp_path / "tech").mkdir()
    start = "defaults: [n12, _self_]\nmemory: {cache: {uncertainty: {cell_area: "
    (tmp_path / "tech" / "wide.yaml").write_text(f"{start}0.05 um2/bit to 0.1 um2/bit}}}}}}\n")
    (tmp_path / "tech" / "wrong.yaml").write_text(f"{start}0.08 um2/bit to 0.1 um2/bit}}}}}}\n")
    (tmp_path / "tech" / "lab.yaml").write_text(
        "defaults: [n12, _self_]\nmemory: {cache: {cell_area: 0.05 um2/bit}}\n"
    )
    with hydra_rules():
        composer = Composer.of_library(tmp_path)
        wide, lab = (plan(composer, (f"tech={name}", "uncertainty=on")).grid for name in ("wide", "lab"))
        with pytest.raises(InputError, match=r"wrong\.yaml.*range that holds the value"):
            plan(composer, ("tech=wrong", "uncertainty=on"))
    (said,) = (one for one in wide.uncertainty.distributions[0] if one.key == CELL)
    assert (said.low[0], said.high[0]) == pytest.approx((5 / 7, 10 / 7))
    assert CELL not in {one.key for one in lab.uncertainty.distributions[0]}


def test_points_of_one_file_share_its_draws():
    grid = grid_of("tech=n7,n5", "uncertainty=on")
    by_key = {one.key: one.draw for one in grid.uncertainty.distributions[0]}
    assert by_key["tech.core.shared_area"][0] == by_key["tech.core.shared_area"][1]  # of n12
    assert by_key["tech.wafer_price"][0] != by_key["tech.wafer_price"][1]


# --- mistakes


@pytest.mark.parametrize(
    ("override", "message"),
    [
        (
            "mem.uncertainty.price=some",
            "mem.uncertainty.price=some: expected a percentage below 100% such as 10%",
        ),
        ("mem.uncertainty.price=120%", "mem.uncertainty.price=120%: expected a percentage below 100%"),
        ("mem.uncertainty.price=100%", "mem.uncertainty.price=100%: expected a percentage below 100%"),
        ("mem.uncertainty.price='1 USD/GB to 2 USD/GB'", "range that holds the value"),
        ("mem.uncertainty.price='1 W to 2 W'", "mem.uncertainty.price=1 W to 2 W: expected a percentage"),
        ("+mem.uncertainty.prize=10%", "mem.uncertainty.prize=10%: expected the uncertainty of a figure"),
        ("+mem.uncertainty.links_per_device=10%", "that is a real number"),
        ("uncertainty.samples=-1", "uncertainty.samples=-1: expected a whole number from 2 to 65,536"),
        ("uncertainty.samples=0", "uncertainty.samples=0: expected a whole number from 2 to 65,536"),
        ("uncertainty.samples=1", "uncertainty.samples=1: expected a whole number from 2 to 65,536"),
        ("~uncertainty.samples", "uncertainty.samples=null: expected a whole number from 2 to 65,536"),
        ("uncertainty.seed=-1", "uncertainty.seed=-1: expected a whole number from 0 to"),
        ("uncertainty.samples=1.5", "uncertainty.samples=1.5: expected a whole number"),
        ("uncertainty.seed=x", "uncertainty.seed=x: expected a whole number"),
        ("uncertainty.model.products.error=2", "uncertainty.model.products.error=2: expected a percentage"),
        ("uncertainty.model.products.error=most", "from 0% to 100%, or auto: that of the point's class"),
        ("uncertainty.model.others.error=auto", "uncertainty.model.others.error=auto: expected a percentage"),
        ("uncertainty.seed=1,2", "expected a single value"),
        ("uncertainty=half", "uncertainty=half: expected one of off, on"),
    ],
)
def test_a_mistake_is_one_line(override, message):
    with pytest.raises(InputError) as error:
        fastflow.evaluate(*POINT, override)
    said = str(error.value).replace(" (from the overrides) is invalid", "")
    assert message in said
    assert "\n" not in said


# --- searches


def test_a_ranking_and_a_front_say_what_cannot_be_told_apart():
    with hydra_rules():
        composer = Composer.of_library(config_name="search")
        asked = (
            "tech=n5,n3",
            "mem=hbm4",
            POINT[2],
            "compare=all",
            "steps=2",
            "starts=2",
            "pareto=device_usd",
        )
        run = plan(composer, (*asked, "uncertainty=on", "uncertainty.samples=16"))
    answer = search_designs(run, read_options(run.first.leaves), None)
    ranks = ranking(answer).to_pandas()
    assert math.isnan(ranks["prob_first_better"][0])
    assert 0.0 <= ranks["prob_first_better"][1] <= 1.0
    edge = front(answer).to_pandas()
    assert edge["prob_on_front"].between(0.0, 1.0).all()
    assert edge["prob_on_front"].max() > 0.0


# --- on the screen


@pytest.mark.long
def test_the_screen_says_how_far_a_point_may_be_off(tmp_path):
    command = [sys.executable, "-m", "fastflow.sweep", *FEW, f"output={tmp_path / 'one'}"]
    wide = {**os.environ, "COLUMNS": "200"}  # else a table of a narrow screen breaks its lines
    found = subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path, env=wide).stdout
    assert "How far it may be off" in found
    assert "of the variance is the model's own error" in found
    grid = [
        sys.executable,
        "-m",
        "fastflow.sweep",
        "-m",
        *FEW[1:],
        "tech=n5,n3",
        f"output={tmp_path / 'grid'}",
    ]
    found = subprocess.run(grid, capture_output=True, text=True, check=True, cwd=tmp_path).stdout
    assert "prob_first_better" in found
    assert "istinguishable from" in found


# --- which uncertainty matters


def test_sobols_indices_vary_figures_as_their_files_say():
    found = fastflow.sensitivity(*POINT, "sensitivity.samples=1024").parameters.set_index("parameter")
    known = found["sobol_total"].dropna()
    assert set(known[known > 0.0].index) <= set(distributions(*POINT)[0])
    assert known.idxmax().startswith("tech.scaling.")
