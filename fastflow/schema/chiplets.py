"""Inputs of packages of several dies."""

from __future__ import annotations

from fastflow.core.field import Column, count, fraction, nonnegative, positive, text
from fastflow.physics.hardware.chiplets import CHIPLETS, HOLDABLE, LINK, OF_NODE

_SAME_AS_TECH = "as its tech has it"
_NODE = {
    "generation": count("", "full nodes after the base node", low=0, high=1000),
    "logic_area": positive("", "", "what a half node divides the area of logic by"),
    "logic_power": positive("", "", "what a half node divides the power of logic by"),
    "wafer_price": positive("", "USD", "price of a processed wafer of the die's node"),
    "defect_density": nonnegative("", "1/m^2", "defects per area of the die that kill it"),
    "defect_cluster": Column("", "float", "", "cluster parameter of the die's yield", 0.01, 1e6),
}
assert _NODE.keys() == OF_NODE.keys()
_LINK = f"chip.{LINK}."

CHIPLET: tuple[Column, ...] = (
    text(f"{CHIPLETS}*.tech", "node of a further kind of die: a choice of the group tech"),
    count(f"{CHIPLETS}*.dies", "number of dies of this kind in a package", high=1024),
    text(f"{CHIPLETS}*.holds", f"what they hold: any of {' '.join(HOLDABLE)}"),
    positive(f"{CHIPLETS}*.die_area", "m^2", "area of one die of this kind")._replace(
        absent="that of what they hold"
    ),
    *(column._replace(name=f"{CHIPLETS}*.{name}", absent=_SAME_AS_TECH) for name, column in _NODE.items()),
    *(
        fraction(f"chip.{budget}.{LINK}", f"share of the {budget_name} that links between dies get")._replace(
            absent="no such links"
        )
        for budget, budget_name in (("area", "die area"), ("power", "power"))
    ),
    positive(f"{_LINK}nominal_frequency", "bit/s", "rate of a lane between dies"),
    nonnegative(f"{_LINK}nominal_energy", "J/bit", "energy to move a bit from die to die, at nominal supply"),
    positive(f"{_LINK}nominal_area", "m^2", "area of a lane, on both dies together"),
    positive(f"{_LINK}links_per_length", "1/m", "lanes of one direction along the edge between two dies"),
    count(f"{_LINK}maximum_links", "most lanes of one direction"),
    positive(f"{_LINK}nominal_voltage", "V", "supply at the nominal rate"),
    positive(f"{_LINK}threshold_voltage", "V", "threshold voltage"),
    positive(f"{_LINK}minimum_voltage", "V", "lowest supply"),
    positive(f"{_LINK}maximum_voltage", "V", "highest supply"),
    nonnegative(f"{_LINK}latency", "s", "latency from die to die"),
)
