"""What devices ran before the collector's cases: against an oracle that takes a step at a time."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fastflow
from fastflow.analysis.measurements.collector_queue import (
    Waits,
    left_in_readings,
    left_of_others,
    schedule_cases,
)
from fastflow.analysis.measurements.power_meter import MEAN_S, READING_S, READINGS, shown_after
from tests.naive import collector_queue as naive

TIMES = st.floats(1e-3, 1.5)


@settings(max_examples=30)
@given(
    st.lists(st.tuples(TIMES, st.floats(1e-3, 0.2), st.floats(0.0, 800.0)), max_size=20), st.floats(0.0, 0.5)
)
def test_cases_are_dealt_as_the_oracle_deals_them(cases, pause):
    run, writing, more = (
        (np.array(column) for column in zip(*cases, strict=True)) if cases else np.zeros((3, 0))
    )
    schedule = schedule_cases(run, pause, writing)
    expected = naive.deal(run.tolist(), pause, writing.tolist())
    assert list(zip(schedule.device.tolist(), schedule.start.tolist(), strict=True)) == expected
    left = left_in_readings(schedule, run, more)
    assert left.shape == (run.size, READINGS)
    watts = naive.left_in_readings(expected, run.tolist(), more.tolist(), READING_S, MEAN_S, 5e-3)
    for row, of_row in zip(left, watts, strict=True):
        assert row == pytest.approx(of_row, abs=20.0)


def test_first_cases_follow_nothing_and_long_ones_fill_the_readings_of_the_next():
    run, more = np.linspace(5.0, 6.0, 24), np.full(24, 300.0)
    left = left_of_others(run, more, Waits(pause=1e-3, disk=1e-3))
    assert (left[:8] == 0.0).all()
    assert left[8:, 0] == pytest.approx(300.0, rel=0.1)
    assert (np.diff(left[8:], axis=1) < 0.0).all()


def test_a_slow_disk_leaves_less_of_the_runs_before():
    run, more = np.full(80, 0.1), np.full(80, 300.0)
    quick, slow = (left_of_others(run, more, Waits(0.05, disk)).mean() for disk in (0.001, 0.2))
    assert quick > 2.0 * slow > 0.0


def prompts(tmp_path, *sizes, meter="repeated"):
    path = tmp_path / "latent.csv"
    head = "device,phase,batch,q_len,kv_len,heads,dtype,kv_dtype,time_s,power_W,meter"
    lines = [f"here,prefill,{b},{n},{n},{heads},bf16,{kv},3e-5,500,{meter}" for b, n, heads, kv in sizes]
    path.write_text("\n".join([head, *lines]) + "\n")
    return fastflow.validate(f"measurements={path}", "chip=b200_sxm").rows["predicted_W"].tolist()


def test_prompts_of_latent_attention_follow_the_cases_before(tmp_path):
    # the first case follows none; one prompt follows the most prompts of shorter ones
    sizes = [(1, 1, 128, "bf16"), (1, 1536, 128, "bf16"), (8, 1024, 1, "bf16"), (1, 1536, 2, "fp8")]
    first, single, several, next_case = prompts(tmp_path, *sizes)
    assert first == pytest.approx(220.0)
    assert single > several > first
    other_size = prompts(tmp_path, (65, 1024, 128, "bf16"), (1, 1536, 2, "fp8"))
    assert other_size == pytest.approx([single, next_case], abs=1.0)
    assert min(prompts(tmp_path, *sizes, meter="steady")) > 300.0


def test_readings_have_the_runs_before_and_the_run():
    power, rest, left = np.array([700.0]), np.array([200.0]), np.full((1, READINGS), 50.0)
    # two readings: at the start, and with a tenth of the run
    shown = shown_after(power, rest, np.array([0.05]), left, np.array([0.15]))
    assert shown == pytest.approx([200.0 + 25.0 + 50.0])
    # of eleven readings, the last has nothing from before
    assert shown_after(power, rest, np.zeros(1), left, np.ones(1)) == pytest.approx([200.0 + 500.0 / 11])
