"""Quantities that a file of measurements may hold of each row: its time, what a meter shows, and throughput.

An entry here has its columns in every validation, and its errors on the screen, on pages and in notebooks. A
kind of measurement says which column of a file has it, and which results predict it.
"""

from __future__ import annotations

from typing import NamedTuple

from fastflow.core.field import Column


class Quantity(NamedTuple):
    """A measured quantity of a row, and the columns of a validation that compare it."""

    name: str
    unit: str
    meaning: str
    lowest: float
    """Bounds of a measured value, in the unit."""
    highest: float
    ratio: str
    """Column of predicted over measured."""
    error: str
    """Column of the relative error."""
    shortest: float = 0.0
    """Measured time [s] that a row of the errors of groups exceeds."""
    column: str = ""
    """End of the names of its columns, by default the unit."""
    is_metered: bool = True
    """Whether a meter shows it, and not the times of the row."""

    @property
    def measured(self) -> str:
        """The column of measured values."""
        return f"measured_{self.column or self.unit}"

    @property
    def predicted(self) -> str:
        """The column of predicted values."""
        return f"predicted_{self.column or self.unit}"

    @property
    def columns(self) -> tuple[Column, ...]:
        """The registered columns."""
        return (
            Column(self.measured, "float", self.unit, f"measured {self.name}: {self.meaning}"),
            Column(self.predicted, "float", self.unit, f"predicted {self.name}"),
            Column(self.ratio, "float", "", f"{self.predicted} over {self.measured}"),
            Column(
                self.error,
                "float",
                "",
                f"relative error: |{self.predicted} - {self.measured}| / {self.measured}",
            ),
        )


TIME = Quantity("time", "s", "", 1e-10, 1e9, "ratio", "error")
"""A tick of the fastest clocks is 0.2 ns, a billion seconds are 32 years."""
POWER = Quantity(
    "power", "W", "mean of one device over the row's time", 1e-3, 1e6, "ratio_W", "error_W", shortest=20e-6
)
"""Below 20 us, a meter shows the gaps between launches of a kernel that repeats, too."""
ENERGY = Quantity(
    "energy", "J", "of what the file counts, such as a token", 1e-12, 1e15, "ratio_J", "error_J"
)
"""From an operation of a small chip to a year of the largest cluster."""
THROUGHPUT = Quantity(
    "throughput", "1/s", "output tokens of one device of a server", 1e-9, 1e9,
    "ratio_tokens_per_s_per_device", "error_tokens_per_s_per_device",
    column="tokens_per_s_per_device", is_metered=False,
)  # fmt: skip
"""Of a served point, from its two times: see `analysis/measurements/closed_loop.py`."""
QUANTITIES = (TIME, POWER, ENERGY, THROUGHPUT)
"""All of them, in the order of the screen."""
FURTHER = QUANTITIES[1:]
"""Those that a file may lack."""
