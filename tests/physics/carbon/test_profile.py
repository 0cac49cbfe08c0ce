"""Hourly profiles of the grid: files, means of hours, mistakes."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fastflow
from fastflow.cli.commands.sweep import main
from fastflow.physics.carbon.profile import intensity_of, mean_over, read_profile
from tests.naive import carbon as naive
from tests.support.checks import cases

G_PER_KWH = 1.0 / 1e3 / 3.6e6


def write(folder, values, name="profile.csv", head=""):
    path = folder / name
    path.write_text(head + "".join(f"{value}\n" for value in values))
    return str(path)


@given(st.lists(st.floats(0.0, 1000.0), min_size=24, max_size=24), st.floats(0.0, 1e6), st.floats(100.0, 5e5))
@cases(20)
def test_a_mean_of_hours_is_that_of_small_steps(values, start, duration):
    profile = np.array(values)
    got = mean_over(profile, np.array([start]), np.array([duration]))[0]
    hours = duration / 3600.0
    assert got == pytest.approx(naive.mean_of(values, start, duration), abs=1000.0 * (hours + 2) / 20_000)
    assert profile.min() <= got <= profile.max()


def test_hours_of_a_profile(tmp_path):
    day = write(tmp_path, range(100, 124))
    assert read_profile(day) == pytest.approx(np.arange(100, 124) * G_PER_KWH)
    named = write(
        tmp_path, (f"{hour},{100 + hour},x" for hour in range(24)), "n.csv", "hour,g_per_kwh,note\n"
    )
    headed = write(tmp_path, range(100, 124), "h.csv", "intensity\n")
    assert (read_profile(named) == read_profile(day)).all()
    assert (read_profile(headed) == read_profile(day)).all()
    year = write(tmp_path, [50.0] * 4380 + [150.0] * 4380, "y.csv")
    base = ("tech=n7", "mem=hbm3", "parallel.strategy=d512")
    frame = fastflow.evaluate(*base, f"carbon.profile={day},{year}")
    exact = fastflow.evaluate(*base, "carbon.intensity='111.5 g/kWh','100 g/kWh'")
    np.testing.assert_allclose(frame["operational_g"], exact["operational_g"], rtol=1e-12)
    # from 23:30 for an hour: half an hour each of the last and the first value
    night = fastflow.evaluate(
        *base, f"carbon.profile={day}", "carbon.start='23.5 h'", "carbon.duration='1 h'"
    )
    exact = fastflow.evaluate(*base, "carbon.intensity='111.5 g/kWh'")
    np.testing.assert_allclose(night["operational_g"], exact["operational_g"], rtol=1e-12)
    hours = fastflow.evaluate(
        *base, f"carbon.profile={day}", "carbon.start='0 h','12 h'", "carbon.duration='6 h'"
    )
    assert hours["operational_g"][1] / hours["operational_g"][0] == pytest.approx(114.5 / 102.5, rel=1e-12)
    assert hours["embodied_g"].nunique() == 1


def test_points_of_several_files_have_each_its_own(tmp_path):
    low, high = write(tmp_path, [10] * 24, "a.csv"), write(tmp_path, [20] * 24, "b.csv")
    inputs = {
        "carbon.profile": np.array([low, high, low]), "carbon.intensity": np.array([1.0]),
        "carbon.start": np.array([0.0]), "carbon.duration": np.array([3600.0, 7200.0, 1e5]),
    }  # fmt: skip
    assert intensity_of(inputs) == pytest.approx(np.array([10, 20, 10]) * G_PER_KWH)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "has 0"),
        ("1\n" * 23, "24 or 8,760 values, an hour each; this one has 23"),
        ("1\n" * 23 + "-5\n", "line 24 has -5"),
        ("1\n" * 23 + "much\n", "line 24 has much"),
        ("1\n" * 23 + "nan\n", "line 24 has nan"),
        ("1,2\n" * 24, "one column"),
        ("g_per_kwh,hour\n" + "1,0\n" * 23 + ",23\n", "line 25 has nothing"),
        ("g_per_kwh,g_per_kwh\n" + "1,0\n" * 24, "once"),
        ("\0" * 1_100_000, "at most"),
        (b"\xff\xfe\x00", "comma-separated"),
    ],
)
def test_a_bad_profile_is_one_line(cli, tmp_path, text, says):
    path = tmp_path / "bad.csv"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    code, _, err = cli(main, f"carbon.profile={path}", "output=o")
    assert code == 2
    assert len(err) == 1
    assert err[0].startswith("carbon.profile=")
    assert says in err[0]


def test_a_missing_profile_is_one_line(cli):
    code, _, err = cli(main, "carbon.profile=nowhere.csv", "output=o")
    assert (code, len(err)) == (2, 1)
    assert "carbon.profile=nowhere.csv" in err[0]
