"""Chips calibrated to measurements: planted figures are found, what rows do not say stays as it was."""

import re
from functools import partial

import numpy as np
import pandas as pd
import pytest
import yaml
from hypothesis import assume, event, given
from hypothesis import strategies as st

import fastflow
from fastflow.analysis.calibration import task as calibration_task
from fastflow.analysis.calibration.parameters import bounds_of, chosen_scalars, points_of, times
from fastflow.analysis.calibration.robust_fit import (
    AT_BOUND,
    FITTED,
    NOT_DETERMINED,
    Bounds,
    Fit,
    draw_held_out,
    fit,
)
from fastflow.analysis.calibration.task import LISTS, plan_calibration
from fastflow.analysis.measurements.plan import plan_file
from fastflow.cli.commands.calibrate import main
from fastflow.config.composer import Composer
from fastflow.config.library import hydra_rules
from fastflow.config.list_keys import as_lists
from tests.naive import calibration as naive
from tests.support.checks import cases, near

FLOPS, BYTES_PER_S = 1e14, 1e12
SHARE, TIME = (0.05, 1.0), (1e-8, 1e-3)


def kernels(rows, seed):
    """Operations and bytes of kernels of all intensities, from a microsecond to a tenth of a second."""
    rng = np.random.default_rng(seed)
    flop = 10.0 ** rng.uniform(8, 13, rows)
    return flop, flop / 10.0 ** rng.uniform(0.5, 3.5, rows)


def roofline(flop, size, values):
    """Times under shares of two peaks, and a launch; a fourth scalar says nothing."""
    return np.maximum(flop / (values[0] * FLOPS), size / (values[1] * BYTES_PER_S)) + values[2]


def bounds(*pairs):
    low, high = np.array(pairs).T
    return Bounds(low, high, high == 1.0, np.where(high == TIME[1], 0.0, low))


ALL = bounds(SHARE, SHARE, TIME, SHARE)
TRUE = np.array([0.71, 0.55, 6.5e-6, 0.8])
OWN = np.array([0.95, 0.9, 3e-6, 0.8])


def measure(rows, seed, noise=0.05, true=TRUE):
    flop, size = kernels(rows, seed)
    rng = np.random.default_rng(seed + 1)
    return partial(roofline, flop, size), roofline(flop, size, true) * np.exp(rng.normal(0.0, noise, rows))


def test_planted_figures_are_found_and_what_no_row_depends_on_stays():
    model, measured = measure(600, 3)
    found = fit(model, measured, OWN, ALL)
    assert found.states == [FITTED, FITTED, FITTED, NOT_DETERMINED]
    assert np.allclose(found.figures[:3], TRUE[:3], rtol=0.02)
    assert found.figures[3] == OWN[3]
    assert np.isnan(found.standard_errors[3])
    away = np.abs(found.figures - TRUE)[:3] / found.standard_errors[:3]
    assert (away < 4.0).all()
    assert (found.standard_errors[:3] / TRUE[:3] < 0.02).all()


def test_outliers_move_little():
    model, measured = measure(600, 5)
    without = fit(model, measured, OWN, ALL).figures
    measured[::20] *= 3.0
    assert np.allclose(fit(model, measured, OWN, ALL).figures, without, rtol=0.03)


def test_standard_errors_are_those_of_many_draws():
    draws = [fit(*measure(150, seed), OWN, ALL) for seed in range(0, 80, 2)]
    figures = np.array([draw.figures for draw in draws])[:, :3]
    said = np.median([draw.standard_errors[:3] for draw in draws], axis=0)
    ratio = figures.std(axis=0) / said
    assert ((ratio > 0.6) & (ratio < 1.6)).all()


def test_a_bound_of_physics_holds():
    model, measured = measure(300, 7, true=np.array([1.3, 0.55, 0.0, 0.8]))
    found = fit(model, measured, OWN, ALL)
    assert found.figures[0] == 1.0
    assert found.states[0] == AT_BOUND
    assert np.isnan(found.standard_errors[0])
    assert near(found.figures[1], 0.55, 0.03)
    assert found.figures[2] < 2e-7


def test_rows_that_determine_nothing_leave_everything():
    found = fit(lambda values: np.full(20, 1e-3), np.full(20, 2e-3), OWN, ALL)
    assert found.states == [NOT_DETERMINED] * 4
    assert (found.figures == OWN).all()


@cases(25)
@given(
    true=st.floats(0.1, 0.9),
    own=st.floats(0.1, 0.9),
    noise=st.lists(st.floats(-0.4, 0.4), min_size=12, max_size=25),
)
def test_the_best_scalar_is_that_of_the_definition(true, own, noise):
    flop = np.geomspace(1e9, 1e13, len(noise))

    def predict(value):
        return flop / (value * FLOPS) + 1e-6

    measured = predict(true) * np.exp(noise)
    found = fit(lambda values: predict(values[0]), measured, np.array([own]), bounds(SHARE))
    if found.states == [FITTED]:
        expected = naive.best(lambda value: predict(value).tolist(), measured.tolist(), *SHARE)
        assert near(found.figures[0], expected, 5e-3)


@cases(48)
@given(
    true=st.floats(0.2, 0.6),
    away=st.floats(-0.7, 0.7),
    weight=st.floats(0.01, 0.3),
    noise=st.lists(st.floats(-0.2, 0.2), min_size=8, max_size=30),
)
def test_a_scalar_that_rows_hardly_tell_stays_where_its_own_figure_does_as_well(true, away, weight, noise):
    """Times in which the scalar has a small part, so that its standard error is a few to some 100 percent."""
    rest = np.geomspace(1e-4, 1e-2, len(noise))

    def predict(value):
        return rest * (1.0 + weight * (true / value))

    measured = predict(true) * np.exp(noise)
    own = true * np.exp(away)
    assume(np.std(noise) > 0.01)
    expected = naive.is_determined(lambda value: predict(value).tolist(), measured.tolist(), *SHARE, own)
    found = fit(lambda values: predict(values[0]), measured, np.array([own]), bounds(SHARE))
    assume(found.states != [AT_BOUND])
    event(f"determined: {expected}")
    if expected is not None:
        assert found.states == [FITTED if expected else NOT_DETERMINED]
        assert expected or found.figures[0] == own


@cases(36)
@given(st.lists(st.integers(0, 12), min_size=1, max_size=80), st.integers(0, 3))
def test_rows_of_one_shape_are_held_back_together(numbers, seed):
    groups = np.unique(numbers, return_inverse=True)[1]
    held_out = draw_held_out(groups, 0.2, seed)
    assert held_out.sum() <= round(0.2 * len(numbers))
    assert all(len(set(held_out[groups == group])) == 1 for group in groups)
    assert (held_out == draw_held_out(groups, 0.2, seed)).all()
    if len(set(numbers)) == len(numbers):
        assert held_out.sum() == round(0.2 * len(numbers))


def test_lists_need_no_brackets():
    written = ["fit=a,b", "measurements=x.csv,y.csv", "fit=a", "fit=[a,b]", "mem=a,b"]
    meant = ["fit=[a,b]", "measurements=[x.csv,y.csv]", "fit=a", "fit=[a,b]", "mem=a,b"]
    assert as_lists(written, LISTS) == meant


# --- the chip's own scalars, in the whole model

PLANTED = {"utilization": 0.7, "dram_utilization": 0.6, "launch_overhead": 6.5e-6}
SAYS = ("chip.utilization=0.7", "chip.dram_utilization=0.6", "chip.launch_overhead=6.5us")
NAMED = f"fit={','.join(PLANTED)}"


PROGRESS = re.compile(r"\d+ predictions, \d+ predictions/s")
"""What a fit says every few seconds."""


@pytest.fixture(scope="module")
def planted(tmp_path_factory):
    """A file of GEMMs on a chip whose figures are known, with noise of 5%."""
    rng = np.random.default_rng(11)
    sizes = 64 * rng.integers(1, 96, (240, 3))
    sizes[::3, 0] = rng.integers(1, 16, 80)  # some that main memory limits
    sizes[1::3] = 64 * rng.integers(1, 8, (80, 3))  # and some that launches do
    path = tmp_path_factory.mktemp("planted") / "planted.csv"

    def write(times):
        rows = [
            ",".join(map(str, [*size, repr(float(time))])) for size, time in zip(sizes, times, strict=True)
        ]
        path.write_text("\n".join(["m,n,k,time_s", *rows]) + "\n")

    write(np.ones(240))
    times = fastflow.validate(f"measurements={path}", "chip=a100", *SAYS).rows["predicted_s"].to_numpy()
    write(times * np.exp(rng.normal(0.0, 0.05, 240)))
    return path


@pytest.mark.long
def test_planted_figures_of_a_chip_are_found(planted, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    found = fastflow.calibrate(f"measurements={planted}", "chip=a100", NAMED, output="mine.yaml")
    scalars = found.scalars.set_index("scalar")
    for name, value in PLANTED.items():
        assert near(scalars["after"][name], value, 0.02), name
        assert scalars["state"][name] == FITTED
        assert abs(scalars["after"][name] - value) < 4 * scalars["standard_error"][name]
    fitted, held_out = found.errors.itertuples()
    assert (fitted.rows, held_out.rows) == (192, 48)
    assert held_out.after < 0.06 < held_out.before
    # what is written is what was found, to the bit
    assert found.path.read_text() == found.text
    again = fastflow.validate(f"measurements={planted}", "chip=mine.yaml")
    assert near(again.errors["mean_error"][0], (fitted.after * 192 + held_out.after * 48) / 240, 1e-14)
    before = fastflow.validate(f"measurements={planted}", "chip=a100")
    assert near(before.errors["mean_error"][0], (fitted.before * 192 + held_out.before * 48) / 240, 1e-14)
    content = yaml.safe_load(found.text)
    assert content.pop("defaults") == ["a100", "_self_"]
    assert content["source"].keys() == PLANTED.keys() == content.keys() - {"source"}
    assert content["source"]["utilization"] == (
        f"calibrated: planted.csv, 240 rows, mean relative error {held_out.after:.1%} on a held-back fifth "
        f"({held_out.before:.1%} before)"
    )
    assert content["launch_overhead"].endswith(" us")


@pytest.mark.long
def test_planted_steps_and_power_are_found(tmp_path):
    """Few blocks of long rows, which take their steps, and products that use all the power."""
    rng = np.random.default_rng(3)
    few, large = (1, 4, 4, 64, 256), (4096, 8192, 10240, 12288, 16384)
    sizes = [(16 * rng.choice(few), 64 * rng.choice(few), 256 * rng.integers(4, 64)) for _ in range(40)]
    sizes += [tuple(rng.choice(large, 3)) for _ in range(40)]
    frame = pd.DataFrame(sizes, columns=["m", "n", "k"]).assign(time_s=1.0)
    path = tmp_path / "planted.csv"
    frame.to_csv(path, index=False)
    says = ("chip.step_latency=500 ns", "chip.matrix_power=1.6")
    times = fastflow.validate(f"measurements={path}", "chip=a100", *says).rows["predicted_s"]
    frame.assign(time_s=times).to_csv(path, index=False)
    found = fastflow.calibrate(
        f"measurements={path}", "chip=a100", "fit=step_latency,matrix_power,launch_overhead"
    )
    scalars = found.scalars.set_index("scalar")
    assert scalars["state"].tolist() == [FITTED] * 3
    assert near(scalars["after"]["step_latency"], 500e-9, 0.01)
    assert near(scalars["after"]["matrix_power"], 1.6, 0.01)
    content = yaml.safe_load(found.text)
    assert near(content["matrix_power"], 1.6, 0.01)
    assert content["step_latency"].endswith(" us")


@pytest.mark.long
def test_what_is_at_its_bound_is_named(cli, planted):
    """A clock that is too low: no share of its peak is as fast as the rows."""
    code, out, _ = cli(
        main, f"measurements={planted}", A100, "chip.pinned.core_Hz=700 MHz", "fit=utilization"
    )
    assert code == 0
    named = [line for line in out if line.endswith("is at its bound: the model lacks something there")]
    assert named == ["utilization is at its bound: the model lacks something there"]
    code, out, _ = cli(main, f"measurements={planted}", A100, "fit=utilization", "output=again.yaml")
    assert not any("the model lacks" in line for line in out)


def plan(*overrides):
    with hydra_rules():
        composer = Composer.of_library(config_name="calibrate")
        return plan_calibration(composer, overrides, None)[0]


def test_of_many_rows_some_are_fitted_each_once(planted, monkeypatch):
    monkeypatch.setattr(calibration_task, "MAX_ROWS", 150)
    task = plan(f"measurements={planted}", "chip=a100", "fit=utilization")
    assert (task.fitted.size, task.held_out.sum()) == (150, 48)
    assert (np.diff(task.fitted) > 0).all()
    assert not task.held_out[task.fitted].any()


def test_five_rows_fit_a_scalar_and_a_sixth_is_held_back(planted, tmp_path):
    path = tmp_path / "six.csv"
    path.write_text("".join(planted.read_text().splitlines(keepends=True)[:7]))
    task = plan(f"measurements={path}", "chip=a100", "fit=utilization")
    assert (task.fitted.size, task.held_out.sum()) == (5, 1)


def test_six_scalars_may_be_fitted(planted):
    names = f"{MANY},launch_overhead"
    assert plan(f"measurements={planted}", "chip=a100", f"fit=[{names}]").names == names.split(",")


def test_what_physics_allows_of_a_chips_scalars():
    names = ["utilization", "launch_overhead", "memory.l1.utilization", "step_latency"]
    found = bounds_of([*names, "matrix_power"])
    for got, expected in zip(found, bounds(SHARE, TIME, SHARE, TIME, (0.25, 4.0)), strict=True):
        assert got.tolist() == expected.tolist()


def scalars_by_default(path, rows, chip="chip=a100"):
    with hydra_rules():
        composer = Composer.of_library(config_name="calibrate")
        planned = [plan_file(composer, (f"measurements={path}", chip))]
    return chosen_scalars(planned, points_of(planned, np.arange(rows)), None, "here")


MEMORIES = ["dram_utilization", "memory.l2.utilization", "memory.l1.utilization"]


@pytest.mark.parametrize(("calls", "scalar"), [(4, "launch_overhead"), (5, "call_overhead")])
def test_the_overhead_that_is_fitted_is_that_of_most_rows(tmp_path, calls, scalar):
    rows = [f"{64 * row},64,64,{'call' if row <= calls else 'kernel'},1e-5" for row in range(1, 9)]
    (tmp_path / "some.csv").write_text("\n".join(["m,n,k,timed,time_s", *rows]))
    found = scalars_by_default(tmp_path / "some.csv", 8)
    assert found == ["utilization", *MEMORIES, scalar, "step_latency"]


def test_six_scalars_are_fitted_where_rows_depend_on_seven(tmp_path):
    (tmp_path / "some.csv").write_text("m,n,k,dtype,time_s\n64,64,64,fp16,1e-5\n64,64,64,fp32,1e-5\n")
    found = scalars_by_default(tmp_path / "some.csv", 2)
    assert found == ["utilization", "vector_utilization", *MEMORIES, "launch_overhead"]


def test_a_chip_whose_blocks_have_no_steps_has_none_to_fit(tmp_path):
    (tmp_path / "some.csv").write_text("m,n,k,time_s\n64,64,64,1e-5\n")
    found = scalars_by_default(tmp_path / "some.csv", 1, "chip=v100_sxm")
    assert found == ["utilization", *MEMORIES, "launch_overhead"]


def test_an_operator_says_nothing_of_matrix_units(tmp_path):
    (tmp_path / "some.csv").write_text("rows,cols,dtype,timed,time_s\n64,64,fp16,kernel,1e-5\n")
    found = scalars_by_default(tmp_path / "some.csv", 1)
    assert found == ["vector_utilization", *MEMORIES, "launch_overhead"]


@pytest.mark.long
def test_a_scalar_that_no_row_depends_on_is_left(planted):
    found = fastflow.calibrate(
        f"measurements={planted}", "chip=a100", "fit=[vector_utilization,chip.utilization]"
    )
    scalars = found.scalars.set_index("scalar")
    assert scalars["state"].to_dict() == {"utilization": FITTED, "vector_utilization": NOT_DETERMINED}
    assert scalars["after"]["vector_utilization"] == scalars["before"]["vector_utilization"]
    assert "vector_utilization" not in yaml.safe_load(found.text)
    assert found.path is None


@pytest.mark.long
def test_the_command_prints_and_writes(cli, planted, tmp_path):
    (tmp_path / "own.yaml").write_text("defaults: [a100, _self_]\n")
    asked = (f"measurements={planted}", "chip=own.yaml", "chip.pinned.core_Hz=1.2 GHz", "fit=utilization")
    code, out, err = cli(main, *asked)
    assert (code, err[0]) == (0, "fitting 1 scalar of own.yaml to 192 rows")
    assert all(PROGRESS.fullmatch(line) for line in err[1:]), err  # on a busy machine
    assert out[0] == "240 rows of planted.csv (GEMMs) on own.yaml"
    assert out[-2].startswith("held-back fifth: mean relative error ")
    assert out[-1] == "Chip: own-calibrated.yaml"
    assert any(line.startswith("utilization ") for line in out)
    # what else the command line said of the chip is in its file; both may be used again
    said = out[-2].split()[5]
    content = yaml.safe_load((tmp_path / "own-calibrated.yaml").read_text())
    assert content["pinned"] == {"core_Hz": "1.2 GHz"}
    asked = (f"measurements={planted}", "chip=own-calibrated.yaml", "fit=utilization", "output=third.yaml")
    (tmp_path / "third.yaml").write_text("# A calibration by python -m fastflow.calibrate.\n")
    again = cli(main, *asked)
    assert again[0] == 0
    assert again[1][-2].endswith(f"(before: {said})")
    assert (tmp_path / "third.yaml").read_text().count("calibrated: ") == 1  # in place of the former one
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "own-calibrated.yaml",
        "own.yaml",
        "third.yaml",
    ]


@pytest.fixture
def no_fit(monkeypatch):
    """What is fitted stays as it is."""
    monkeypatch.setattr(
        "fastflow.analysis.calibration.robust_fit.fit",
        lambda model, measured, own, bounds: Fit(own, 0.0 * own, [FITTED] * own.size),
    )


@pytest.mark.long
@pytest.mark.usefixtures("no_fit")
def test_scalars_are_those_that_the_rows_depend_on(tmp_path):
    rng = np.random.default_rng(2)
    text = {"fp16.csv": "dtype,m,n,k,time_s\n", "fp32.csv": "dtype,m,n,k,timed,time_s\n"}
    for name in text:
        timed = "call," if name == "fp32.csv" else ""
        for m, n, k in (64 * rng.integers(1, 64, (45, 3))).tolist():
            text[name] += f"{name[:4]},{m},{n},{k},{timed}{2 * m * n * k / 1e13 + 1e-5}\n"
        (tmp_path / name).write_text(text[name])
    one, other = (str(tmp_path / name) for name in text)
    scalars = {
        files: fastflow.calibrate(f"measurements={files}", "chip=a100").scalars["scalar"].tolist()
        for files in (one, other, f"{one},{other}")
    }
    assert scalars[one] == ["utilization", *MEMORIES, "launch_overhead", "step_latency"]
    assert scalars[other] == ["vector_utilization", *MEMORIES, "call_overhead"]
    assert scalars[f"{one},{other}"] == ["utilization", "vector_utilization", *MEMORIES, "launch_overhead"]


KINDS = {
    "gemms.csv": "m,n,k,op,dtype,time_s\n512,512,512,linear,fp32,1e-5\n64,4096,1024,bmm,fp16,2e-5\n",
    "layers.csv": "cell,hidden,batch,timesteps,fwd_s,bwd_weights_s\nlstm,512,16,25,1,1\ngru,64,8,9,1,\n",
    "operators.csv": "rows,cols,op,dtype,timed,time_s\n4096,999,softmax,fp32,kernel,1\n64,64,,fp32,call,1\n",
    "runs.csv": "model,model.batch,parallel.strategy,time_s\ngemm,1,d1,1\nlstm_lm,64,d2,1\n",
}  # fmt: skip


@pytest.mark.long
def test_rows_of_all_kinds_are_predicted_as_by_a_validation(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with hydra_rules():
        composer = Composer.of_library(config_name="calibrate")
        for name, text in KINDS.items():
            (tmp_path / name).write_text(text)
        planned = [plan_file(composer, (f"measurements={name}", "chip=a100")) for name in KINDS]
    expected = np.concatenate(
        [fastflow.validate(f"measurements={name}", "chip=a100").rows["predicted_s"] for name in KINDS]
    )
    assert not np.isnan(expected).any()
    rows = np.arange(expected.size)
    assert (times(points_of(planned, rows), {}, rows.size) == expected).all()
    some = rows[1::2]
    assert (times(points_of(planned, some), {}, some.size) == expected[some]).all()
    # a scalar in place of the chip's own
    slower = times(points_of(planned, some), {"call_overhead": 1e-3, "launch_overhead": 1e-4}, some.size)
    changed = ("chip.call_overhead=1ms", "chip.launch_overhead=100us")
    again = [fastflow.validate(f"measurements={name}", "chip=a100", *changed) for name in KINDS]
    assert np.allclose(slower, np.concatenate([one.rows["predicted_s"] for one in again])[some], 1e-12)


@pytest.mark.usefixtures("no_fit")
def test_a_chip_keeps_what_else_was_said_of_it(planted, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own.yaml").write_text("defaults: [a100, _self_]\nsource: my own\n")
    said = (f"measurements={planted}", "fit=utilization")
    found = fastflow.calibrate(
        *said, "chip=own.yaml", "chip.pinned=null", "chip.rate.fp32=0.25", output="x.yaml"
    )
    content = yaml.safe_load(found.text)
    again = fastflow.calibrate(*said, "chip=x.yaml")
    assert again.errors["before"].tolist() == found.errors["before"].tolist()
    assert content["pinned"] is None
    assert content["rate"] == {"fp32": 0.25}
    assert content["source"]["rate.fp32"] == "set for the calibration"


FOLDERS = [
    ("guess.yaml", "mine.yaml"),
    ("sub/guess.yaml", "sub/mine.yaml"),
    ("sub/guess.yaml", "mine.yaml"),
    ("guess.yaml", "other/mine.yaml"),
    ("sub/guess.yaml", "other/mine.yaml"),
]


@pytest.mark.usefixtures("no_fit")
@pytest.mark.parametrize(
    ("chip", "output"), [*FOLDERS[1:2], *(pytest.param(*one, marks=pytest.mark.long) for one in FOLDERS)]
)
def test_a_chip_file_is_read_wherever_it_and_its_base_lie(chip, output, planted, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sub").mkdir()
    own = "# my guess\ndefaults: [a100]\nutilization: 0.5\nlaunch_overhead: 7 us\nsource: my own\n"
    (tmp_path / chip).write_text(own)
    asked = (f"measurements={planted}", "fit=dram_utilization")
    found = fastflow.calibrate(*asked, f"chip={chip}", output=output)
    content = yaml.safe_load(found.text)
    assert content["defaults"] == ["a100", "_self_"]
    assert content["source"].keys() == {"default", "dram_utilization"}
    for folder, name in ((tmp_path, output), ((tmp_path / output).parent, (tmp_path / output).name)):
        monkeypatch.chdir(folder)
        with hydra_rules():
            chip = Composer.of_library().compose(["model=gemm", f"chip={name}"])
        assert chip.selected("chip.utilization") == 0.5
        assert chip.selected("chip.launch_overhead") == "7 us"
        assert chip.selected("chip.name").startswith("A100")


@pytest.mark.usefixtures("no_fit")
@pytest.mark.parametrize(
    "text", ["defaults: [_self_, a100]\n", "# @package chip\ndefaults: [a100]\n"], ids=repr
)
def test_a_chip_file_that_cannot_be_copied_is_refused(text, planted, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own.yaml").write_text(text)
    with pytest.raises(fastflow.InputError, match="a file whose defaults list ends with _self_, and without"):
        fastflow.calibrate(f"measurements={planted}", "chip=own.yaml", "fit=utilization")


MANY = "utilization,vector_utilization,dram_utilization,memory.l2.utilization,memory.l1.utilization"
HERE, A100, V100 = "measurements=planted.csv", "chip=a100", "chip=v100_sxm"
MISTAKES = [
    (
        ("measurements=devices.csv", "chip=a100"),
        "device=null (from the overrides) is invalid: expected one of the devices in devices.csv: A, B",
    ),
    (
        (HERE, A100, "fit=dram_utilisation"),
        "fit=dram_utilisation (from the overrides) is invalid: expected one of",
    ),
    ((HERE, A100, "fit=utilization,utilization"), "expected each scalar once"),
    ((HERE, A100, f"fit={MANY},launch_overhead,call_overhead"), "expected at most 6 scalars"),
    ((HERE, A100, "~chip.call_overhead"), "~chip.call_overhead=removed (from the overrides)"),
    ((HERE, A100, "fit=3"), "fit=3 (from the overrides) is invalid: expected null"),
    (("measurements=few.csv", A100), "at least 30 rows to fit 6 scalars, and some rows to hold back"),
    (("measurements=alike.csv", A100, "fit=utilization"), "there are 40 to fit and 0 to hold back"),
    (("measurements=none.csv", A100), "No such file"),
    ((V100,), "measurements=null (from the overrides) is invalid: expected one or more CSV files"),
    ((HERE, V100, "model.dtype=bf16"), "model.dtype=bf16"),
    ((HERE, "chip=a100,v100_sxm"), "chip: one value only; measurements are compared with one configuration"),
    (("measurements=planted.csv,planted.csv", A100), "expected each file once"),
    (
        ("measurements=exchanges.csv", A100),
        "measurements=exchanges.csv (from the overrides) is invalid: expected a",
    ),
    (("measurements=chips.csv",), "expected a file of one chip; this one has a100, v100_sxm"),
    (
        ("measurements=keys.csv",),
        "chip.utilization=0.5 (from keys.csv, line 2) is invalid: expected a key outside the chip",
    ),
    (
        (HERE, A100, "output=some.csv"),
        "output=some.csv is invalid: expected a file on this machine, NAME.yaml",
    ),
    ((HERE, A100, "output=some.yaml"), "this file is neither"),
    ((HERE, "chip=some.yaml", "output=some.yaml"), "expected a file that chip some.yaml does not use itself"),
]  # fmt: skip


@pytest.fixture
def files(planted, tmp_path):
    """Files of all kinds in a folder of their own: name to content."""
    lines = planted.read_text().splitlines(keepends=True)
    found = {
        "planted.csv": "".join(lines),
        "few.csv": "".join(lines[:13]),
        "alike.csv": "m,n,k,time_s\n" + "512,512,512,1e-5\n" * 40,
        "exchanges.csv": "ranks,bytes,time_s\n" + "2,1048576,1e-5\n" * 30,
        "chips.csv": "chip,model,time_s\n" + "a100,gemm,1e-3\nv100_sxm,gemm,1e-3\n",
        "keys.csv": "chip.utilization,model,time_s\n" + "0.5,gemm,1e-3\n",
        "devices.csv": "device,m,n,k,time_s\n" + "A,64,64,64,1e-5\nB,64,64,64,1e-5\n" * 30,
        "some.yaml": "defaults: [a100, _self_]\n",
    }
    for name, text in found.items():
        (tmp_path / name).write_text(text)
    return found


@pytest.mark.parametrize(("overrides", "says"), MISTAKES, ids=[says for _, says in MISTAKES])
def test_what_is_wrong_is_said(monkeypatch, files, tmp_path, overrides, says):
    monkeypatch.chdir(tmp_path)
    given_ = [text for text in overrides if not text.startswith("output=")]
    output = next((text.removeprefix("output=") for text in overrides if text not in given_), "new/mine.yaml")
    with pytest.raises(fastflow.InputError) as caught:
        fastflow.calibrate(*given_, output=output)
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == files


COMMANDS = [
    ((HERE, A100, "fit=so"), "fit=so (from the command line) is invalid: expected one of utilization"),
    (
        (HERE, A100, "output=null"),
        "output=null (from the command line) is invalid: expected a file, NAME.yaml",
    ),
    (("-m", HERE, A100, "model.batch=1,2"), "without -m"),
]


@pytest.mark.long
@pytest.mark.parametrize(("arguments", "says"), COMMANDS, ids=[says for _, says in COMMANDS])
def test_a_mistake_is_one_line_and_leaves_nothing(cli, files, tmp_path, arguments, says):
    code, out, err = cli(main, *arguments)
    assert (code, out, len(err)) == (2, [], 1)
    assert says in err[0]
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == files


def test_a_fit_that_is_cut_short_leaves_nothing(cli, files, tmp_path, monkeypatch):
    def stopped(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("fastflow.analysis.calibration.robust_fit.fit", stopped)
    code, _, err = cli(main, HERE, A100, "output=new/mine.yaml")
    assert (code, err[-1]) == (130, "interrupted; no file is left")
    assert {path.name for path in tmp_path.iterdir()} == files.keys()
