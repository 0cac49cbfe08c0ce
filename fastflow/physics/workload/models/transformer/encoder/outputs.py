"""What comes out of an encoder: logits, one vector of a sequence, or tokens of a language model.

The pooler and the further layer before the logits of masked tokens are BERT's (arXiv:1810.04805, section 3.1;
transformers' BertPooler and BertPredictionHeadTransform). The probe is SigLIP's, a learned query that attends
to all patches (huggingface/transformers, SiglipMultiheadAttentionPoolingHead). The projector makes tokens of
a language model: patches side by side, or their mean, and products with an activation between them (merger of
Qwen2-VL, arXiv:2409.12191, section 2.1; pixel shuffle of InternVL, arXiv:2404.16821, section 3.2; Gemma 3,
arXiv:2503.19786, section 2.2).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fastflow.core.tables import Inputs
from fastflow.physics.workload.graph import HEAD, Dims
from fastflow.physics.workload.models.transformer.building_blocks import (
    FEED_FORWARD,
    HEADS,
    HIDDEN,
    TOKENS,
    activation,
    gemm,
)
from fastflow.physics.workload.models.transformer.dimensions import ALL, POST, Sizes
from fastflow.physics.workload.models.transformer.encoder.dimensions import (
    CLASSIFIER,
    LOGITS,
    MASKED,
    MEAN,
    POOLER,
    PROBE,
    PROJECTOR,
    EncoderSizes,
    projector_columns,
)
from fastflow.physics.workload.models.transformer.feed_forward import dense
from fastflow.physics.workload.models.transformer.network import layer_norm, logits_and_loss, loss_of
from fastflow.physics.workload.network import INPUT, Node, PassCost, Size
from fastflow.physics.workload.ops import pointwise
from fastflow.physics.workload.ops.attention import AttentionSizes, attention

_SEQUENCES = ("batch",)
_CLASSES = ("classes",)
_MERGED = ("merged",)
_CORE_DIMS = Dims((), (), HEADS, ("batch",))


def last_layer(points: Inputs, size: Sizes, ends: EncoderSizes) -> tuple[Node, ...]:
    """Return the nodes after the last layer: its norm, where layers begin with norms, and the output."""
    nodes = [] if points["model.block"][0] == POST else [layer_norm(points, size, "head norm", INPUT)]
    read = nodes[-1].name if nodes else INPUT
    make = {
        LOGITS: _logits, MASKED: _masked, POOLER: _pooler, MEAN: _mean, PROBE: _probe,
        CLASSIFIER: _classifier, PROJECTOR: _projector,
    }.get(str(points["model.output"][0]))  # fmt: skip
    nodes += make(points, size, ends, read) if make else []
    # a layer has a node: the output of norms after the layers is read as it is
    nodes = nodes or [_pass("output", size.tokens, size.hidden, INPUT, TOKENS, 0.0)]
    return tuple(node._replace(part=HEAD) for node in nodes)


def _pass(name: str, rows: Size, cols: Size, read: str, names: tuple[str, ...], moves: Any) -> Node:
    """Return a pass that selects or sums rows; moves: elements for each element of its output."""
    base = pointwise.OPERATORS["exp"].base
    return Node(
        name=name, type=base, rows=rows, cols=cols, reads=(read,), dims=Dims(names, (), HIDDEN),
        cost=PassCost(moves, moves - 1.0 if np.any(np.asarray(moves) > 0.0) else 0.0, moves),
    )  # fmt: skip


def _is_biased(points: Inputs) -> bool:
    return str(points["model.biases"][0]) == ALL


def _dense(points: Inputs, size: Sizes, name: str, rows: Size, names: tuple[str, ...], read: str) -> Node:
    """Return a product from hidden to hidden columns."""
    node = gemm(name, size, size.hidden, size.hidden, read, (HIDDEN, HIDDEN), _is_biased(points))
    return node._replace(rows=rows, dims=Dims(names, HIDDEN, HIDDEN))


def _logits(points: Inputs, size: Sizes, ends: EncoderSizes, read: str) -> list[Node]:
    return logits_and_loss(size, read, bool(points["model.tied"][0]))


def _masked(points: Inputs, size: Sizes, ends: EncoderSizes, read: str) -> list[Node]:
    """Return BERT's layer before the logits, of all tokens as its code has it, and the logits."""
    kind = str(points["model.activation"][0])
    nodes = [
        _dense(points, size, "transform", size.tokens, TOKENS, read),
        activation("transform activation", size, kind, False, "transform", size.hidden, dims=_hidden_of()),
        layer_norm(points, size, "transform norm", "transform activation"),
    ]
    logits, loss = logits_and_loss(size, nodes[-1].name, bool(points["model.tied"][0]))
    return [*nodes, logits._replace(vectors=size.vocabulary if _is_biased(points) else 0), loss]


def _hidden_of() -> Dims:
    return Dims(TOKENS, (), HIDDEN)


def _pooler(points: Inputs, size: Sizes, ends: EncoderSizes, read: str) -> list[Node]:
    """Return the first token of each sequence, its product and tanh."""
    tanh = pointwise.OPERATORS["tanh"]
    return [
        _pass("first token", size.sequences, size.hidden, read, _SEQUENCES, 2.0),
        _dense(points, size, "pooler", size.sequences, _SEQUENCES, "first token"),
        Node(
            name="pooler activation", type=tanh.base, rows=size.sequences, cols=size.hidden,
            reads=("pooler",), cost=PassCost(2.0, tanh.flop, float(tanh.backward)),
            dims=Dims(_SEQUENCES, (), HIDDEN),
        ),
    ]  # fmt: skip


def _mean(points: Inputs, size: Sizes, ends: EncoderSizes, read: str) -> list[Node]:
    return [_pass("mean", size.sequences, size.hidden, read, _SEQUENCES, 1.0 + size.sequence)]


def _probe(points: Inputs, size: Sizes, ends: EncoderSizes, read: str) -> list[Node]:
    """Return attention of a learned query, whose feed-forward layer has a norm before it."""
    per_sequence = size._replace(tokens=size.sequences)
    of_probe = AttentionSizes(
        size.sequences, _ones(size.sequence), size.sequence, size.heads, size.heads, size.head_dim,
        size.head_dim, 0,
    )  # fmt: skip
    width = size.heads * size.head_dim
    keys = gemm("probe keys", size, size.hidden, 2 * width, read, (HIDDEN, HEADS), _is_biased(points))
    # the probe and its product, the same for every image
    query_weights = size.hidden * (size.hidden + 1 + int(_is_biased(points)))
    projection = gemm("probe projection", per_sequence, width, size.hidden, "probe", (HEADS, HIDDEN),
                      _is_biased(points))  # fmt: skip
    nodes = [
        keys._replace(vectors=keys.vectors + query_weights),
        attention("probe", ("probe keys",), of_probe, False, expanded=True, dims=_CORE_DIMS),
        projection._replace(dims=Dims(_SEQUENCES, HEADS, HIDDEN)),
        layer_norm(points, per_sequence, "probe norm", "probe projection"),
    ]
    branch, outputs = dense(points, per_sequence, "probe norm")
    of_sequences = [node._replace(dims=node.dims._replace(rows=_SEQUENCES)) for node in (*nodes[3:], *branch)]
    last = _pass("probe add", size.sequences, size.hidden, "probe projection", _SEQUENCES, 3.0)
    return [*nodes[:3], *of_sequences, last._replace(reads=(*outputs, "probe projection"))]


def _ones(size: Size) -> Size:
    return 1 if isinstance(size, int) else np.ones_like(size)


def _classifier(points: Inputs, size: Sizes, ends: EncoderSizes, read: str) -> list[Node]:
    """Return the logits of the classes from one token or the mean, and their loss.

    After BERT's norms a pooler comes before them (BertForSequenceClassification).
    """
    nodes = (
        _pooler(points, size, ends, read)
        if points["model.block"][0] == POST
        else [_pass("first token", size.sequences, size.hidden, read, _SEQUENCES, 2.0)]
    )
    logits = gemm("class logits", size, size.hidden, ends.classes, nodes[-1].name, (HIDDEN, _CLASSES), True)
    logits = logits._replace(
        rows=size.sequences, dims=Dims(_SEQUENCES, HIDDEN, _CLASSES), keeps=0, keeps_whole=0, wide=True
    )
    per_sequence = size._replace(tokens=size.sequences)
    loss = loss_of(per_sequence, ends.classes, "class logits")
    return [*nodes, logits, loss._replace(dims=Dims(_SEQUENCES, (), _CLASSES))]


def _projector(points: Inputs, size: Sizes, ends: EncoderSizes, read: str) -> list[Node]:
    """Return the products that make tokens of a language model, with activations between them.

    Projectors of earlier layers are as many groups of rows, each with weights of its ends.
    """
    groups, biased = ends.projectors, _is_biased(points)
    rows: Any = size.sequences * -(-ends.patches // ends.merged) * groups
    nodes: list[Node] = []
    inner = size.hidden * ends.merged
    if points["model.pooled"][0]:
        moves = 1.0 + ends.merged
        nodes, inner = [_pass("merge", rows, size.hidden, read, TOKENS, moves)], size.hidden
    columns = projector_columns(str(points["model.projector"][0]))
    for number, cols in enumerate(columns):
        source = nodes[-1].name if nodes else read
        name = f"projector {number + 1}"
        # column then row parallel, as vLLM's mergers; a further product is on every device
        names = (HIDDEN, FEED_FORWARD) if number == 0 and len(columns) > 1 else (
            (FEED_FORWARD, HIDDEN) if number == 1 else (HIDDEN, HIDDEN)
        )  # fmt: skip
        product = gemm(name, size, inner, cols, source, names, biased)
        nodes.append(product._replace(rows=rows, groups=groups, vectors=product.vectors * groups))
        if number + 1 < len(columns):
            dims = Dims(TOKENS, (), names[1])
            nodes.append(
                activation(f"{name} activation", size, "gelu", False, name, cols, rows=rows, dims=dims)
            )
        inner = cols
    return nodes
