"""What "4.2 pJ/bit" means: quantities written with units, parsed once into SI numbers.

The registry is pint's, with our own short list of units: in pint's default list a bit has no
dimension, so a missing "/bit" would go unnoticed, and "b" is the barn. GB is 10^9 B, GiB 2^30 B.

The usual units are read without pint, whose import takes a tenth of a second.
"""

from __future__ import annotations

import re
from functools import cache, lru_cache
from typing import TYPE_CHECKING

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
kibi- = 1024 = Ki-
mebi- = 1048576 = Mi-
gibi- = 1073741824 = Gi-
tebi- = 1099511627776 = Ti-
meter = [length] = m = metre
second = [time] = s
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
"""

# "mm2" is how the field writes square millimetres; pint wants an exponent sign
_BARE_EXPONENT = re.compile(r"(?<=[A-Za-zµ])(?<![0-9.][eE])([23])\b")  # but no exponent of ten, as in 1e3
_LEADING_ZERO = re.compile(r"(?<![0-9.A-Za-z])(?<![eE][+-])0[0-9]")  # Python reads 012 as 0 times 12

_PLAIN = re.compile(r"((?:0|[1-9][0-9]{0,14})(?:\.[0-9]{1,15})?) ([A-Za-z0-9/()]+)", re.ASCII)
_DECIMAL = {"": 1.0, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}
_SMALL = {"": 1.0, "m": 1e-3, "u": 1e-6, "n": 1e-9, "p": 1e-12, "f": 1e-15}
_USUAL = {
    "B": {f"{prefix}B": size for prefix, size in _DECIMAL.items()}
    | {"KiB": 1024.0, "MiB": 1048576.0, "GiB": 1073741824.0},
    "B/s": {f"{prefix}B/s": size for prefix, size in _DECIMAL.items()},
    "bit/s": {f"{prefix}b/s": size for prefix, size in _DECIMAL.items()}
    | {f"{prefix}B/s": 8.0 * size for prefix, size in _DECIMAL.items()},
    "Hz": {f"{prefix}Hz": size for prefix, size in _DECIMAL.items()},
    "W": {"mW": 1e-3, "W": 1.0, "kW": 1e3},
    "V": {"mV": 1e-3, "V": 1.0},
    "s": {f"{prefix}s": size for prefix, size in _SMALL.items()} | {"year": 31557600.0},
    "m": {"mm": 1e-3},
    "J/bit": {f"{prefix}J/bit": size for prefix, size in _SMALL.items()},
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
}
"""How much of a unit each of those usually written is; to the bit what pint says."""


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
    usual = _USUAL.get(unit, {}).get(plain[2]) if plain else None
    return _parse(text, unit) if plain is None or usual is None else float(plain[1]) * usual


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


_SCALES = (
    (1e15, "P"),
    (1e12, "T"),
    (1e9, "G"),
    (1e6, "M"),
    (1e3, "k"),
    (1.0, ""),
    (1e-3, "m"),
    (1e-6, "u"),
    (1e-9, "n"),
    (1e-12, "p"),
    (1e-15, "f"),
)


_AREAS = {"m^2": ("mm²", 1e6), "m^2/bit": ("µm²/bit", 1e12)}
"""What people write an area in, and how many are one: a prefix would be squared, too."""


def scales(unit: str) -> list[tuple[float, str]]:
    """Return what people write quantities of a unit in, the largest first: its size in the unit, its name.

    A unit that no prefix can stand before, as a currency or one over something, has itself alone.
    """
    if unit in _AREAS:
        named, size = _AREAS[unit]
        return [(1.0 / size, named)]
    if unit in ("", "USD") or unit.startswith(("1/", "USD/", "USD ")) or "^" in unit:
        return [(1.0, unit)]
    return [(scale, f"{prefix}{unit}") for scale, prefix in _SCALES]


def show(value: float, unit: str, digits: int = 3) -> str:
    """Write a number of `unit` for a person: 9.0e11 B/s becomes "900 GB/s", 8.5e-4 m^2 "850 mm²"."""
    if value != value:
        return "-"
    if unit in _AREAS:
        named, size = _AREAS[unit]
        return f"{value * size:.4g} {named}"
    if value == 0.0:
        return f"0 {unit}"
    if unit == "USD":  # a currency has no prefixes
        return (
            f"{value:,.{2 if abs(value) < 100.0 else 0}f} {unit}"
            if abs(value) >= 0.1
            else f"{value:.{digits}g} {unit}"
        )
    for scale, prefix in _SCALES:
        if abs(value) >= scale * (1 - 0.5 * 10.0**-digits):
            return (
                f"{value / scale:.{digits}g} {prefix}{unit}"
                if abs(value) < 1000 * scale
                else f"{value:.{digits}e} {unit}"
            )
    return f"{value:.{digits}g} {unit}"


def percent(share: float) -> str:
    """Write a gain or a share."""
    return f"{100.0 * share:.1f}%" if abs(share) < 0.0995 else f"{100.0 * share:.0f}%"
