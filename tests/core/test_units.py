"""Units are read as pint reads them, the usual ones without it; quantities are written as people say them."""

import re
from importlib import import_module
from itertools import chain
from pkgutil import iter_modules

import numpy as np
import pytest

from fastflow import schema as columns
from fastflow.analysis.search.optimizers.objective import OBJECTIVES
from fastflow.core import units
from fastflow.core.field import Column


@pytest.mark.parametrize(
    ("written", "unit"), [(written, unit) for unit, usual in units._COMMON_UNITS.items() for written in usual]
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


OF_TOKENS = ("USD/token", "g/token")


SAID = {
    "s": "ps ns us ms s min h days years", "J": "pJ nJ uJ mJ J kJ kWh MWh GWh TWh",
    "J/bit": "fJ/bit pJ/bit nJ/bit uJ/bit mJ/bit J/bit", "J/B": "fJ/B pJ/B nJ/B uJ/B mJ/B J/B",
    "W": "pW nW uW mW W kW MW GW",
    "W/bit": "fW/bit pW/bit nW/bit uW/bit mW/bit W/bit", "V": "mV V kV", "Hz": "Hz kHz MHz GHz THz",
    "m": "nm um mm m km", "1/m": "/mm", "m^2": "mm²", "m^2/bit": "µm²/bit", "1/m^2": "/cm²", "1/s": "/s",
    "1/(s MW)": "/s/MW",
    "B": "B kB MB GB TB PB EB", "B/s": "B/s kB/s MB/s GB/s TB/s PB/s EB/s",
    "bit/s": "bit/s kbit/s Mbit/s Gbit/s Tbit/s Pbit/s",
    "flop": "flop kflop Mflop Gflop Tflop Pflop Eflop Zflop",
    "flop/s": "flop/s kflop/s Mflop/s Gflop/s Tflop/s Pflop/s Eflop/s Zflop/s", "flop/B": "flop/B",
    "USD": "USD", "USD/B": "USD/GB", "USD/W": "USD/W", "USD/J": "USD/kWh", "USD s/B": "USD/(GB/s)",
    "USD/token": "USD/M tokens", "J s": "J s", "s m^2": "s mm²", "s USD": "s USD", "": "",
    "g": "ug mg g kg t", "kg": "g kg t kt", "g/token": "g/M tokens", "kg/J": "g/kWh", "kg/m^2": "kg/cm²",
    "J/m^2": "kWh/cm²", "kg/B": "kg/GB", "kg/W": "g/W",
}  # fmt: skip
"""What people say of each unit: no nUSD, no ks."""


WORDS = {"million": 1e6, "billion": 1e9, "trillion": 1e12}
WRITTEN = re.compile(r"([-\d.,]+(?:e[-+]\d+)?)(?: (million|billion|trillion))?( ?)(.*)")


def every_unit():
    """Return the units of all columns of the registry, and of what searches minimise."""
    names = [name for _, name, _ in iter_modules(columns.__path__) if name != "__main__"]
    values = [value for name in names for value in vars(import_module(f"fastflow.schema.{name}")).values()]
    several = [value for value in values if isinstance(value, tuple) and not isinstance(value, Column)]
    of_columns = {one.unit for one in chain(values, *several) if isinstance(one, Column)}
    return of_columns | set(OBJECTIVES.values())


@pytest.mark.parametrize("unit", sorted(every_unit()))
def test_quantities_of_every_unit_are_said_as_people_say_them(unit):
    """Over all magnitudes, and as the parser of inputs reads what was written."""
    said = SAID[unit].split() if unit not in ("J s", "s m^2", "s USD", *OF_TOKENS) else [SAID[unit]]
    for value in [0.0, *(first * 10.0**power for power in range(-18, 19) for first in (1.0, 2.345, 9.9961))]:
        text = units.show(value, unit)
        number, word, blank, name = WRITTEN.fullmatch(text).groups()
        assert name in (said or [""]), text
        assert blank == ("" if name.startswith("/") or not name else " "), text
        assert len(re.sub(r"\D", "", number.partition("e")[0]).lstrip("0")) <= 6, text
        assert number[-4:] != "e+03", text
        read = float(number.replace(",", "")) * WORDS.get(word, 1.0)
        one = f"1{blank}{name.replace('²', '2')}"
        size = 1e-6 if unit in OF_TOKENS else units.parse(one, unit) if unit else 1.0
        assert read * size == pytest.approx(value, rel=6e-3), text


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (1081.0, "s", "18 min"),
        (90.0, "s", "90 s"),
        (5.2e6, "s", "60.2 days"),
        (2.34e-8, "USD/B", "23.40 USD/GB"),
        (2.44e-7, "USD/token", "0.244 USD/M tokens"),
        (70.55e9, "", "70.55 billion"),
        (0.8523, "", "0.8523"),
        (12_345.6, "1/s", "12,346/s"),
        (38_200.0, "J", "38.2 kJ"),
        (0.002, "B", "0.002 B"),  # less than the least of its scales
        (7.2e9, "J", "2 MWh"),
        (3120.4, "USD", "3,120 USD"),
        (float("nan"), "s", "-"),
    ],
)
def test_what_people_say(value, unit, text):
    assert units.show(value, unit) == text


def test_a_number_without_unit_has_a_digit_more():
    assert [units.show(1.234567, unit) for unit in ("", "V")] == ["1.235", "1.23 V"]
    assert [units.show(1.234567, "", digits) for digits in (2, 6)] == ["1.235", "1.23457"]


@pytest.mark.parametrize("noise", [3.55e-15, -3.82e-20, 0.0])
def test_rounding_errors_of_times_are_no_time(noise):
    assert units.show(noise, "s") == "0 s"
    assert units.show(399e-12, "s") == "399 ps"
