"""What linear-time mixers share: a short convolution, a recurrence with a state of fixed size, and a norm.

Training and prompts run the recurrence in chunks of tokens; a request that decodes reads and writes its
states once a token. Of a pass that verifies draft tokens each state is read once, and written after every
token, since any of them may be the last that is accepted (vllm-project/vllm@02d7108,
vllm/model_executor/layers/fla/ops/fused_recurrent.py).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from fastflow.core.tables import Inputs, Ints
from fastflow.physics.workload.graph import Dims, Kernel
from fastflow.physics.workload.models.transformer.building_blocks import HEADS, TOKENS
from fastflow.physics.workload.models.transformer.dimensions import Sizes
from fastflow.physics.workload.models.transformer.layer_kind import LayerKind
from fastflow.physics.workload.models.transformer.mixer import LayerCache, Mixer
from fastflow.physics.workload.network import INPUT, Network, Node, PassCost, Size
from fastflow.physics.workload.ops import pointwise
from fastflow.physics.workload.ops.elementwise import TYPE as PASS
from fastflow.physics.workload.ops.recurrence import (
    RecurrenceSizes,
    convolution,
    convolution_step,
    recurrence,
    recurrence_step,
)
from fastflow.physics.workload.precision import Precision

MIXER_IN, CONVOLUTION, RECURRENCE = "mixer in", "convolution", "recurrence"
CORE_NODES = (CONVOLUTION, RECURRENCE)
OF_HEADS = Dims(TOKENS, (), HEADS)
RANK = ("mixer_rank",)
"""The dimension of low-rank gates, which no axis shards: every device computes them."""
_GATE_FLOP = 4.0  # SiLU of the gate
_DRAFTS = "serve.num_speculative_tokens"


def keys_of(size: Sizes) -> Size:
    """Return the columns of the keys of all heads."""
    keys: Size = size.linear_key_heads * size.linear_key_dim
    return keys


def values_of(size: Sizes) -> Size:
    """Return the columns of the values of all heads."""
    values: Size = size.linear_heads * size.linear_value_dim
    return values


def queries_keys_and_values(size: Sizes) -> Size:
    """Return the columns of queries, keys and values of all heads."""
    return 2 * keys_of(size) + values_of(size)


def rank_of(size: Sizes, default: Size) -> Size:
    """Return the columns of low-rank gates: those that a model states, or the authors' default."""
    if isinstance(size.linear_rank, int):
        return size.linear_rank or default
    return np.where(size.linear_rank > 0, size.linear_rank, default)


def needs(name: str, *keys: str) -> tuple[tuple[str, str], ...]:
    """Return the sizes that a mixer of a name needs, as `Mixer.needs` has them."""
    return tuple((f"model.{key}", name) for key in keys)


def mixer_of_rule(
    name: str, meaning: str, rule: str, nodes: Callable[[Inputs, Sizes, LayerKind, str], list[Node]], *,
    channels: Callable[[Sizes], Size] | None = queries_keys_and_values,
    recurrent: Callable[[Sizes], Sizes] = lambda size: size,
    tokens: Callable[[Sizes], Size] | None = None,
    needed: tuple[str, ...] = ("linear_heads", "linear_key_dim"), further: tuple[str, ...] = (),
) -> Mixer:  # fmt: skip
    """Return a mixer that runs a recurrence, behind a convolution of some channels or, if None, of none.

    rule: of ops.recurrence.RULES; nodes: as `Mixer.nodes`; recurrent: makes the sizes of the recurrence;
    tokens: as of `state_cache`; needed, further: names of sizes, as `Mixer.needs` and `Mixer.further`.
    """

    def core(points: Inputs, size: Sizes, kind: LayerKind, decodes: bool) -> list[Node]:
        return core_of_serving(recurrent(size), rule, channels(size) if channels else None, decodes)

    return Mixer(
        name=name,
        meaning=meaning,
        nodes=nodes,
        core=core,
        core_nodes=CORE_NODES if channels else (RECURRENCE,),
        cache=state_cache(channels, lambda size: elements_of_states(recurrent(size)), tokens),
        needs=needs(name, *needed),
        further=tuple(f"model.{key}" for key in further),
        of_heads=(),
    )


def core_of_training(
    size: Sizes, rule: str, reads: tuple[str, ...], channels: Size | None = None, *, vectors: Size = 0,
    biased: bool = False, further_cols: Size = 0, keeps_convolution: bool = True,
) -> list[Node]:  # fmt: skip
    """Return the convolution, where there is one, and the recurrence over whole sequences.

    rule: of ops.recurrence.RULES; reads: the nodes that make their input, of which the convolution reads the
    first; further_cols: columns that the recurrence reads of the others; channels: of the convolution, None
    for none; vectors: weights of the recurrence; biased: whether the convolution has a bias a channel;
    keeps_convolution: false where the backward pass recomputes its output.
    """
    nodes: list[Node] = []
    if channels is not None and _convolves(size):
        kept: dict[str, Any] = {} if keeps_convolution else {"keeps": 0, "keeps_whole": 0}
        nodes.append(
            convolution(
                CONVOLUTION, size.sequences, size.sequence, channels, 1.0 * np.asarray(size.conv_width),
                reads=reads[:1], dims=OF_HEADS, vectors=channels * (size.conv_width + int(biased)), **kept,
            )
        )  # fmt: skip
        reads = (CONVOLUTION, *reads[1:])
    sizes = recurrence_sizes(size, size.sequences, size.sequence)
    core = recurrence(RECURRENCE, rule, sizes, reads=reads, dims=OF_HEADS, vectors=vectors)
    if nodes and len(reads) > 1:  # the convolution's output has the recurrence's own placement
        core = core._replace(attributes={**core.attributes, "read_cols": 1.0 * np.asarray(further_cols)})
    return [*nodes, core]


def core_of_serving(size: Sizes, rule: str, channels: Size | None, decodes: bool) -> list[Node]:
    """Return the convolution and the recurrence of prompts, or of the tokens of requests that decode."""
    nodes = convolution_of_serving(size, channels, decodes)
    shared: dict[str, Any] = {
        "reads": (nodes[-1].name if nodes else INPUT,), "dims": OF_HEADS, "keeps": 0,
    }  # fmt: skip
    if decodes:
        tokens = np.asarray(size.sequence)
        moved = size.state_bytes * (1.0 + tokens) / (2.0 * tokens)  # read once, written after each token
        step = recurrence_sizes(size, size.sequences * size.sequence, 1)._replace(state_bytes=moved)
        return [*nodes, recurrence_step(RECURRENCE, rule, step, **shared)]
    chunks = recurrence_sizes(size, size.sequences, size.sequence)
    return [*nodes, recurrence(RECURRENCE, rule, chunks, **shared)]


def convolution_of_serving(size: Sizes, channels: Size | None, decodes: bool) -> list[Node]:
    """Return the convolution of prompts or of requests that decode; none where models have none."""
    if channels is None or not _convolves(size):
        return []
    width = 1.0 * np.asarray(size.conv_width)
    shared: dict[str, Any] = {"reads": (INPUT,), "dims": OF_HEADS, "keeps": 0, "vectors": 0}
    if decodes:
        tokens = size.sequences * size.sequence
        return [convolution_step(CONVOLUTION, tokens, channels, width, **shared)]
    return [convolution(CONVOLUTION, size.sequences, size.sequence, channels, width, **shared)]


def _convolves(size: Sizes) -> bool:
    return bool(np.any(np.asarray(size.conv_width) > 0))


def recurrence_sizes(size: Sizes, sequences: Size, tokens: Size) -> RecurrenceSizes:
    """Return the sizes of a recurrence over sequences of some tokens."""
    return RecurrenceSizes(
        sequences, tokens, size.linear_key_heads, size.linear_key_dim, size.linear_heads,
        size.linear_value_dim, size.state_bytes,
    )  # fmt: skip


# --- passes around the recurrence


def _backward(network: Network, i: int, kernel: Kernel, precision: Precision) -> list[Kernel]:
    """Return the gradient of a pass: of what it reads, only the recurrence's output may be elsewhere."""
    cols = network.nodes[i].node.cols
    return [
        gradient._replace(comm=gradient.comm._replace(summed_cols=cols))
        for gradient in PASS.backward(network, i, kernel, precision)
    ]


AFTER_CORE = replace(PASS, title="gate", backward=_backward)
"""A pass over the recurrence's output and gates, which products of the same device made."""


def gated_norm(size: Sizes, read: str, gate: str, name: str = "gated norm") -> Node:
    """Return the norm of each head's output, times the SiLU of a gate; gate: the product that makes it."""
    operator = pointwise.OPERATORS["rmsnorm"]
    return Node(
        name=name, type=AFTER_CORE, rows=size.tokens, cols=values_of(size), reads=(read, gate),
        cost=PassCost(3.0, operator.flop + _GATE_FLOP, 5.0), dims=OF_HEADS, vectors=size.linear_value_dim,
    )  # fmt: skip


def gated(size: Sizes, read: str, gate: str, cols: Size, flop: float, name: str = "output gate") -> Node:
    """Return the product of a mixer's output and a gate's activation; flop: operations of an element."""
    return Node(
        name=name, type=AFTER_CORE, rows=size.tokens, cols=cols, reads=(read, gate),
        cost=PassCost(3.0, flop, 5.0), dims=OF_HEADS,
    )  # fmt: skip


# --- what a request keeps


def elements_of_states(size: Sizes) -> Size:
    """Return the elements of the states of all heads: key x value columns each."""
    elements: Size = size.linear_heads * size.linear_key_dim * size.linear_value_dim
    return elements


def state_cache(
    channels: Callable[[Sizes], Size] | None,
    states: Callable[[Sizes], Size],
    tokens: Callable[[Sizes], Size] | None = None,
) -> Callable[[Inputs, Sizes, LayerKind, Precision, Ints], LayerCache]:
    """Return what a mixer keeps of a request, whatever the number of its tokens.

    channels: of the convolution, of which the last tokens are kept, and where a server verifies draft tokens
    those, too (vllm-project/vllm@02d7108, vllm/model_executor/layers/mamba/mamba_utils.py); states: their
    elements; both of the sizes of a device. tokens: further columns of the last token, which every device
    has.
    """

    def cache(inputs: Inputs, size: Sizes, kind: LayerKind, numbers: Precision, tensor: Ints) -> LayerCache:
        local = size._replace(
            linear_heads=-(-np.asarray(size.linear_heads) // tensor),
            linear_key_heads=-(-np.asarray(size.linear_key_heads) // tensor),
            hidden=-(-np.asarray(size.hidden) // tensor),
        )
        drafts = inputs.get(_DRAFTS, np.zeros(tensor.shape, np.int64))
        window = np.where(np.asarray(size.conv_width) > 0, size.conv_width - 1 + drafts, 0)
        last = (window * channels(local) if channels else 0) + (tokens(size) if tokens else 0)
        state = states(local) * size.state_bytes + last * numbers.activation
        none = np.zeros(state.shape)
        return LayerCache(none, none, state)

    return cache
