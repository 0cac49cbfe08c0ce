"""What a mixer is: the part of a layer in which tokens read each other, such as attention; and the registry.

A mixer is a file in the folder `mixers`, with an entry here, or an installed package's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from fastflow.core.registry import Registry
from fastflow.core.tables import Floats, Inputs, Ints
from fastflow.physics.workload.precision import Precision

if TYPE_CHECKING:
    from fastflow.physics.workload.models.transformer.dimensions import Sizes
    from fastflow.physics.workload.models.transformer.layer_kind import LayerKind
    from fastflow.physics.workload.network import Node

PROJECTION = "projection"
"""The last node of every mixer, which makes its output."""


class LayerCache(NamedTuple):
    """Bytes of a request on a device, in one layer; (points,)."""

    token: Floats  # of every token [B]
    windowed: Floats  # of each of the last `model.window` tokens [B]
    state: Floats  # whatever the number of its tokens [B]


class Mixer(NamedTuple):
    """A mixer of tokens. Its functions take models with the same structure; `Sizes` are those of the kind.

    `nodes` are those of training, from its first product on the norm's output (the last argument) to its
    projection. In serving, `core` replaces those named `core_nodes`, which keep something of earlier tokens:
    for the prompts of a pass, or, where its last argument is true, for requests that decode.
    """

    name: str  # as a pattern has it
    meaning: str
    nodes: Callable[[Inputs, Sizes, LayerKind, str], list[Node]]
    core: Callable[[Inputs, Sizes, LayerKind, bool], list[Node]]
    core_nodes: tuple[str, ...]
    # of sizes, bytes of an element, and degrees of tensor parallelism: what a layer keeps of a request
    cache: Callable[[Inputs, Sizes, LayerKind, Precision, Ints], LayerCache]
    attends: bool = False  # whether it has keys and values of heads, which `layer_kind.MODIFIERS` change
    needs: tuple[tuple[str, str], ...] = ()  # keys that must be above 0, and the word that names their use
    further: tuple[str, ...] = ()  # keys that it uses where they are above 0
    untied: tuple[str, ...] = ()  # nodes whose weights even tied layers do not share
    # which sizes of attention's heads, which every model has, it uses
    of_heads: tuple[str, ...] = ("heads", "kv_heads", "head_dim", "value_dim")
    latent: bool = False  # whether its keys are latent, without heads of their own, where `model.latent` is

    @property
    def uses(self) -> tuple[str, ...]:
        """The keys of sizes that it uses, besides those that every model has."""
        return (*(key for key, _ in self.needs), *self.further)

    @property
    def sizes(self) -> frozenset[str]:
        """The names of the sizes that it uses, of which a kind of layer may have its own."""
        return frozenset({*self.of_heads, *(key.removeprefix("model.") for key in self.uses)})


_PACKAGE = "fastflow.physics.workload.models.transformer"
OF_HEADS = ("attention", "window", "chunked")
"""Mixers with a product of queries, keys and values of heads. Their work alone depends on the documents of a
packed sequence; that of linear-time mixers does not."""
MIXERS: Registry[Mixer] = Registry(
    "model.pattern",
    "mixers",
    lambda thing: isinstance(thing, Mixer),
    f"a {_PACKAGE}.mixer.Mixer",
    modules={
        name: f"{_PACKAGE}.mixers.{module}:{attribute}"
        for name, module, attribute in (
            ("attention", "attention", "ATTENTION"),
            ("window", "attention", "WINDOW"),
            ("chunked", "attention", "CHUNKED"),
            ("sparse", "sparse", "SPARSE"),
            ("compressed", "compressed", "COMPRESSED"),
            ("native_sparse", "native_sparse", "NATIVE_SPARSE"),
            ("gated_delta", "gated_delta", "GATED_DELTA"),
            ("kimi_delta", "kimi_delta", "KIMI_DELTA"),
            ("mamba", "mamba", "MAMBA"),
            ("normed_mamba", "mamba", "NORMED_MAMBA"),
            ("mamba2", "mamba2", "MAMBA2"),
            ("gated_linear", "gated_linear", "GATED_LINEAR"),
            ("retention", "retention", "RETENTION"),
            ("rwkv7", "rwkv7", "RWKV7"),
            ("lightning", "lightning", "LIGHTNING"),
            ("local_linear", "local_linear", "LOCAL_LINEAR"),
            ("short_conv", "short_conv", "SHORT_CONV"),
            ("rg_lru", "rg_lru", "RG_LRU"),
            ("zamba", "zamba", "ZAMBA"),
            ("zamba2", "zamba", "ZAMBA2"),
            ("adapted_zamba2", "zamba", "ADAPTED_ZAMBA2"),
        )
    },
)
"""Mixers by name."""
