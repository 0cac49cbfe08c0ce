"""What a configuration takes where a user may mean something else: figures, data types, a machine.

A block `alternative` beside the figures of a file says where published ones differ from those of the paper:
`nominal_frequency: 8 Gb/s`, whose they are (`of: H100's`), the choice that has them (`instead`), and what
the paper's are of (`origin`). It is documentation, as `source` and `uncertainty` are.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from fastflow.config.composer import Composer
from fastflow.config.default_system import SYSTEM, WITHOUT, describing, has_machine, machine_of
from fastflow.config.hydra_composer import Composition, related
from fastflow.config.library import is_own_file
from fastflow.config.model_inputs import ALTERNATIVE, MACHINE
from fastflow.physics.hardware.packages import DEVICES, PACKAGE
from fastflow.physics.workload.models.transformer.hf_config import KEY as CONFIG
from fastflow.physics.workload.models.transformer.hf_config import with_config
from fastflow.physics.workload.models.transformer.published import note_of_types

OF, INSTEAD, ORIGIN = "of", "instead", "origin"
"""What a block says beside figures."""
_WITHIN = f".{ALTERNATIVE}."
_GENERATED = {"mem": "chip.pinned.dram_Bps", "scaling": "chip.pinned.mcus"}
"""Groups whose figures make a part of a chip, and the pin of a chip that is not made of them."""
_OF_LATER_NODES = ("scaling", "chip")
"""Groups whose figures are right at the paper's first node: nothing is scaled to it, and it is V100's."""
_NODE, _MODEL, _PAPERS_MODEL = "tech.generation", "model", "lstm_lm"
_PAIR = 2  # devices of the largest package that is no machine


def assumptions(
    composer: Composer, composition: Composition, swept: Collection[str] = (), of_study: bool = False
) -> tuple[str, ...]:
    """Return what a configuration takes, in words, a text for each thing.

    swept: keys that vary as columns. of_study: whether a ready-made study asks for it; those of the paper's
    own model take the paper's figures as they should.
    """
    is_papers = composition.choices.get(_MODEL) == _PAPERS_MODEL
    found = [] if of_study and is_papers else _of_paper(composer, composition, swept, is_papers)
    leaves = composition.leaves
    note = note_of_types(leaves if leaves.get(CONFIG) is None else with_config(leaves))
    return (*found, *([note] if note else []), *_of_machine(composer, composition, swept))


def _of_paper(
    composer: Composer, composition: Composition, swept: Collection[str], is_papers: bool
) -> Iterator[str]:
    """Yield the choices whose figures are the paper's where published ones differ.

    is_papers: whether the model is the paper's, whose chip and scaling are its own.
    """
    leaves = composition.leaves
    blocks: dict[str, dict[str, str]] = {}
    for key in [key for key in leaves if _WITHIN in key]:
        group, _, name = key.partition(_WITHIN)
        blocks.setdefault(group, {})[name] = str(leaves[key])
    for group, block in blocks.items():
        if group in _OF_LATER_NODES and (is_papers or not leaves.get(_NODE)):
            continue
        pin = _GENERATED.get(group, "")
        if pin in swept or leaves.get(pin) is not None:
            continue
        figures = [key for key in block if key not in (OF, INSTEAD, ORIGIN)]
        taken = [key for key in figures if _is_of_file(composer, composition, group, key, swept)]
        if taken or not figures:
            choice = composition.choices.get(group, "")
            said = _words(
                block, {key: leaves[f"{group}.{key}"] for key in taken}, group if is_own_file(choice) else ""
            )
            yield f"{group}={choice}, the paper's figure: {said}"


def _words(block: Mapping[str, str], taken: Mapping[str, object], own: str) -> str:
    """Say which figures of a choice are the paper's, and what is published instead.

    block: `alternative`; taken: figures with their values. own: the group where the choice is a user's own
    file, for which no other one stands.
    """
    keys = [f"{own}.{key}='{block[key]}'" for key in taken] if own else []
    instead = " ".join(keys) or block.get(INSTEAD, "")
    advice = f" ({instead})" if instead else ""
    origin = f"{block[ORIGIN]} " if ORIGIN in block else ""
    said = [f"{key} {origin}{value}, not {block[OF]} {block[key]}" for key, value in taken.items()]
    return f"{', '.join(said) or f'not {block[OF]}'}{advice}"


def _is_of_file(
    composer: Composer, composition: Composition, group: str, name: str, swept: Collection[str]
) -> bool:
    """Say whether a figure is that of the file whose block speaks of it, and of no later one or the user."""
    key = f"{group}.{name}"
    given = (override.key_or_group for override in composer.read(composition.overrides))
    if any(related(key, one) for one in (*given, *swept) if not composer.is_group(one)):
        return False
    for default in reversed(composition.defaults):
        if composer.sets(default, key):
            return composer.sets(default, f"{group}.{ALTERNATIVE}.{name}")
    return False


def _of_machine(composer: Composer, composition: Composition, swept: Collection[str]) -> Iterator[str]:
    """Yield what is taken for the machine of a real chip where no system is chosen."""
    chip = f"chip={composition.choices.get('chip', '')}"
    if composition.machine:
        yield f"system={composition.machine}, the machine of {chip}{_of_more(composer, composition)}"
        return
    devices = composition.selected(DEVICES)
    several = DEVICES in swept or (isinstance(devices, int) and devices > 1)
    if not several or composition.choices.get(SYSTEM) != WITHOUT or not has_machine(composition):
        return
    machine, why = machine_of(composer, composition), describing(composer, composition)
    if machine:
        because = f"since {why} is given" if why else "as for one device"
        yield f"system={WITHOUT}, one switch, {because} ({chip} comes in system={machine})"
    elif composition.selected(MACHINE) is None and not why:
        yield f"system={WITHOUT}, one switch, since the library has no machine of {chip}"


def _of_more(composer: Composer, composition: Composition) -> str:
    """Say of a machine that has no network to others that more devices are taken than it has."""
    package, devices = composition.selected(PACKAGE), composition.selected(DEVICES)
    most = composer.compose_raw((f"{SYSTEM}={composition.machine}",)).selected(DEVICES)
    if not isinstance(package, int) or package > _PAIR or not devices > most:
        return ""
    return f", all {devices:,} in one, where {most} fit"
