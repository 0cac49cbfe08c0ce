"""The usual units are read without pint, and as pint reads them."""

import numpy as np
import pytest

from fastflow import units


@pytest.mark.parametrize(
    ("written", "unit"), [(written, unit) for unit, usual in units._USUAL.items() for written in usual]
)
def test_usual_units_are_as_pint_has_them(written, unit):
    rng = np.random.default_rng(0)
    numbers = ["0", "1", "3", "850", "0.05", "123456789012345", "0.1234567890123"]
    for number in [*numbers, *map(str, rng.random(50).round(12)), *map(str, rng.integers(1, 10**9, 50))]:
        text = f"{number} {written}"
        assert units._PLAIN.fullmatch(text), text
        assert units.parse(text, unit) == units._parse(text, unit), text


@pytest.mark.parametrize(
    ("text", "unit", "value"),
    [
        ("1.5 um**2", "m^2", 1.5e-12),
        ("  2 GB ", "B", 2e9),
        ("2e-3 GB", "B", 2e6),
        ("2GB", "B", 2e9),
        ("-3 W", "W", -3.0),
        ("4 mm2 / bit", "m^2/bit", 4e-6),
        ("2 B*GHz", "B/s", 2e9),
        ("8 Gbit", "B", 1e9),
        ("1e3 W", "W", 1e3),
        ("1.5E3 mm2", "m^2", 1.5e-3),
        ("1e-03 s", "s", 1e-3),
    ],
)
def test_all_others_are_left_to_pint(text, unit, value):
    assert units.parse(text, unit) == pytest.approx(value, rel=1e-15)


@pytest.mark.parametrize(
    ("text", "unit", "says"),
    [
        ("5 GB", "s", "no unit for this"),
        ("5 W/bit", "W", "no unit for this"),
        ("5", "W", "no unit given"),
        ("5 wat", "W", "known unit"),
        ("five W", "W", "known unit"),
        ("0123 W", "W", "begins with 0"),
        ("-07.5 W", "W", "begins with 0"),
    ],
)
def test_a_mistake_is_told_by_pint(text, unit, says):
    with pytest.raises(ValueError, match=says):
        units.parse(text, unit)
