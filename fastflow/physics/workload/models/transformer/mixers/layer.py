"""The mixers of a layer, in parallel on the same input: their nodes in training, and in serving."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fastflow.core.tables import Inputs
from fastflow.physics.workload.models.transformer.dimensions import Sizes
from fastflow.physics.workload.models.transformer.layer_kind import LayerKind
from fastflow.physics.workload.models.transformer.mixer import MIXERS, PROJECTION, Mixer
from fastflow.physics.workload.network import Node


def mixer_nodes(
    points: Inputs, size: Sizes, kind: LayerKind, read: str
) -> tuple[list[Node], tuple[str, ...]]:
    """Return the nodes of a layer's mixers on the output of `read`, and those whose sum is the output."""
    nodes: list[Node] = []
    for mixer, prefix in _mixers(kind):
        nodes += _renamed(mixer.nodes(points, size, kind, read), prefix)
    return nodes, tuple(f"{prefix}{PROJECTION}" for _, prefix in _mixers(kind))


def core_names(kind: LayerKind) -> set[str]:
    """Return the names of the nodes that `core_nodes` replaces in serving."""
    return {f"{prefix}{name}" for mixer, prefix in _mixers(kind) for name in mixer.core_nodes}


def core_nodes(points: Inputs, size: Sizes, kind: LayerKind, decodes: bool) -> list[Node]:
    """Return the nodes of a layer's mixers in serving that keep something of earlier tokens."""
    nodes: list[Node] = []
    for mixer, prefix in _mixers(kind):
        nodes += _renamed(mixer.core(points, size, kind, decodes), prefix)
    return nodes


def untied_names(kind: LayerKind) -> set[str]:
    """Return the names of the nodes whose weights even tied layers do not share."""
    return {f"{prefix}{name}" for mixer, prefix in _mixers(kind) for name in mixer.untied}


def _mixers(kind: LayerKind) -> Iterator[tuple[Mixer, str]]:
    """Yield the mixers of a layer, with the prefix of their nodes' names: none where there is one mixer."""
    for name in kind.mixers:
        yield MIXERS[name], f"{name} " if len(kind.mixers) > 1 else ""


def _renamed(nodes: Sequence[Node], prefix: str) -> list[Node]:
    names = {node.name: prefix + node.name for node in nodes}
    return [
        node._replace(name=names[node.name], reads=tuple(names.get(read, read) for read in node.reads))
        for node in nodes
    ]
