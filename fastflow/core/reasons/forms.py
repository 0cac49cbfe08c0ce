"""The forms of reasons: from fields, which are keywords, to the text. Calling one makes the reason.

`invalid` of `codes`, an input that does not suit the point, has any code; the forms here have one each.
"""

from __future__ import annotations

from collections.abc import Mapping

from fastflow.core import units
from fastflow.core.reasons.codes import Code, form

# --- memory


def _gigabytes(size: float) -> str:
    """Format bytes with four digits, or all digits of a larger number."""
    number = size / 1e9
    return f"{number:.4g} GB" if number < 1e4 else f"{number:,.0f} GB"


@form(Code.MEMORY)
def short_of_memory(*, needed: float, capacity: float) -> str:
    """A device needs more memory than it has [B]."""
    return f"needs {needed / 1e9:.4g} GB of memory a device, has {capacity / 1e9:.4g} GB"


@form(Code.MEMORY)
def no_layout_fits(
    *,
    needed: float,
    capacity: float,
    layout: str,
    parts: Mapping[str, float],
    devices: int | None = None,
    way: tuple[str, int] | None = None,
) -> str:
    """The layout that needs least memory does not fit; needed, capacity, parts: of a device [B].

    devices: so many have a layout that fits; 0 where no number that was tried has one, None if none was. way:
    keys, with which so many devices have one that fits; None if none is known.
    """
    shares = ", ".join(f"{name} {_gigabytes(size)}" for name, size in parts.items() if size > 0.0)
    text = (
        f"needs at least {_gigabytes(needed)} of memory a device, has {_gigabytes(capacity)}: no layout"
        f" fits, and the least is {layout} ({shares})"
    )
    if devices is None:
        return text
    if devices == 0:
        text = f"{text}; no number of devices that was tried has one that fits"
        if way is None:
            return f"{text}: python -m fastflow.fits with the same keys lists what may"
        keys, count = way
        return f"{text}, but with {keys} system.devices={count} has: python -m fastflow.fits lists more"
    return f"{text}; system.devices={devices} has one that fits"


@form(Code.MEMORY)
def no_breakdown_fits(*, needed: float, largest: float) -> str:
    """A device needs more memory than any breakdown of its chip has [B]."""
    needs = f"needs {needed / 1e9:.4g} GB of memory a device"
    return f"{needs}; no breakdown has more than {largest / 1e9:.4g} GB"


@form(Code.MEMORY)
def short_of_cache(
    *, needed: float, left: float, weights: float, work: float, budget: int, slots: int, which: str,
    adapter: float = 0.0,
) -> str:  # fmt: skip
    """Caches need more of a device than weights and workspace leave [B].

    budget: tokens of a pass; slots: batches that share what is left; which: the device in words; adapter: of
    what is needed, an adapter or a further model [B].
    """
    occupied = f"weights of {weights / 1e9:.4g} GB"
    if work > weights:
        occupied += f" and activations of {work / 1e9:.4g} GB (server.max_num_batched_tokens={budget} tokens)"
    shared = f", which {slots} batches in flight share, one for each stage" if needed <= left else ""
    what = f"caches and an adapter of {adapter / 1e9:.4g} GB" if adapter > 0.0 else "caches"
    need = f"{what} need {needed / 1e9:.4g} GB of a {which}"
    return f"{need}; {occupied} leave them {left / 1e9:.4g} GB{shared}"


@form(Code.MEMORY)
def short_of_other_devices(*, needed: float, capacity: float, weights: float) -> str:
    """A device that does all but attention needs more memory than it has [B]."""
    return (
        f"a device that does all but attention needs {needed / 1e9:.4g} GB of memory, of which weights"
        f" {weights / 1e9:.4g} GB, has {capacity / 1e9:.4g} GB"
    )


@form(Code.MEMORY)
def short_of_encoder(*, needed: float, capacity: float, weights: float) -> str:
    """An encoder on a device of its own needs more memory than it has [B]."""
    return (
        f"a device of encoders needs {needed / 1e9:.4g} GB of memory, of which weights"
        f" {weights / 1e9:.4g} GB, has {capacity / 1e9:.4g} GB"
    )


# --- chips


@form(Code.COMPONENT_BUDGET)
def no_room(*, component: str, budgets: str) -> str:
    """The budgets of a component have no room for its smallest unit."""
    return f"{component} has no room: its budgets are {budgets}"


@form(Code.POWER_BUDGET)
def no_power(*, component: str, budgets: str) -> str:
    """A component has no power left for its work."""
    return f"{component} has no power left for its work: its budgets are {budgets}"


@form(Code.SUPPLY_VOLTAGE)
def supplies_not_rising(*, section: str, volts: Mapping[str, float]) -> str:
    """The supplies of a section of the inputs do not rise [V]."""
    supplies = ", ".join(f"{name} {value:g} V" for name, value in volts.items())
    return f"{section}: supplies must rise from threshold to minimum to maximum; these are {supplies}"


@form(Code.DIE_AREA)
def no_area_for_cores(*, keys: str, left: str, needed: str) -> str:
    """Other dies leave too little area for a die of the cores."""
    return f"{keys} of chip.die_area leaves {left} for a die of the cores, which needs {needed}"


@form(Code.TECHNOLOGY)
def below_atom(*, key: str, area: float, generation: object, least: float) -> str:
    """A scaled part is smaller than an atom [m^2]."""
    return f"{key} is {area:.3g} m2 at tech.generation={generation}, less than an atom ({least:g} m2)"


@form(Code.OUT_OF_RANGE)
def scaled_out_of_range(*, scaling: str, generations: object, most: float) -> str:
    """A scaling over so many generations is out of range."""
    return f"{scaling} over {generations} generations is more than {most:g}"


@form(Code.OUT_OF_RANGE)
def out_of_range(*, quantity: str, value: float, most: float) -> str:
    """A quantity is not within 0 to `most`."""
    return f"{quantity} would be {value:.3g}, outside 0 to {most:g}"


@form(Code.OUT_OF_RANGE)
def rate_out_of_range(*, quantity: str, value: float, least: float, most: float) -> str:
    """A rate is neither 0 nor within `least` to `most`."""
    return f"{quantity} would be {value:.3g}, neither 0 nor {least:g} to {most:g}"


# --- iterations


@form(Code.TOO_LARGE)
def too_large(*, quantity: str, amount: float, limit: float) -> str:
    """An iteration has too many of something."""
    return f"asks for {amount:.3g} {quantity}, more than {limit:.3g}"


@form(Code.DATA_TYPE)
def idle_units() -> str:
    """A kernel computes in a data type in which the chip has a rate of 0."""
    return "a kernel has no time: the chip has a rate of 0 (chip.rate) in the data type that it computes in"


@form(Code.DATA_TYPE)
def lacks_kernel_type(*, kernel: str, dtype: str, products: str, chip: str) -> str:
    """A kernel computes in another data type than products, which the chip lacks."""
    text = f"a kernel ({kernel}) computes in {dtype} where products are {products}"
    return f"{text}, and chip {chip} has no {dtype}"


@form(Code.OUT_OF_RANGE)
def kernel_out_of_range(*, most: float) -> str:
    """A kernel's time or bytes are out of range."""
    return f"a kernel's time or bytes are no number up to {most:g}: inputs are too far apart"


@form(Code.OUT_OF_RANGE)
def exchange_out_of_range(*, most: float) -> str:
    """The time of an exchange is out of range [s]."""
    return f"an exchange's time is no number up to {most:g} s: inputs are too far apart"


@form(Code.NO_TIME)
def takes_no_time() -> str:
    """An iteration has nothing to do."""
    return "an iteration takes no time: there is nothing to compute, to move or to launch"


# --- servers


@form(Code.OVERLOAD)
def overloaded(*, served: float, sent: float, carried: float, from_file: bool = False) -> str:
    """Fewer requests a second are served than sent [1/s].

    carried: a rate that is carried; from_file: requests arrive at the times of a file.
    """
    advice = f"serve.request_rate='{carried:.2g} 1/s' is carried"
    if from_file:
        advice = "requests that come more slowly"
    message = f"serves {served:.3g} of {sent:.3g} requests a second that are sent (overload)"
    return f"{message}: {advice}, or more devices"


@form(Code.SLO)
def above_limit(*, statistic: str, latency: float, key: str, limit: float, remark: str = "") -> str:
    """A statistic of latencies is above its limit [s]; remark: on the requests that make it so."""
    return f"{statistic} is {latency:.4g} s, above {key}={limit:.4g} s{remark}"


@form(Code.LOAD)
def stalled(*, policy: str) -> str:
    """A server's policy leaves requests waiting though none runs and none will arrive."""
    return f"server.policy={policy} leaves requests waiting though none runs and none will arrive"


@form(Code.STOPPED)
def stopped(*, ended: int, requests: int, missed: str) -> str:
    """A simulation was stopped after some of its requests had ended; missed: the limit in words."""
    return f"stopped after {ended:,} of {requests:,} requests: {missed}"


# --- racks and the site


def _watts(*powers: float) -> list[str]:
    """Write powers in units that suit them, with as many digits as tell them apart [W]."""
    for digits in range(3, 17):
        written = [units.show(power, "W", digits) for power in powers]
        if len({*written}) == len({*powers}):
            break
    return written


def _limited(of_device: float) -> list[str]:
    """Write the power limit of a device as a way to keep to a limit of many [W]; [] for NaN."""
    return [f"chip.power_limit='{of_device:.10g} W'"] if of_device == of_device else []


def _remedies(choices: list[str]) -> str:
    """Write what keeps to a limit of power."""
    if not choices:
        return "a device and its share of the machine alone draw more"
    return ", or ".join((f"{choices[0]} keeps to it", *choices[1:]))


@form(Code.SITE_POWER)
def rack_above_limit(*, drawn: float, limit: float, devices: int, of_device: float) -> str:
    """The machines of a rack draw more than its limit, as a mean over time [W].

    devices: so many in a rack keep to it, 0: none; of_device: a power limit of each does [W], NaN: none.
    """
    draws, at_most = _watts(drawn, limit)
    fewer = [f"power.rack_devices={devices}"] if devices else []
    remedies = _remedies([*fewer, *_limited(of_device)])
    return f"a rack draws {draws}, above power.rack_limit={at_most}: {remedies}"


@form(Code.SITE_POWER)
def system_above_limit(*, drawn: float, limit: float, devices: int, of_device: float) -> str:
    """The system draws more at the site than its limit, as a mean over time [W].

    devices: so many of the same power keep to it, 0: none; of_device: as of `rack_above_limit`.
    """
    draws, at_most = _watts(drawn, limit)
    plural = "s" if devices > 1 else ""
    smaller = [f"a system of {devices:,} device{plural} at the same power"] if devices else []
    remedies = _remedies([*_limited(of_device), *smaller])
    return f"the system draws {draws} at the site, above power.site_limit={at_most}: {remedies}"


# --- searches, sensitivities, validations


@form(Code.DUPLICATE)
def duplicate(*, strategy: str) -> str:
    """Another candidate gives the same results."""
    return f"gives the same results as {strategy}"


@form(Code.ZERO)
def is_zero() -> str:
    """An input is 0."""
    return "is 0"


@form(Code.NO_TIME)
def single_rank() -> str:
    """A collective has one rank."""
    return "a single rank exchanges nothing"


@form(Code.OUT_OF_RANGE)
def wrong_time(*, time: float) -> str:
    """The model gives a row of measurements no time, or one that is no number above 0 [s]."""
    return f"the model gives {'no time' if time != time else f'{time:g} s'}"
