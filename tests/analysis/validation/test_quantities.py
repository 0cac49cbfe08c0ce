"""Power and energy in files of measurements: what is read, predicted, printed, left out and refused."""

import numpy as np
import pandas as pd
import pytest

import fastflow
from fastflow.analysis.validation.error_metrics import errors, errors_of, measured_quantities
from fastflow.cli.commands.validate import main
from fastflow.schema.quantities import ENERGY, POWER, TIME
from tests.support.checks import near
from tests.support.commands import report

LONG = ["here,fp16,4096,4096,4096,6e-4", "here,fp16,2048,4096,4096,3e-4", "here,fp16,8192,4096,4096,1e-3"]
SHORT = "here,fp16,16,64,4096,5e-06"
HEAD = "device,dtype,m,k,n,time_s"


@pytest.fixture
def file(tmp_path, monkeypatch):
    """A function from rows and their cells of power to the override that names a file of them."""
    monkeypatch.chdir(tmp_path)

    def write(rows, power=None, columns="power_W", name="some.csv"):
        lines = [HEAD + ("" if power is None else f",{columns}")]
        lines += rows if power is None else [f"{row},{cell}" for row, cell in zip(rows, power, strict=True)]
        (tmp_path / name).write_text("\n".join(lines) + "\n")
        return f"measurements={name}"

    return write


def test_errors_of_power_are_those_of_their_definition():
    """The second row is too short, as is one of 20 us, the third has no power, the fourth no prediction."""
    frame = pd.DataFrame(
        {
            "measured_s": [1e-3, 20e-6, 1e-3, 1e-3, 21e-6],
            "predicted_s": [1.1e-3, 20e-6, 1e-3, 1e-3, 31.5e-6],
            "error": [0.1, 0.0, 0.0, 0.0, 0.5],
            "measured_W": [400.0, 500.0, np.nan, 500.0, 800.0],
            "predicted_W": [100.0, 1.0, 1.0, np.nan, 720.0],
            "bound_by": [*"cdddd"],
            "op": [*"xyxyy"],
        }
    )
    table = errors(frame, ["op"], POWER).set_index(["by", "value"])
    assert table.loc[("all", ""), "rows"] == 2
    assert near(table.loc[("all", ""), "mean_error"], (0.75 + 0.1) / 2, 1e-12)
    assert near(table.loc[("all", ""), "bias"], (0.25 + 0.9) / 2, 1e-12)
    assert table.loc[("error of time", "within 20%"), "rows"] == 1
    assert near(table.loc[("error of time", "within 20%"), "mean_error"], 0.75, 1e-12)
    assert near(table.loc[("op", "y"), "mean_error"], 0.1, 1e-12)
    assert errors(frame, ["op"]).loc[0, "rows"] == 5
    assert measured_quantities(frame) == [TIME, POWER]


def test_sizes_of_power_are_in_watts():
    watts = np.arange(100.0, 900.0, 100.0)
    frame = pd.DataFrame({"measured_s": 1.0, "predicted_s": 1.0, "error": 0.0, "bound_by": "dram",
                          "measured_W": watts, "predicted_W": watts})  # fmt: skip
    table = errors(frame, [], POWER)
    assert table["value"][table["by"] == "measured power"].iloc[0] == "100 W to 275 W"


def test_the_power_of_a_kernel_is_its_energy_over_its_time(file):
    powers = ["400,steady", ",steady", "390.5,steady", "200,steady"]
    found = fastflow.validate(file([*LONG, SHORT], powers, "power_W,meter"), "chip=a100", "model.copies=0")
    rows = found.rows
    assert "power_W" not in rows
    assert rows["measured_W"].tolist() == [400.0, pytest.approx(np.nan, nan_ok=True), 390.5, 200.0]
    for row in rows.itertuples():
        (same,) = fastflow.evaluate(
            "model=gemm", "chip=a100", f"model.m={row.m}", f"model.k={row.k}", f"model.n={row.n}",
            "model.dtype=fp16",
        ).to_dict("records")  # fmt: skip
        assert near(row.predicted_W, same["energy_J"] / same["time_s"], 1e-12)
    known = rows[rows["measured_W"].notna()]
    expected = abs(known["predicted_W"] - known["measured_W"]) / known["measured_W"]
    assert known["error_W"].tolist() == pytest.approx(expected.tolist())
    of_power = errors_of(found.errors, POWER)
    assert of_power["rows"].iloc[0] == 2
    assert near(of_power["mean_error"].iloc[0], rows["error_W"].iloc[[0, 2]].mean())
    assert found.errors["quantity"].iloc[0] == "time"
    assert rows.attrs["units"]["predicted_W"] == "W"
    assert len(errors_of(found.errors, ENERGY)) == 0


def test_a_calls_power_is_over_the_whole_call(file):
    """The device waits while the host prepares the call."""
    alone, call = (
        fastflow.validate(file(LONG, ["400,steady"] * 3, "power_W,meter"), "chip=a100", f"timed={timed}").rows
        for timed in ("kernel", "call")
    )
    energies = [(rows["predicted_W"] * rows["predicted_s"]).tolist() for rows in (alone, call)]
    assert (call["predicted_s"] > alone["predicted_s"]).all()
    assert energies[0] == pytest.approx(energies[1])


def test_each_quantity_has_a_line_and_times_come_first(cli, file):
    code, out, _ = cli(main, file([*LONG, SHORT], [400, 400, 400, 200]), "chip=a100", "output=here")
    assert code == 0
    lines = [line for line in out if "mean relative error" in line]
    rows = pd.read_parquet("here")
    time, power = rows["error"].mean(), rows["error_W"].iloc[:3].mean()
    assert lines[0] == f"mean relative error {time:.1%}"
    assert lines[1].startswith(f"power mean relative error {power:.1%} (3 rows longer than 20 us")
    assert len(lines) == 2
    assert "Worst rows of power, with their times" in out
    assert not any("not used" in line for line in out)
    assert report(["here"]) == 0


def test_kernels_that_are_too_short_have_no_error_of_power(cli, file):
    code, out, _ = cli(main, file([SHORT, SHORT], [200, 210]), "chip=a100", "output=here")
    assert code == 0
    assert "power: no row longer than 20 us has a measured and a predicted one" in out
    assert not any(line.startswith("Worst rows of power") for line in out)
    assert set(pd.read_parquet("here-errors")["quantity"]) == {"time"}


def test_a_file_without_power_has_the_same_times_and_no_column_of_power(file):
    plain, empty, metered = (
        fastflow.validate(file(LONG, power), "chip=a100") for power in (None, [""] * 3, [400] * 3)
    )
    for without in (plain, empty):
        assert not {"measured_W", "predicted_W"} & set(without.rows)
        assert "quantity" not in without.errors
    assert plain.rows["predicted_s"].tolist() == metered.rows["predicted_s"].tolist()
    of_times = errors_of(metered.errors, TIME).drop(columns="quantity").reset_index(drop=True)
    pd.testing.assert_frame_equal(of_times, pd.DataFrame(plain.errors), check_dtype=False)


@pytest.mark.parametrize("cell", ["-5", "0", "much", "1e-4", "1.1e6", "inf", "4_0"])
def test_a_wrong_cell_is_refused_in_one_line(cli, file, tmp_path, cell):
    code, _, err = cli(main, file(LONG, [400, cell, 400]), "chip=a100", "output=here")
    assert code == 2
    (line,) = err
    assert line == (
        f"power_W={cell} (from some.csv, line 3) is invalid: expected power above 0, from 0.001 to 1e+06 W,"
        " or nothing"
    )
    assert not (tmp_path / "here").exists()


def test_a_chip_is_calibrated_to_times_alone(file):
    rows = [f"here,fp16,{m},4096,4096,{m * 1.5e-7}" for m in (512, 1024, 2048, 3072, 4096, 6144, 8192)]
    plain, metered = (
        fastflow.calibrate(file(rows, power), "chip=a100", "fit=utilization")
        for power in (None, range(100, 800, 100))
    )
    pd.testing.assert_frame_equal(metered.scalars, plain.scalars)


@pytest.mark.parametrize(
    ("text", "override"),
    [
        ("ranks,bytes,time_s,power_W\n8,1048576,1e-4,400\n", "system=dgx_a100"),
        (
            "cell,hidden,batch,timesteps,fwd_s,bwd_inputs_s,power_W\nGRU,256,32,10,2e-3,3e-3,200\n",
            "chip=a100",
        ),
    ],
)
def test_kinds_whose_power_nothing_predicts_do_not_use_it(tmp_path, text, override):
    (tmp_path / "other.csv").write_text(text)
    rows = fastflow.validate(f"measurements={tmp_path / 'other.csv'}", override).rows
    assert "measured_W" not in rows
    assert rows["power_W"].notna().all()
    assert "not used: power_W" in rows.attrs["fastflow.said"]


def test_a_whole_iteration_has_the_power_of_one_device(tmp_path):
    (tmp_path / "runs.csv").write_text(
        "model,system.devices,parallel.strategy,time_s,power_W\nlstm_lm,64,d64,10,300\n"
    )
    rows = fastflow.validate(f"measurements={tmp_path / 'runs.csv'}").rows
    (same,) = fastflow.evaluate("model=lstm_lm", "system.devices=64", "parallel.strategy=d64").to_dict(
        "records"
    )
    assert near(rows["predicted_W"].iloc[0], same["energy_J"] / 64 / same["time_s"])


def test_notebooks_and_pages_have_the_errors_of_power(cli, file, tmp_path):
    found = fastflow.validate(file(LONG, [400] * 3), "chip=a100", output="there")
    text = found._repr_html_()
    assert f"power mean relative error {found.rows['error_W'].mean():.1%}" in text
    assert report(["there", f"html={tmp_path / 'page.html'}"]) == 0
    assert "Mean error of power" in (tmp_path / "page.html").read_text(encoding="utf-8")
