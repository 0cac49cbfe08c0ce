"""The kind of a transformer's layer: how it mixes tokens, its feed-forward part, and sizes of its own."""

from __future__ import annotations

from typing import NamedTuple

PATTERN, MOST_LAYERS = "model.pattern", 10_000
ATTENTION, NO_MIXER = "attention", "no_mixer"
DENSE, EXPERTS, NO_FEED_FORWARD = "dense", "experts", "no_ffn"
FEED_FORWARDS = (DENSE, EXPERTS, NO_FEED_FORWARD)
SHARED_KV, EQUAL_KV, TIED = "shared_kv", "equal_kv", "tied"
OF_KEYS = (SHARED_KV, EQUAL_KV)
"""Modifiers of attention: keys and values of an earlier layer; keys that are values too."""
MODIFIERS = (*OF_KEYS, TIED)
"""Tied layers have the weights of an earlier layer of the same kind."""
OWN_SIZES = (
    "heads", "kv_heads", "head_dim", "value_dim", "ffn", "expert_ffn", "experts", "topk", "shared_ffn",
    "compression", "index_topk", "linear_heads", "linear_key_heads", "linear_key_dim", "linear_value_dim",
)  # fmt: skip
"""Sizes that a kind may have of its own, instead of the model's."""


class LayerKind(NamedTuple):
    """A kind of layer."""

    mixers: tuple[str, ...] = (ATTENTION,)  # in parallel, on the same input; () for none
    feed_forward: str = DENSE
    modifiers: tuple[str, ...] = ()
    sizes: tuple[tuple[str, int], ...] = ()  # of its own, by their names

    @property
    def text(self) -> str:
        """The kind as a pattern has it, in the shortest form."""
        mixers = () if self.mixers == (ATTENTION,) else self.mixers or (NO_MIXER,)
        sizes = " ".join(f"{name}={size}" for name, size in self.sizes)
        return " ".join((*mixers, *self.modifiers, self.feed_forward)) + (f"({sizes})" if sizes else "")

    @property
    def of_keys(self) -> list[str]:
        """Its modifiers of attention."""
        return [word for word in self.modifiers if word in OF_KEYS]

    @property
    def is_tied(self) -> bool:
        """Whether its weights are those of an earlier layer."""
        return TIED in self.modifiers

    @property
    def has_experts(self) -> bool:
        """Whether its feed-forward part is a mixture of experts."""
        return self.feed_forward == EXPERTS
