"""Result columns of energy and power: of devices, of machines, and of the site."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fastflow.core.tables import Columns, Floats, Ints
from fastflow.physics.cost.columns import Devices
from fastflow.physics.site.power import SitePower, host_power, site_power, switch_power


@np.errstate(over="ignore", divide="ignore", invalid="ignore")  # of infeasible chips
def power_of_site(kinds: Sequence[Devices], power: Floats) -> SitePower:
    """Return the power of systems [W], (points,), NaN without a time.

    kinds: the devices of systems; switches, fans, supplies and building are those of the first kind. power:
    of all devices of a point [W].
    """
    hosts, switches = np.zeros((2, power.size))
    number = _all_devices(kinds)
    for inputs, chip, devices, _ in kinds:
        hosts = hosts + devices * host_power(inputs)
        switches = switches + devices * switch_power(inputs, chip.inter.bandwidth, number)
    return site_power(kinds[0].inputs, power, hosts, switches)


@np.errstate(over="ignore", divide="ignore", invalid="ignore")  # of points without a time
def site_columns(kinds: Sequence[Devices], power: SitePower, joules: Floats) -> Columns:
    """Return `schema.power.SITE`, (points,) each; joules: of devices, for a unit of work [J].

    Powers of one device have its share of the machine and of the site. A rack has machines alone.
    """
    time, number = joules / power.devices, _all_devices(kinds)
    of_machine = power.machines / number
    return {
        "gpu_J": joules, "machine_J": power.machines * time, "site_J": power.site * time,
        "gpu_W": power.devices / number, "machine_W": of_machine, "site_W": power.site / number,
        "rack_W": of_machine * kinds[0].inputs["power.rack_devices"], "system_W": 1.0 * power.site,
    }  # fmt: skip


def _all_devices(kinds: Sequence[Devices]) -> Ints:
    total: Ints = np.sum([devices.number for devices in kinds], axis=0)
    return total
