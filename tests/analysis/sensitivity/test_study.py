"""Sensitivities: differences against analytic cases, Sobol's G function, kinks, seeds, mistakes."""

import numpy as np
import pandas as pd
import pytest
from matplotlib.container import ErrorbarContainer

import fastflow
from fastflow.analysis.sensitivity.elasticity import elasticities, perturb
from fastflow.analysis.sensitivity.parameters import Parameter, parameters_of
from fastflow.analysis.sensitivity.sobol import rows_per_matrix, sobol
from fastflow.analysis.sensitivity.study import Sensitivity, read_options
from fastflow.cli.commands.report import main as report
from fastflow.cli.commands.sensitivity import main as command
from fastflow.config.composer import Composer
from fastflow.config.library import hydra_rules
from fastflow.core.errors import InputError
from fastflow.engine.run.monte_carlo import with_samples
from fastflow.reporting.charts.sensitivity import draw, important_parameters
from fastflow.reporting.terminal.sensitivity import show
from tests.conftest import columns_of

POINT = ("tech=n7", "mem=hbm3")
MEMORY_BOUND = (
    "chip=h100_sxm", "model=gemm", "model.m=1", "model.n=16384", "model.k=16384", "chip.launch_overhead=0 us",
    "chip.step_latency=0 ns", "mem.latency=0 ns", "tech.memory.cache.latency=0 ns",
    "tech.memory.scratchpad.latency=0 ns", "tech.memory.registers.latency=0 ns",
)  # fmt: skip


@pytest.fixture(scope="module")
def found():
    return fastflow.sensitivity(*POINT)


def of(found, figure):
    (row,) = found.parameters[found.parameters["parameter"].eq(figure)].to_dict("records")
    return row


# --- one at a time


def answers(inputs, figures, evaluate, objective, step):
    return elasticities(evaluate(perturb(inputs, figures, step)), figures, objective, step)


@pytest.mark.parametrize("power", [-1.0, 0.5, 2.0])
def test_a_power_law_has_its_power(power):
    inputs = {"x": np.array([3.0]), "y": np.array([7.0])}
    figures = [Parameter("x", 3.0, ""), Parameter("y", 7.0, "")]

    def evaluate(columns):
        return {"f": 5.0 * columns["x"] ** power, "reason": np.full(columns["x"].size, "")}

    first, second = answers(inputs, figures, evaluate, "f", 0.05)
    assert (first.left, first.right, first.both) == pytest.approx((power, power, power), abs=1e-12)
    assert (second.both, second.insensitive, second.nonlinearity) == (0.0, True, "")


def test_both_sides_of_a_kink_are_told_apart():
    """A roofline at its ridge: more bandwidth changes nothing, less is as much slower."""

    def evaluate(columns):
        time = np.maximum(1.0, 1.0 / columns["bandwidth"])
        limiter = np.where(columns["bandwidth"] < 1.0, "dram", "compute")
        return {"time_s": time, "bound_by": limiter, "reason": np.full(time.size, "")}

    inputs = {"bandwidth": np.array([1.0])}
    (one,) = answers(inputs, [Parameter("bandwidth", 1.0, "B/s")], evaluate, "time_s", 0.01)
    assert (one.left, one.right) == pytest.approx((-1.0, 0.0))
    assert one.nonlinearity == "limiter: dram to compute"


def whole(columns):
    """Time follows stacks of memory, which come whole; units of compute follow the area."""
    stacks = np.floor(4.0 - 10.0 * np.abs(columns["area"] - 1.0))
    reason = np.full(stacks.size, "")
    units = np.rint(2168.0 * columns["area"]).astype(int)
    return {"f": 1.0 / stacks, "mcus": units, "dram_devices": stacks.astype(int), "reason": reason}


def test_a_kink_names_the_units_that_make_it():
    (one,) = answers({"area": np.array([1.0])}, [Parameter("area", 1.0, "m^2")], whole, "f", 0.05)
    assert one.nonlinearity == "whole units: 3 to 4 to 3 dram_devices"


def test_a_figure_whose_sides_cancel_is_not_flat():
    (one,) = answers({"area": np.array([1.0])}, [Parameter("area", 1.0, "m^2")], whole, "f", 0.05)
    assert abs(one.both) < 0.1 < min(abs(one.left), abs(one.right))
    assert not one.insensitive


def test_a_curve_without_uneven_units_is_curved():
    def evaluate(columns):
        curve = np.exp((columns["area"] - 0.5) ** 2 * 10.0)
        return {**whole(columns), "f": curve, "dram_devices": np.full(curve.size, 4)}

    (one,) = answers({"area": np.array([1.0])}, [Parameter("area", 1.0, "m^2")], evaluate, "f", 0.2)
    assert one.nonlinearity == "curved"


def test_units_of_the_engine_that_make_a_kink():
    found = fastflow.sensitivity("tech=n5", "mem=hbm3", "objective=device_usd")
    assert of(found, "chip.die_area")["nonlinearity"] == "whole units: 3 to 4 to 3 dram_devices"


def test_one_side_alone_and_none():
    def evaluate(columns):
        bad = columns["x"] > 2.0
        reasons = {"short_reason": np.where(bad, "too much", ""), "reason_code": np.where(bad, "load", "")}
        return {"f": np.where(bad, np.nan, columns["x"]), **reasons}

    def asked(value, high=np.inf):
        figure = Parameter("x", value, "", high)
        return answers({"x": np.array([value])}, [figure], evaluate, "f", 0.05)[0]

    assert asked(2.0).both == pytest.approx(1.0)
    assert asked(2.0).nonlinearity == "less alone: too much"
    assert asked(1.0, high=1.0).nonlinearity == "less alone: at most 1"
    ends = 1.0 * (1.0 + 0.05)  # a step up to the bound is within it
    assert (asked(1.0, high=ends).nonlinearity, asked(1.0, high=ends).right) == ("", pytest.approx(1.0))
    assert asked(1.0, high=np.nextafter(ends, 0.0)).nonlinearity == "less alone: at most 1.05"
    assert (asked(0.0).reason, asked(0.0).reason_code) == ("is 0", "zero")
    assert (asked(5.0).reason, asked(5.0).reason_code) == ("too much", "load")


def test_a_memory_bound_product_hangs_on_its_bandwidth():
    found = fastflow.sensitivity(*MEMORY_BOUND)
    row = of(found, "chip.pinned.dram_Bps")
    assert row["elasticity"] == pytest.approx(-1.0, abs=1e-3)
    assert of(found, "chip.dram_utilization")["elasticity"] == pytest.approx(-1.0, abs=1e-3)
    assert of(found, "chip.pinned.core_Hz")["insensitive"]


def test_every_figure_has_an_elasticity_or_a_reason(found):
    rows = found.parameters
    assert 120 < len(rows) < 200
    assert rows["parameter"].is_unique
    assert (rows["elasticity"].isna() == rows["reason"].ne("")).all()
    assert not {"chip.mcus_per_bundle", "model.batch", "tech.name"} & set(rows["parameter"])
    magnitude = rows[["elasticity_minus", "elasticity_plus"]].abs().max(axis=1).fillna(-1.0)
    assert magnitude.is_monotonic_decreasing
    assert rows["insensitive"].equals(magnitude.between(0.0, 0.001, inclusive="left"))


def test_it_agrees_with_two_evaluations(found):
    base = found.value
    for key, unit in (("tech.core.nominal_frequency", "Hz"), ("net.inter.nominal_frequency", "bit/s")):
        row = of(found, key)
        less, more = fastflow.evaluate(
            *POINT, f"{key}={row['parameter_value'] * 0.95} {unit},{row['parameter_value'] * 1.05} {unit}"
        )["time_s"]
        assert row["elasticity_minus"] == pytest.approx(np.log(less / base) / np.log(0.95), rel=1e-6)
        assert row["elasticity_plus"] == pytest.approx(np.log(more / base) / np.log(1.05), rel=1e-6)


def test_a_fixed_strategy_is_kept():
    auto = ("tech=n7", "mem=hbm3", "parallel.strategy=auto")
    best, fixed = (fastflow.sensitivity(*auto, f"sensitivity.strategy={how}") for how in ("best", "fixed"))
    assert best.value == fixed.value
    both = best.parameters.merge(fixed.parameters, on="parameter")
    # choosing again is never worse than keeping
    gains = both["elasticity_plus_x"] - both["elasticity_plus_y"]
    assert gains.max() <= 1e-6
    assert not fixed.parameters["nonlinearity"].str.startswith("strategy").any()


def test_the_strategy_of_a_change_is_the_best_of_all(found):
    """A few candidates do: what is best of all strategies is among them."""
    auto = ("tech=n7", "mem=hbm3", "parallel.strategy=auto")
    got = fastflow.sensitivity(*auto)
    for key in ("net.inter.maximum_voltage", "chip.area.core", "mem.nominal_frequency"):
        row = of(got, key)
        values = ",".join(str(row["parameter_value"] * factor) + " " + row["unit"] for factor in (0.95, 1.05))
        less, more = fastflow.evaluate(*auto, f"{key}={values.replace(' ,', ',').strip()}")["time_s"]
        assert row["elasticity_minus"] == pytest.approx(np.log(less / got.value) / np.log(0.95), rel=1e-6)
        assert row["elasticity_plus"] == pytest.approx(np.log(more / got.value) / np.log(1.05), rel=1e-6)


def test_of_what_serves():
    found = fastflow.sensitivity(
        "chip=h100_sxm", "model=llama3_8b", "serve=decode", "objective=tpot_s", "sensitivity.strategy=fixed"
    )
    assert of(found, "chip.pinned.dram_Bps")["elasticity"] < -0.1


# --- all at once


def g_function(weights):
    """Sobol's G function, and its first-order and total indices (Saltelli et al., 2010)."""
    weights = np.asarray(weights, dtype=float)
    own = 1.0 / 3.0 / (1.0 + weights) ** 2
    whole = np.prod(1.0 + own) - 1.0
    total = own * np.prod(1.0 + own) / (1.0 + own)
    return (
        lambda x: np.prod((np.abs(4.0 * x - 2.0) + weights) / (1.0 + weights), axis=1),
        own / whole,
        total / whole,
    )


def test_indices_of_the_g_function():
    function, first, total = g_function([0.0, 1.0, 4.5, 9.0, 99.0])
    got = sobol(function, 5, 2**15, 0)
    assert got.first == pytest.approx(first, abs=0.01)
    assert got.total == pytest.approx(total, abs=0.01)
    assert (np.abs(got.first - first) <= 3.0 * got.first_error + 1e-3).all()
    assert got.failed == 0


def test_a_seed_gives_the_same_to_the_bit():
    function, _, _ = g_function([0.0, 1.0, 9.0])
    once, again, other = (sobol(function, 3, 1024, seed) for seed in (1, 1, 2))
    for one, two in zip(once[:4], again[:4], strict=True):
        assert one.tobytes() == two.tobytes()
    assert once.first.tobytes() != other.first.tobytes()


@pytest.mark.parametrize(("samples", "variables"), [(65536, 85), (100, 3), (1, 5), (2**15, 5)])
def test_no_more_points_than_asked(samples, variables):
    asked = []
    rows = rows_per_matrix(samples, variables)
    assert rows & (rows - 1) == 0
    sobol(lambda x: asked.append(len(x)) or x.sum(axis=1), variables, samples, 0)
    assert asked == [max(rows, 2) * (variables + 2)]
    assert rows == 1 or asked[0] <= samples


def test_points_without_a_result_are_counted():
    got = sobol(lambda x: np.where(x[:, 0] < 0.1, np.nan, x[:, 1]), 2, 512, 0)
    assert got.failed > 20
    assert np.isfinite(got.first).all()


def test_shares_stay_within_the_whole(compose):
    point = columns_of([compose(*POINT)])
    figures = parameters_of(point)
    columns = with_samples(point, {one.key: np.full((1, 3), 1.2 * one.value) for one in figures}, 1, 3)
    for budget in ("chip.area.", "chip.power.", "chip.perimeter."):
        total = sum(column for key, column in columns.items() if key.startswith(budget))
        assert (total <= 1.0 + 1e-12).all()
    assert (columns["chip.utilization"] <= 1.0).all()
    assert columns["mem.nominal_frequency"] == pytest.approx(1.2 * point["mem.nominal_frequency"][0])


def test_indices_of_the_engine_are_the_same_again(tmp_path):
    asked = (*POINT, "sensitivity.samples=4480", "sensitivity.seed=3")
    once, again = (
        fastflow.sensitivity(*asked, output=tmp_path / "a"),
        fastflow.sensitivity(*asked, "engine.jobs=1"),
    )
    pd.testing.assert_frame_equal(once.parameters, again.parameters)
    stored = pd.read_parquet(tmp_path / "a")
    assert {"parameter", "elasticity", "sobol_first", "sobol_total"} <= set(stored)
    assert once.failed == 0
    assert stored["sobol_total"].notna().sum() > 80


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("objective=happiness", r"objective=happiness .*a numeric result column"),
        ("objective=tokens_per_sec", r"a numeric result column .*did you mean tokens_per_s\?"),
        ("objective=bound_by", r"objective=bound_by .*a numeric result column"),
        ("objective=tpot_s", r"objective=tpot_s \(from the overrides\) .*that this point has"),
        ("sensitivity.step=0", r"sensitivity\.step=0 .*above 0 and below 1"),
        ("sensitivity.samples=-1", r"sensitivity\.samples=-1 .*whole number from 0"),
        ("sensitivity.samples=10", r"sensitivity\.samples=10 \(from the overrides\) .*at least 4,480 "),
        ("sensitivity.samples=4287", r"sensitivity\.samples=4287 "),
        ("sensitivity.strategy=some", r"sensitivity\.strategy=some .*one of best, fixed"),
        ("tech=n7,n5", r"tech=several values .*one point"),
        ("chip.power.core=0", r"^core has no room.*: this point has no time_s"),
    ],
)
def test_mistakes(override, message):
    with pytest.raises(InputError, match=message):
        fastflow.sensitivity(*POINT[1:], override)


def test_the_reason_of_a_point_without_a_time_comes_first():
    asked = ("model=llama3_8b", "system=dgx_h100", "objective=tokens_per_s")
    with pytest.raises(InputError, match=r"^parallel\.strategy=TP-2-d32 .*this point has no tokens_per_s$"):
        fastflow.sensitivity(*asked)


# --- table and figure

KINK = "whole units: 3 to 4 to 3 dram_devices"


@pytest.fixture
def rows():
    """30 figures that move a result, one that hardly does and takes part in much, and one that is flat."""
    sides = np.array([*np.linspace(2.0, 0.5, 30), 0.005, 0.0])
    share = np.where(sides == 0.005, 0.25, 0.001)
    share[[0, 3]] = np.nan
    frame = pd.DataFrame(
        {
            "parameter": [f"tech.memory.registers.figure_{place}" for place in range(sides.size)],
            "parameter_value": 1.0, "unit": "J/bit", "elasticity": -sides, "elasticity_minus": -sides,
            "elasticity_plus": -0.9 * sides, "nonlinearity": "", "insensitive": sides == 0.0,
            "sobol_first": 0.8 * share,
            "sobol_first_error": 0.01, "sobol_total": share, "sobol_total_error": 0.02, "reason": "",
        }
    )  # fmt: skip
    frame.loc[0, ["elasticity", "elasticity_plus", "nonlinearity"]] = [0.0, 1.5, KINK]
    frame.attrs["step"] = 0.05
    return frame


def test_what_takes_part_in_the_variance_is_listed(rows):
    assert list(important_parameters(rows, 20).index) == [*range(20), 30]
    assert list(important_parameters(rows).index) == [*range(30), 30]
    alone = rows.drop(columns=[name for name in rows if name.startswith("sobol")])
    assert list(important_parameters(alone).index) == list(range(30))


def test_the_table_cuts_nothing(rows, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "120")
    show(Sensitivity(rows, "time_s", 1.0, 4096, 0))
    said = capsys.readouterr().out
    assert max(map(len, said.splitlines())) <= 120
    lines = said.splitlines()
    (start,) = [place for place, line in enumerate(lines) if "figure_0 " in line]
    end = next(place for place, line in enumerate(lines) if "figure_1 " in line)
    edge = next(line for line in lines if " nonlinearity" in line).index("nonlinearity")
    assert " ".join(line[edge:].strip() for line in lines[start:end]) == KINK
    assert "tech.memory.registers.figure_30" in said
    assert "and 6 more (dataset)" in said


def test_both_panels_of_the_figure_have_the_same_rows(rows):
    picture = draw(rows, "time_s", 1.173)
    left, right = picture.axes
    assert left.get_ylim() == right.get_ylim()
    longest = max(right.containers[0], key=lambda bar: np.nan_to_num(bar.get_width()))
    assert (
        left.get_yticklabels()[round(longest.get_y() + longest.get_height() / 2)].get_text().endswith("_30")
    )
    whole, part = (one for one in right.containers if isinstance(one, ErrorbarContainer))
    assert whole.has_xerr
    assert part.has_xerr
    ends = whole.lines[2][0].get_segments()[0][:, 0]  # of the lowest row
    assert ends == pytest.approx([0.23, 0.27])
    for legend in picture.legends:
        assert picture.bbox.contains(*legend.get_window_extent().p0)
        assert len(legend.get_texts()) == 2
    about = " ".join(text.get_text() for text in picture.texts)
    assert "time_s (1.17 s) per 1%" in about
    assert "changed by 5% (sensitivity.step)" in about


def test_bars_on_one_side_both_show(rows):
    left = draw(rows, "time_s", 1.173).axes[0]
    top = [bar for bar in left.patches if round(bar.get_y() + bar.get_height() / 2) == 20]
    longer, shorter = sorted(top, key=lambda bar: -bar.get_width())
    assert (longer.get_width(), shorter.get_width()) == (2.0, 1.5)
    assert shorter.get_height() < longer.get_height()
    assert shorter.get_zorder() > longer.get_zorder()


def test_a_figure_of_nothing_that_moves_the_result(rows):
    still = rows[rows["insensitive"]]
    assert important_parameters(still).empty
    assert not [bar for axes in draw(still, "time_s", 1.0).axes for bar in axes.patches]


# --- the command


def test_another_dataset_is_not_replaced(cli, tmp_path):
    """A grid was lost that way."""
    fastflow.sweep("model=gemm", "model.m=64,128", output="mine")
    before = (tmp_path / "mine" / "part-00000.parquet").read_bytes()
    code, out, err = cli(command, *POINT, "output=mine")
    assert (code, out, len(err)) == (2, [], 1)
    assert "mine holds part-00000.parquet from something else" in err[0]
    with pytest.raises(InputError, match="from something else"):
        fastflow.sensitivity(*POINT, output="mine")
    assert (tmp_path / "mine" / "part-00000.parquet").read_bytes() == before


@pytest.mark.long
def test_a_report_is_what_the_command_said(cli, tmp_path):
    """And a sensitivity takes the place of an earlier one."""
    fastflow.sensitivity("tech=n5", "mem=hbm3", output="mine")
    code, out, _ = cli(command, *POINT, "sensitivity.samples=4480", "output=mine")
    assert code == 0
    drawn = (tmp_path / "mine-sensitivity.svg").read_bytes()
    assert cli(report, "mine", "--figures", ".")[:2] == (0, out)
    assert (tmp_path / "mine-sensitivity.svg").read_bytes() == drawn
    assert any(line.startswith("Sobol's indices from") for line in out)


def test_an_output_that_is_a_url_has_its_interpolations_resolved(tmp_path):
    composer = Composer.of_library(config_name="sensitivity")
    asked = f"output=file://{tmp_path}/${{model.name}}-${{objective}}"
    with hydra_rules():
        options = read_options(composer, [*POINT, asked])
    assert options.output == options.run.output == f"file://{tmp_path}/lstm_lm-time_s"
