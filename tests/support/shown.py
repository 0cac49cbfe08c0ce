"""What is shown, read back: every number of a text with its unit, in SI; and rows of values all unlike.

The words for units are those of the BIPM's brochure and of everyday use, not fastflow's own.
"""

import re
from itertools import product

import numpy as np
from rich.text import Text

from fastflow.schema import RESULTS, SEARCH, SERVED, TRANSFORMER, find_result

TIME, CAPACITY = 2e4, 3e9
"""Of the points of `trained` and `served`: an iteration [s], the memory of a device [B]."""
_PREFIXES = {
    "": 1.0, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15, "E": 1e18, "Z": 1e21, "m": 1e-3, "u": 1e-6,
    "n": 1e-9, "p": 1e-12, "f": 1e-15,
}  # fmt: skip
_BASES = (
    "s", "J", "W", "V", "Hz", "m", "B", "B/s", "bit/s", "flop", "flop/s", "flop/B",
    "J/bit", "J/B", "W/bit",
)  # fmt: skip
_WORDS = {
    "%": ("", 0.01), "thousand": ("", 1e3), "million": ("", 1e6), "billion": ("", 1e9),
    "trillion": ("", 1e12), "min": ("s", 60.0), "h": ("s", 3600.0), "days": ("s", 24 * 3600.0),
    "years": ("s", 365.25 * 24 * 3600.0), "kWh": ("J", 1e3 * 3600.0), "MWh": ("J", 1e6 * 3600.0),
    "GWh": ("J", 1e9 * 3600.0), "TWh": ("J", 1e12 * 3600.0), "USD": ("USD", 1.0), "/s": ("1/s", 1.0),
    "mm²": ("m^2", 1e-6), "µm²/bit": ("m^2/bit", 1e-12), "/mm": ("1/m", 1e3), "/cm²": ("1/m^2", 1e4),
    "s mm²": ("s m^2", 1e-6), "USD/GB": ("USD/B", 1e-9), "USD/(GB/s)": ("USD s/B", 1e-9),
    "USD/kWh": ("USD/J", 1.0 / (1e3 * 3600.0)), "USD/M tokens": ("USD/token", 1e-6),
    "ug": ("g", 1e-6), "mg": ("g", 1e-3), "g": ("g", 1.0), "kg": ("g", 1e3), "t": ("g", 1e6),
    "kt": ("g", 1e9),
    "g/M tokens": ("g/token", 1e-6), "g/kWh": ("kg/J", 1e-3 / (1e3 * 3600.0)), "kg/cm²": ("kg/m^2", 1e4),
    "/s/MW": ("1/(s MW)", 1.0),
    "kWh/cm²": ("J/m^2", 1e3 * 3600.0 * 1e4), "kg/GB": ("kg/B", 1e-9), "g/W": ("kg/W", 1e-3),
}  # fmt: skip
UNITS = {f"{prefix}{base}": (base, size) for (prefix, size), base in product(_PREFIXES.items(), _BASES)}
UNITS |= _WORDS
_DECADES = {"s": (1, 4), "J": (6, 11), "B": (7, 9), "W": (0, 5), "V": (-1, 0), "USD": (0, 7)}
"""Of the values of `unlike`, by unit: so that parts have shares of a whole, and energies are some kWh."""
_FIGURE = re.compile(r"(?<![\w.])([-+]?\d[\d,]*(?:\.\d+)?(?:e[-+]?\d+)?)")
_BY_LENGTH = sorted(UNITS, key=len, reverse=True)


def in_base(value, unit):
    """Return a quantity as `figures` reads it: a mass, of columns in kg too, in g."""
    return (1e3 * value, "g") if unit == "kg" else (value, unit)


def plain(cell):
    """Return the text of a cell, without marks."""
    return cell.plain if isinstance(cell, Text) else Text.from_markup(str(cell)).plain


def figures(text):
    """Return the numbers of a text: (value, unit, half of what its last digit is worth)."""
    numbers = []
    for match in _FIGURE.finditer(text):
        mantissa, _, exponent = match[1].replace(",", "").partition("e")
        value = float(f"{mantissa}e{exponent or 0}")
        half = 0.5 * 10.0 ** (int(exponent or 0) - len(mantissa.partition(".")[2]))
        unit, rest = "", text[match.end() :]
        while True:  # million USD/M tokens
            stripped = rest.removeprefix(" ")
            words = (word for word in _BY_LENGTH if re.match(rf"{re.escape(word)}(?![\w²])", stripped))
            word = next(words, None)
            if word is None or (unit and UNITS[word][0]):
                break
            base, size = UNITS[word]
            value, half, unit, rest = value * size, half * size, unit or base, stripped[len(word) :]
            if base:
                break
        numbers.append((value, unit, half))
    return numbers


def check_text(text, expected):
    """Assert that a text has just some numbers, in order: (value, unit) each."""
    got = figures(text)
    assert len(got) == len(expected), (text, got, expected)
    for (value, unit, half), quantity in zip(got, expected, strict=True):
        expected_value, expected_unit = in_base(*quantity)
        assert unit == expected_unit, (text, unit, expected_unit)
        assert abs(value - expected_value) <= 1.001 * half + 1e-9 * abs(expected_value), (
            text,
            value,
            expected_value,
        )


def rows_of(sheet):
    """Return the cells of a table, row by row."""
    columns = [[plain(cell) for cell in column._cells] for column in sheet.columns]
    return [list(cells) for cells in zip(*columns, strict=True)]


def check_sheet(sheet, expected):
    """Assert that a table has just some rows: each is what its first cell begins with, and its numbers."""
    rows = rows_of(sheet)
    assert len(rows) == len(expected), (rows, [label for label, *_ in expected])
    for cells, (label, *numbers) in zip(rows, expected, strict=True):
        assert cells[0].strip().startswith(label), (cells, label)
        check_text(" | ".join(cells), numbers)


def unlike(seed, **given):
    """Return a row with a number of its own in every result column of the registry; given: some of them."""
    random, row = np.random.default_rng(seed), {}
    for column in (*RESULTS, *TRANSFORMER, *SERVED, *SEARCH):
        for name in [column.name.replace("l*", f"l{level}") for level in range(3)]:
            if column.kind == "bool":
                row[name] = True
            elif column.kind == "str":
                row[name] = f"<{name}>"
            elif column.kind == "int":
                row[name] = int(random.integers(2, 10**6))
            elif column.unit == "":
                row[name] = float(random.uniform(0.011, 0.999))
            else:
                row[name] = float(10 ** random.uniform(*_DECADES.get(column.unit, (3, 7))))
    return row | given


def trained(seed):
    """A point of training, as the screen has it: several stages, devices on all axes."""
    return unlike(
        seed, strategy="TP-4-d2-p3", pp_hops=7, bottleneck_stage=1, time_s=TIME, dram_offered_B=CAPACITY,
        devices=4096,
    )  # fmt: skip


def served(seed, **more):
    """A point that serves, whose parts of an iteration are shorter than all of it."""
    return (
        trained(seed)
        | {"classes": "", "turns": "", "exchange_s": 311.0, "serve_host_s": 127.0, "pipeline_stall_s": 1903.0}
        | more
    )


def of(row, *names):
    """The numbers of some columns, each in its column's unit."""
    numbers = []
    for name in names:
        column = find_result(name)
        numbers.append((row[name], column.unit if column.kind == "float" else ""))
    return numbers
