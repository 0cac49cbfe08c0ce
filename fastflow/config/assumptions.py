"""Assumptions of a configuration that a user may not intend: figures, data types, a machine.

A block `alternative` in a file lists published figures that differ from those of the paper:
`nominal_frequency: 8 Gb/s`, their product (`of: H100's`), the choice that has them (`instead`), and the
product of the paper's figures (`origin`). It is documentation, as `source` and `uncertainty` are.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from fastflow.config.composer import Composer
from fastflow.config.default_system import NO_SYSTEM, SYSTEM, has_machine, machine_of, network_override
from fastflow.config.hydra_composer import Composition, related
from fastflow.config.library import is_user_file
from fastflow.config.model_inputs import ALTERNATIVE, MACHINE
from fastflow.physics.hardware.packages import DEVICES, PACKAGE
from fastflow.physics.parallelism.strategy import AUTO
from fastflow.physics.workload.models.config_files import with_config
from fastflow.physics.workload.models.transformer.config_json.read import KEY as CONFIG
from fastflow.physics.workload.models.transformer.config_json.read import note_of_type
from fastflow.physics.workload.models.transformer.published import note_of_types

OF, INSTEAD, ORIGIN = "of", "instead", "origin"
"""Keys of a block that are no figures."""
_WITHIN = f".{ALTERNATIVE}."
_GENERATED = {"mem": "chip.pinned.dram_Bps", "scaling": "chip.pinned.mcus"}
"""Groups whose figures generate a part of a chip, and the key that pins that part instead."""
_SCALED_GROUPS = ("scaling", "chip")
"""Groups whose figures are right at the paper's first node: nothing is scaled to it, and it is V100's."""
_NODE, _MODEL, _PAPERS_MODEL = "tech.generation", "model", "lstm_lm"
_PAIR = 2  # devices of the largest package that is no machine


def assumptions(
    composer: Composer, composition: Composition, swept: Collection[str] = (), of_study: bool = False
) -> tuple[str, ...]:
    """Return the assumptions of a configuration, a text for each.

    swept: keys that vary as columns. of_study: whether a ready-made study sets the configuration;
    those of the paper's model use the paper's figures on purpose.
    """
    is_papers = composition.choices.get(_MODEL) == _PAPERS_MODEL
    of_paper = [] if of_study and is_papers else _paper_assumptions(composer, composition, swept, is_papers)
    leaves = composition.leaves
    path = leaves.get(CONFIG)
    notes = (
        "" if path is None else note_of_type(str(path)),
        note_of_types(leaves if path is None else with_config(leaves)),
    )
    return (*of_paper, *filter(None, notes), *_machine_assumptions(composer, composition, swept))


def _paper_assumptions(
    composer: Composer, composition: Composition, swept: Collection[str], is_papers: bool
) -> Iterator[str]:
    """Yield the choices whose figures are the paper's where published ones differ.

    is_papers: whether the model is the paper's, whose figures fit its chip and scaling.
    """
    leaves = composition.leaves
    blocks: dict[str, dict[str, str]] = {}
    for key in [key for key in leaves if _WITHIN in key]:
        group, _, name = key.partition(_WITHIN)
        blocks.setdefault(group, {})[name] = str(leaves[key])
    for group, block in blocks.items():
        if group in _SCALED_GROUPS and (is_papers or not leaves.get(_NODE)):
            continue
        pin = _GENERATED.get(group, "")
        if pin in swept or leaves.get(pin) is not None:
            continue
        figures = [key for key in block if key not in (OF, INSTEAD, ORIGIN)]
        unchanged = [key for key in figures if _is_value_of_file(composer, composition, group, key, swept)]
        if unchanged or not figures:
            choice = composition.choices.get(group, "")
            text = _figures_text(
                block,
                {key: leaves[f"{group}.{key}"] for key in unchanged},
                group if is_user_file(choice) else "",
            )
            yield f"{group}={choice}, the paper's value: {text}"


def _figures_text(block: Mapping[str, str], unchanged: Mapping[str, object], user_group: str) -> str:
    """Return the figures of a choice that are the paper's, with the published ones, as text.

    block: `alternative`; unchanged: figures with their values. user_group: the group where the choice is
    a user's file, which has no published alternative; else "".
    """
    keys = [f"{user_group}.{key}='{block[key]}'" for key in unchanged] if user_group else []
    instead = " ".join(keys) or block.get(INSTEAD, "")
    advice = f" ({instead})" if instead else ""
    origin = f"{block[ORIGIN]} " if ORIGIN in block else ""
    texts = [f"{key} {origin}{value}, not {block[OF]} {block[key]}" for key, value in unchanged.items()]
    return f"{', '.join(texts) or f'not {block[OF]}'}{advice}"


def _is_value_of_file(
    composer: Composer, composition: Composition, group: str, name: str, swept: Collection[str]
) -> bool:
    """Say whether the file with the block `alternative` sets the figure, and nothing overrides it."""
    key = f"{group}.{name}"
    override_keys = (override.key_or_group for override in composer.read(composition.overrides))
    if any(related(key, other) for other in (*override_keys, *swept) if not composer.is_group(other)):
        return False
    for default in reversed(composition.defaults):
        if composer.sets(default, key):
            return composer.sets(default, f"{group}.{ALTERNATIVE}.{name}")
    return False


def _machine_assumptions(
    composer: Composer, composition: Composition, swept: Collection[str]
) -> Iterator[str]:
    """Yield the assumed machine of a real chip where no system is chosen."""
    chip = f"chip={composition.choices.get('chip', '')}"
    if composition.machine:
        yield f"system={composition.machine}, the machine of {chip}{_oversize_note(composer, composition)}"
        return
    devices = composition.selected(DEVICES)
    is_multi_device = DEVICES in swept or devices == AUTO or (isinstance(devices, int) and devices > 1)
    if not is_multi_device or composition.choices.get(SYSTEM) != NO_SYSTEM or not has_machine(composition):
        return
    machine, network_key = machine_of(composer, composition), network_override(composer, composition)
    if machine:
        because = f"since {network_key} is given" if network_key else "as for one device"
        yield f"system={NO_SYSTEM}, one switch, {because} ({chip} comes in system={machine})"
    elif composition.selected(MACHINE) is None and not network_key:
        yield f"system={NO_SYSTEM}, one switch, since the library has no machine of {chip}"


def _oversize_note(composer: Composer, composition: Composition) -> str:
    """Return a note where a machine without external network gets more devices than it has."""
    package, devices = composition.selected(PACKAGE), composition.selected(DEVICES)
    max_devices = composer.compose_raw((f"{SYSTEM}={composition.machine}",)).selected(DEVICES)
    is_more = isinstance(devices, int) and devices > max_devices
    if not isinstance(package, int) or package > _PAIR or not is_more:
        return ""
    return f", all {devices:,} in one, where {max_devices} fit"
