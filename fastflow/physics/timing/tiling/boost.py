"""Boost of active bundles by the power of idle ones: of cores, and of private memories.

Budgets hold for all units active (4.4). Where a kernel leaves some idle, active units take their power: cores
at a higher supply, up to the maximum, memories up to the rate of their banks. So a bundle without work in a
kernel never slows the others. Processors have done so since 2008 (Intel, Turbo Boost Technology in
Nehalem-based processors, white paper 320354; NVIDIA GPU Boost since Kepler).
"""

from __future__ import annotations

from fastflow.core.jit import lean_kernel


@lean_kernel
def level_time(moved: float, bandwidth: float, driven: float, idle: float) -> float:
    """Return the time [s] of a level that serves its bytes with some of its instances idle.

    driven: see `Memories`; idle: instances over active instances.
    """
    return moved / bandwidth * max(1.0, driven * idle)


@lean_kernel
def boost_of(idle: float, threshold: float, headroom: float) -> tuple[float, float]:
    """Return time and energy of a core's operation where cores are idle, over those with all active.

    idle: cores over active cores; threshold, headroom: see `Boost`. More power raises a core's supply V:
    P = (V - Vt)^2 V, f = P / V^2 (`hardware.voltage`), both over those with all active. So an operation takes
    V^2 / P of the time and V^2 of the energy. V is accurate to 1e-9 for up to 50 times the power.
    """

    def halley_step(voltage: float, power: float) -> float:
        """Take a step of Halley's method towards where (V - Vt)^2 V is `power`."""
        over = voltage - threshold
        error = over * over * voltage - power
        first, second = over * (3.0 * voltage - threshold), 3.0 * voltage - 2.0 * threshold
        return voltage - error * first / (first * first - error * second)

    power, full = min(idle, headroom), (1.0 - threshold) * (1.0 - threshold)
    voltage = halley_step(
        halley_step(halley_step(halley_step(1.0, full * power), full * power), full * power), full * power
    )
    return voltage * voltage / power, voltage * voltage
