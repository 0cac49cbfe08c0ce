"""Inputs that several components of a chip share (Table 2)."""

from __future__ import annotations

from fastflow.core.field import Column, count, nonnegative, positive, share


def supply(prefix: str) -> tuple[Column, ...]:
    """Return the voltage and frequency attributes that every scaled component has (Table 2)."""
    return (
        positive(f"{prefix}.nominal_voltage", "V", "supply voltage at which the nominal values hold"),
        positive(f"{prefix}.threshold_voltage", "V", "threshold voltage of the alpha-power law"),
        positive(f"{prefix}.minimum_voltage", "V", "lowest supply voltage at which the component works"),
        positive(f"{prefix}.maximum_voltage", "V", "highest supply voltage of the component"),
    )


def link(prefix: str, where: str) -> tuple[Column, ...]:
    """Return the attributes of a network link (Table 2, last block)."""
    return (
        *supply(prefix),
        positive(f"{prefix}.nominal_frequency", "bit/s", f"rate of one {where} link at nominal supply"),
        nonnegative(f"{prefix}.nominal_energy", "J/bit", f"energy of one bit over one {where} link"),
        positive(f"{prefix}.nominal_area", "m^2", f"die area of one {where} link's I/O cell"),
        positive(f"{prefix}.links_per_length", "1/m", f"{where} links per metre of die edge"),
        count(
            f"{prefix}.maximum_links",
            f"largest number of {where} links of one device (the width of its port)",
        ),
        nonnegative(f"{prefix}.latency", "s", f"latency of one message over one {where} link"),
        share(f"{prefix}.utilization", f"share of the {where} link rate that the payload reaches"),
        *(
            nonnegative(f"{prefix}.{step}_step", "s", f"NCCL: time of a step of {name} over one {where} link")
            for step, name in (("ll", "LL"), ("ll128", "LL128"), ("simple", "Simple"))
        ),
    )
