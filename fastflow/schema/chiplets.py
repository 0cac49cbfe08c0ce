"""Inputs of packages of several dies."""

from __future__ import annotations

from fastflow.core.field import Column, count, fraction, nonnegative, positive, text
from fastflow.physics.hardware.chiplets import CHIPLETS, HOLDABLE, LINK, OF_NODE

_SAME_AS_TECH = "the value of its tech"
_NODE = {
    "generation": count("", "number of full nodes of the die after the base node", low=0, high=1000),
    "logic_area": positive("", "", "factor by which a half node shrinks the area of logic"),
    "logic_power": positive("", "", "factor by which a half node shrinks the power of logic"),
    "wafer_price": positive("", "USD", "price of a processed wafer of the die's node"),
    "defect_density": nonnegative("", "1/m^2", "defects per area of the die that kill it"),
    "defect_cluster": Column("", "float", "", "cluster parameter of the die's yield", 0.01, 1e6),
    "fab_energy": nonnegative("", "J/m^2", "electricity to process an area of wafers of the die's node"),
    "fab_gas": nonnegative("", "kg/m^2", "emissions of process gases per area of wafers of the die's node"),
}
assert _NODE.keys() == OF_NODE.keys()
_LINK = f"chip.{LINK}."

CHIPLET: tuple[Column, ...] = (
    text(f"{CHIPLETS}*.tech", "node of a further kind of die: a choice of the group tech"),
    count(f"{CHIPLETS}*.dies", "number of dies of this kind in a package", high=1024),
    text(f"{CHIPLETS}*.holds", f"components that dies of this kind hold: any of {' '.join(HOLDABLE)}"),
    positive(f"{CHIPLETS}*.die_area", "m^2", "area of one die of this kind")._replace(
        absent="the area of what they hold"
    ),
    *(column._replace(name=f"{CHIPLETS}*.{name}", absent=_SAME_AS_TECH) for name, column in _NODE.items()),
    *(
        fraction(f"chip.{budget}.{LINK}", f"share of the {budget_name} that links between dies get")._replace(
            absent="no such links"
        )
        for budget, budget_name in (("area", "die area"), ("power", "power"))
    ),
    positive(f"{_LINK}nominal_frequency", "bit/s", "rate of one link between dies"),
    nonnegative(f"{_LINK}nominal_energy", "J/bit", "energy to move a bit from die to die, at nominal supply"),
    positive(f"{_LINK}nominal_area", "m^2", "area of one link between dies, on both dies together"),
    positive(
        f"{_LINK}links_per_length", "1/m", "links of one direction per metre of the edge between two dies"
    ),
    count(f"{_LINK}maximum_links", "largest number of links of one direction between two dies"),
    positive(f"{_LINK}nominal_voltage", "V", "supply voltage of the nominal rate"),
    positive(f"{_LINK}threshold_voltage", "V", "threshold voltage of links between dies"),
    positive(f"{_LINK}minimum_voltage", "V", "lowest supply voltage of links between dies"),
    positive(f"{_LINK}maximum_voltage", "V", "highest supply voltage of links between dies"),
    nonnegative(f"{_LINK}latency", "s", "latency of one message from die to die"),
)
