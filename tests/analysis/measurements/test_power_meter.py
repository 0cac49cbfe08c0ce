"""Readings of a meter of power against those of a run that is followed in small steps."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fastflow
from fastflow.analysis.measurements.power_meter import MEAN_S, READING_S, Shares, shown_power, shown_shares
from fastflow.core.errors import InputError
from tests.naive.power_meter import readings


@given(st.floats(2e-6, 0.5), st.floats(2e-6, 0.5), st.floats(0.0, 2.0), st.sampled_from([1, 5]))
def test_the_share_that_shows_is_the_mean_of_readings(time, before, pause, copies):
    run, run_before = (min(int(1.0 / (each * copies)) + 1, 3000) * copies * each for each in (time, before))
    expected = readings(run, run_before, pause, READING_S, MEAN_S, 5e-4)
    shares = shown_shares(np.array([time]), np.array([before]), np.array([pause]), copies)
    assert shares.current[0] + shares.previous[0] == pytest.approx(np.mean(expected), abs=0.01)
    alone = readings(run, run_before, 1e3, READING_S, MEAN_S, 5e-4)  # none before
    assert shares.current[0] == pytest.approx(np.mean(alone), abs=0.01)


def test_without_a_rest_all_power_shows_and_after_a_long_one_less_of_short_runs():
    time, rest, power = np.array([5e-6, 5e-5, 5e-4]), np.full(3, 200.0), np.full(3, 1000.0)
    assert shown_power(power, power, rest, shown_shares(time, time, np.zeros(3), 1)) == pytest.approx(power)
    shown = shown_power(power, power, rest, shown_shares(time, time, np.full(3, 2.0), 1))
    assert (shown > rest).all() or shown[0] == rest[0]
    assert (np.diff(shown) > 0.0).all()
    assert shown[-1] < 700.0


def test_longer_runs_before_leave_less_rest():
    time, pause = np.array([2e-5, 2e-5]), np.array([0.05, 0.05])
    shares = shown_shares(time, np.array([2e-5, 4e-4]), pause, 1)
    assert shares.current[0] == shares.current[1]
    assert shares.previous[1] == pytest.approx(0.95)
    assert shares.previous[0] == pytest.approx(0.55, abs=0.02)


def test_runs_before_have_a_power_of_their_own():
    shares = Shares(np.array([0.25]), np.array([0.5]))
    assert shown_power(np.array([600.0]), np.array([1000.0]), np.array([200.0]), shares) == pytest.approx(
        700.0
    )


def rows_of(tmp_path, meter):
    path = tmp_path / "powers.csv"
    head = "device,dtype,m,k,n,time_s,power_W"
    lines = [f"here,{dtype},4096,4096,4096,{time},300" for dtype, time in (("bf16", 2e-4), ("fp8", 1e-4))]
    column, cell = ("", "") if meter is None else (",meter", f",{meter}")
    path.write_text("\n".join([head + column, *(line + cell for line in lines)]) + "\n")
    return fastflow.validate(f"measurements={path}", "chip=h100_sxm").rows


def test_a_file_says_whether_its_meter_had_time(tmp_path):
    assumed, repeated, steady = (rows_of(tmp_path, meter) for meter in (None, "repeated", "steady"))
    assert assumed["predicted_W"].tolist() == repeated["predicted_W"].tolist()
    assert (repeated["predicted_W"] < steady["predicted_W"]).all()
    assert (repeated["predicted_W"] > 0.22 * 700.0).all()
    assert steady["predicted_W"].tolist() == pytest.approx(
        (steady["energy_J"] / steady["predicted_s"]).tolist()
    )


def test_another_meter_is_refused(tmp_path):
    with pytest.raises(InputError, match=r"meter=nvml .*one of repeated, steady"):
        rows_of(tmp_path, "nvml")


def attention(tmp_path, meter, *overrides, keys=4096):
    path = tmp_path / "attention.csv"
    head = "device,phase,batch,q_len,kv_len,heads,kv_heads,head_dim,dtype,time_s,power_W,meter"
    sizes = {"prefill": "4,512,512,16,4,128", "decode": f"8,1,{keys},16,4,128"}
    lines = [f"here,{phase},{size},bf16,3e-5,500,{meter}" for phase, size in sizes.items()]
    path.write_text("\n".join([head, *lines]) + "\n")
    rows = fastflow.validate(f"measurements={path}", "chip=b200_sxm", *overrides).rows
    return rows.set_index("phase")


def attention_powers(tmp_path, meter, *overrides):
    return attention(tmp_path, meter, *overrides)["predicted_W"]


def test_decoding_follows_runs_of_a_sixteenth_of_the_keys(tmp_path):
    shown = attention_powers(tmp_path, "repeated")["decode"]
    row, before = (attention(tmp_path, "steady", keys=keys).loc["decode"] for keys in (4096, 256))
    times = np.array([3e-5]), np.array([before["predicted_s"]])
    shares = shown_shares(*times, np.array([0.15]), 1)
    powers = (np.array([watts]) for watts in (row["predicted_W"], before["predicted_W"], 220.0))
    assert shown == pytest.approx(shown_power(*powers, shares)[0])
