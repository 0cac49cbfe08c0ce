"""Quantities with units, such as "4.2 pJ/bit", parsed once into SI numbers.

The registry is pint's, with a short list of units: in pint's default list a bit has no
dimension, so a missing "/bit" would go unnoticed, and "b" is the barn. GB is 10^9 B, GiB 2^30 B.

Common units are read without pint, whose import takes a tenth of a second.
"""

from __future__ import annotations

import re
from functools import cache, lru_cache
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import pint

_DEFINITIONS = """
femto- = 1e-15 = f-
pico- = 1e-12 = p-
nano- = 1e-9 = n-
micro- = 1e-6 = u- = µ-
milli- = 1e-3 = m-
centi- = 1e-2 = c-
kilo- = 1e3 = k-
mega- = 1e6 = M-
giga- = 1e9 = G-
tera- = 1e12 = T-
peta- = 1e15 = P-
exa- = 1e18 = E-
zetta- = 1e21 = Z-
kibi- = 1024 = Ki-
mebi- = 1048576 = Mi-
gibi- = 1073741824 = Gi-
tebi- = 1099511627776 = Ti-
meter = [length] = m = metre
second = [time] = s
minute = 60 * second = min
hour = 3600 * second = h
day = 86400 * second
year = 31557600 * second
volt = [electric_potential] = V
joule = [energy] = J
watt = joule / second = W
watthour = 3600 * joule = Wh
hertz = 1 / second = Hz
bit = [information] = b
byte = 8 * bit = B
flop = [operation] = FLOP
dollar = [currency] = USD
gram = [mass] = g
tonne = 1000000 * gram = t
"""

# "mm2" is how the field writes square millimetres; pint wants an exponent sign
_BARE_EXPONENT = re.compile(r"(?<=[A-Za-zµ])(?<![0-9.][eE])([23])\b")  # but no exponent of ten, as in 1e3
_LEADING_ZERO = re.compile(r"(?<![0-9.A-Za-z])(?<![eE][+-])0[0-9]")  # Python reads 012 as 0 times 12

_PLAIN = re.compile(r"((?:0|[1-9][0-9]{0,14})(?:\.[0-9]{1,15})?) ([A-Za-z0-9/()]+)", re.ASCII)
_DECIMAL = {"": 1.0, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}
_SMALL = {"": 1.0, "m": 1e-3, "u": 1e-6, "n": 1e-9, "p": 1e-12, "f": 1e-15}
_COMMON_UNITS = {
    "B": {f"{prefix}B": size for prefix, size in _DECIMAL.items()}
    | {"KiB": 1024.0, "MiB": 1048576.0, "GiB": 1073741824.0},
    "B/s": {f"{prefix}B/s": size for prefix, size in _DECIMAL.items()},
    "bit/s": {f"{prefix}b/s": size for prefix, size in _DECIMAL.items()}
    | {f"{prefix}B/s": 8.0 * size for prefix, size in _DECIMAL.items()},
    "Hz": {f"{prefix}Hz": size for prefix, size in _DECIMAL.items()},
    "W": {"mW": 1e-3, "W": 1.0, "kW": 1e3, "MW": 1e6},
    "V": {"mV": 1e-3, "V": 1.0},
    "s": {f"{prefix}s": size for prefix, size in _SMALL.items()} | {"year": 31557600.0},
    "m": {"mm": 1e-3},
    "J/bit": {f"{prefix}J/bit": size for prefix, size in _SMALL.items()},
    "J/B": {f"{prefix}J/B": size for prefix, size in _SMALL.items()},
    "W/bit": {f"{prefix}W/bit": size for prefix, size in _SMALL.items()},
    "m^2": {"um2": 1e-12, "mm2": 1e-6, "m2": 1.0},
    "m^2/bit": {"um2/bit": 1e-12, "nm2/bit": 1e-18},
    "1/m": {"1/mm": 1e3},
    "flop": {"flop": 1.0},
    "1/m^2": {"1/cm2": 1.0 / 1e-2**2},
    "USD": {"USD": 1.0},
    "USD/W": {"USD/W": 1.0},
    "USD/B": {"USD/GB": 1.0 / 1e9},
    "USD/J": {"USD/kWh": 1.0 / 3.6e6},
    "USD s/B": {"USD/(GB/s)": 1.0 / 1e9},
    "kg": {"kg": 1.0},
    "kg/J": {"g/kWh": 1.0 / 1e3 / 3.6e6},
    "kg/m^2": {"kg/cm2": 1.0 / 1e-2**2},
    "J/m^2": {"kWh/cm2": 3.6e6 / 1e-2**2},
    "kg/B": {"kg/GB": 1.0 / 1e9},
    "kg/W": {"kg/W": 1.0},
}
"""The factor of each common unit; equal to pint's to the bit."""


@cache
def _registry() -> pint.UnitRegistry[float]:
    import pint

    registry: pint.UnitRegistry[float] = pint.UnitRegistry(None, non_int_type=float)
    for line in _DEFINITIONS.strip().splitlines():
        registry.define(line)
    return registry


@lru_cache(maxsize=10_000)
def parse(text: str, unit: str) -> float:
    """Return the value of a written quantity such as "4.2 pJ/bit" in `unit`.

    Raises ValueError, with a message that says what is wrong, when the text is no quantity, bears
    no unit, or bears one of another dimension.
    """
    plain = _PLAIN.fullmatch(text)
    factor = _COMMON_UNITS.get(unit, {}).get(plain[2]) if plain else None
    return _parse(text, unit) if plain is None or factor is None else float(plain[1]) * factor


def _parse(text: str, unit: str) -> float:
    """Return the value of any quantity, as pint reads it."""
    import pint

    if _LEADING_ZERO.search(text):
        raise ValueError(f"not a quantity such as '1 {unit}': a number begins with 0")
    registry = _registry()
    written = _BARE_EXPONENT.sub(r"**\1", text.strip())
    try:
        quantity: pint.Quantity[float] = registry.Quantity(written)
    except Exception as error:  # pint raises many kinds; all mean the same here
        raise ValueError(f"not a quantity with a known unit, such as '1 {unit}'") from error
    if quantity.unitless and unit:
        raise ValueError(f"no unit given, needs one such as '{unit}'")
    try:
        return float(quantity.to(unit.replace("^", "**")).magnitude)
    except pint.DimensionalityError as error:
        raise ValueError(f"'{quantity.units:~}' is no unit for this, needs one such as '{unit}'") from error


class Scale(NamedTuple):
    """A unit for display, such as hours."""

    least: float  # least quantity that is shown in it [SI unit]
    size: float  # [SI unit]
    name: str


_PREFIXES = {
    "Z": 1e21, "E": 1e18, "P": 1e15, "T": 1e12, "G": 1e9, "M": 1e6, "k": 1e3, "-": 1.0,
    "m": 1e-3, "u": 1e-6, "n": 1e-9, "p": 1e-12, "f": 1e-15,
}  # fmt: skip


def _prefixed(unit: str, prefixes: str) -> tuple[Scale, ...]:
    """Return a unit with prefixes, the largest first; "-" for no prefix."""
    sizes = {prefix: _PREFIXES[prefix] for prefix in prefixes}
    return tuple(Scale(size, size, f"{prefix}{unit}".lstrip("-")) for prefix, size in sizes.items())


def _in(*sizes: tuple[float, str]) -> tuple[Scale, ...]:
    """Return scales of some sizes."""
    return tuple(Scale(size, size, name) for size, name in sizes)


_SCALES = {
    "s": (
        *(
            Scale(2.0 * size, size, name)  # 90 s and 90 min are shown in these units
            for size, name in ((31557600.0, "years"), (86400.0, "days"), (3600.0, "h"), (60.0, "min"))
        ),
        *_prefixed("s", "-munp"),
    ),
    "J": (*_in((3.6e15, "TWh"), (3.6e12, "GWh"), (3.6e9, "MWh"), (3.6e6, "kWh")), *_prefixed("J", "k-munp")),
    "J/bit": _prefixed("J/bit", "-munpf"),
    "J/B": _prefixed("J/B", "-munpf"),
    "W": _prefixed("W", "GMk-munp"),
    "W/bit": _prefixed("W/bit", "-munpf"),
    "V": _prefixed("V", "k-m"),
    "Hz": _prefixed("Hz", "TGMk-"),
    "m": _prefixed("m", "k-mun"),
    "1/m": _in((1e3, "/mm")),
    "m^2": _in((1e-6, "mm²")),
    "m^2/bit": _in((1e-12, "µm²/bit")),
    "1/m^2": _in((1e4, "/cm²")),
    "s m^2": _in((1e-6, "s mm²")),
    "1/s": _in((1.0, "/s")),
    "1/(s MW)": _in((1.0, "/s/MW")),
    "B": _prefixed("B", "EPTGMk-"),
    "B/s": _prefixed("B/s", "EPTGMk-"),
    "bit/s": _prefixed("bit/s", "PTGMk-"),
    "flop": _prefixed("flop", "ZEPTGMk-"),
    "flop/s": _prefixed("flop/s", "ZEPTGMk-"),
    "USD/B": _in((1e-9, "USD/GB")),
    "USD s/B": _in((1e-9, "USD/(GB/s)")),
    "USD/J": _in((1.0 / 3.6e6, "USD/kWh")),
    "USD/token": _in((1e-6, "USD/M tokens")),
    "g": _in((1e6, "t"), (1e3, "kg"), (1.0, "g"), (1e-3, "mg"), (1e-6, "ug")),
    "kg": _in((1e6, "kt"), (1e3, "t"), (1.0, "kg"), (1e-3, "g")),
    "g/token": _in((1e-6, "g/M tokens")),
    "kg/J": _in((1e-3 / 3.6e6, "g/kWh")),
    "kg/m^2": _in((1e4, "kg/cm²")),
    "J/m^2": _in((3.6e10, "kWh/cm²")),
    "kg/B": _in((1e-9, "kg/GB")),
    "kg/W": _in((1e-3, "g/W")),
}
"""The units for display of each SI unit, the largest first; other units are shown as they are."""
_WORDS = ((1e12, "trillion"), (1e9, "billion"), (1e6, "million"))


def scales(unit: str) -> tuple[Scale, ...]:
    """Return the units for display of a unit, the largest first."""
    return _SCALES.get(unit) or _in((1.0, unit))


def scale_of(value: float, unit: str, digits: int = 3) -> Scale:
    """Return the unit for display of a value: the largest that does not exceed it, else the smallest."""
    choices = scales(unit)
    if value == 0.0 or value != value:
        return next((scale for scale in choices if scale.size == 1.0), choices[-1])
    size = abs(value) / (1.0 - 0.5 * 10.0**-digits)  # 0.9996 ms is 1.00
    return next((scale for scale in choices if size >= scale.least), choices[-1])


def number(value: float, digits: int = 3) -> str:
    """Write a number: 12,345 whole, 70.6 billion in words, others in that many digits."""
    size = abs(value)
    below = 1.0 - 0.5 * 10.0**-digits  # as much less rounds up
    if not below * 1e3 <= size < below * 1e15:
        return f"{value:.{digits}g}"
    for least, word in _WORDS:
        if size >= below * least:
            return f"{value / least:.{digits}g} {word}"
    return f"{value:,.0f}"


_ROUNDING_S = 1e-12
"""Shorter times are rounding errors of sums of longer ones: people read them as 0 [s]."""


def show(value: float, unit: str, digits: int = 3) -> str:
    """Write a quantity for people.

    9.0e11 B/s is "900 GB/s", 1081 s "18 min", 2.34e-8 USD/B "23.40 USD/GB".

    unit: of the value, as in the registry of columns; "" for none, with a digit more. digits: of numbers that
    are not written whole.
    """
    if value != value:
        return "-"
    if unit == "s" and abs(value) < _ROUNDING_S:
        value = 0.0
    if not unit:
        return number(value, max(digits, 4))
    scale = scale_of(value, unit, digits)
    written = value / scale.size
    is_price = unit.startswith("USD") and 0.9995 <= abs(written) < 99.995  # in cents
    text = f"{written:.2f}" if is_price else number(written, digits)
    return f"{text}{'' if scale.name.startswith('/') else ' '}{scale.name}"


def percent(share: float) -> str:
    """Write a gain or a share."""
    return f"{100.0 * share:.1f}%" if abs(share) < 0.0995 else f"{100.0 * share:.0f}%"
