"""The machine of a real chip: the default system for more than one device.

A chip's file names it, `chip.machine`. It comes with its network, as `system=NAME` would have it; the number
of devices is kept. A user who sets any key of the network, or has the chip generated from its budgets,
describes the system: no machine is chosen then.
"""

from __future__ import annotations

from fastflow.config.hydra_composer import Composition, HydraComposer
from fastflow.config.messages import key_of, one_of, sets
from fastflow.config.model_inputs import MACHINE
from fastflow.core.errors import InputError
from fastflow.physics.hardware.packages import DEVICES
from fastflow.physics.parallelism.strategy import AUTO

SYSTEM = "system"
NO_SYSTEM = "cluster"
"""The default system: one switch."""
_NO_NETWORK = (DEVICES, "system.collective")
"""Keys of a system that do not describe its network."""
_CALIBRATION, _GENERATED = "calibration", "none"
_GROUPS = (SYSTEM, "net", "links")
_SECTIONS = ("system", "net.inter", "net.intra", "chip.pinned.inter_Bps", "chip.pinned.intra_Bps")
_PRICE = "_price"


def describes_network(key: str) -> bool:
    """Say whether a group or a key of the user describes the network of a system."""
    if key.partition("@")[0] in _GROUPS:
        return True
    in_section = any(f"{key}.".startswith(f"{section}.") for section in _SECTIONS)
    return in_section and key not in _NO_NETWORK and not key.endswith(_PRICE)


def decides_machine(key: str) -> bool:
    """Say whether the choice of the machine may depend on a key."""
    return key == DEVICES or describes_network(key)


def machine_of(composer: HydraComposer, composition: Composition) -> str:
    """Return the machine that the chip of a composition comes in, where no system is chosen; "" for none.

    Raises InputError where that machine is no choice of `system`.
    """
    if composition.choices.get(SYSTEM) != NO_SYSTEM or not has_machine(composition):
        return ""
    machine = composition.selected(MACHINE)
    override_keys = [override.key_or_group for override in composer.read(composition.overrides)]
    files = dict.fromkeys(default.config_path or "" for default in composition.defaults)
    if (
        not machine
        or SYSTEM in override_keys
        or any(SYSTEM in composer.groups_chosen_by(file) for file in files)
    ):
        return ""  # a file, such as a study, may choose the system
    if composer.repository.load_config(f"{SYSTEM}/{machine}") is None:
        allowed = f"null or {one_of(composer.choices(SYSTEM))}"
        raise InputError(MACHINE, machine, allowed, composer.origin(MACHINE, composition))
    return str(machine)


def implied_machine(composer: HydraComposer, composition: Composition) -> str:
    """Return the machine to choose for a composition, "" where the system is unchanged."""
    devices = composition.selected(DEVICES) if has_machine(composition) else 1
    is_several = devices == AUTO or (isinstance(devices, int) and devices > 1)
    if not is_several or network_override(composer, composition):
        return ""
    return machine_of(composer, composition)


def network_override(composer: HydraComposer, composition: Composition) -> str:
    """Return the first of the user's groups and keys that describes the network, "" for none."""
    if composition.choices.get(_CALIBRATION) == _GENERATED:
        return f"{_CALIBRATION}={_GENERATED}"
    override_keys = (override.key_or_group for override in composer.read(composition.overrides))
    return next(filter(describes_network, override_keys), "")


def overrides_for(composition: Composition, machine: str) -> tuple[str, ...]:
    """Return the overrides of a composition with its machine chosen; devices and chip are unchanged."""
    chip = composition.choices.get("chip")  # a list of files is an override
    chosen = (f"{SYSTEM}={machine}", *([f"chip={chip}"] if chip else []))
    devices = composition.written(DEVICES)
    before = [text for text in chosen if not sets(composition.overrides, key_of(text))]
    if not sets(composition.overrides, DEVICES):
        before.append(f"{DEVICES}={devices}")
    return (*before, *composition.overrides)


def has_machine(composition: Composition) -> bool:
    """Say whether the chip of a composition has the key of a machine."""
    content = composition.content.get("chip")
    return content is not None and MACHINE.partition(".")[2] in content
