"""Fine-tuning with adapters: LoRA (arXiv:2106.09685) and QLoRA (arXiv:2305.14314).

Beside a product Y = X W of frozen weights W, two narrow products are trained: Y = X W + s (X A) B, of `rank`
columns between them. Frozen weights have no gradient, no optimizer state and no master copy; backward they
have the product for the gradient of their input alone. QLoRA stores them in few bits, and a pass converts
them to `model.dtype` before each product that reads them, forward and backward (MatMul4Bit of
bitsandbytes-foundation/bitsandbytes, bitsandbytes/autograd/_functions.py).

As in PEFT (huggingface/peft, src/peft/tuners/lora/layer.py): queries, keys and values have adapters of their
own, so do gate and up; dropout is of each adapter's input; scaling and sum are two passes over the output.
Products that fastflow takes together (queries, keys, values) have their A side by side in one product, and so
their B: as many weights and operations.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from fastflow.core.dedupe import map_values
from fastflow.core.field import Column, count, text
from fastflow.core.tables import Bools, Inputs, Texts, single
from fastflow.physics.workload.graph import ATTENTION, FEED_FORWARD, HIDDEN, PRODUCT, Dims
from fastflow.physics.workload.graph import EXPERTS as MIXTURE
from fastflow.physics.workload.models.transformer.building_blocks import DROPOUT_FLOP, mask
from fastflow.physics.workload.models.transformer.dimensions import PREFERENCE, TEACHER, Sizes, sizes_of
from fastflow.physics.workload.models.transformer.layer_kind import DENSE, EQUAL_KV, SHARED_KV, LayerKind
from fastflow.physics.workload.models.transformer.mixer import OF_HEADS
from fastflow.physics.workload.models.transformer.valid_sizes import patterns_of
from fastflow.physics.workload.network import Layer, Node, PassCost, ProductPasses, Size
from fastflow.physics.workload.ops import gemm, grouped_gemm, moe_passes, pointwise
from fastflow.physics.workload.precision import OPERAND, OPERAND_BYTES, OUTPUT_BYTES, QUANTIZED_BYTES

PREFIX = "model.lora."
RANK, TARGETS, DROPOUT, BASE = (f"{PREFIX}{name}" for name in ("rank", "targets", "dropout", "base_dtype"))
OF_QV, OF_ATTENTION, OF_MLP, ALL_LINEAR, OF_EXPERTS = "qv", "attention", "mlp", "all_linear", "experts"
_PARTS = {
    OF_QV: (ATTENTION,), OF_ATTENTION: (ATTENTION,), OF_MLP: (FEED_FORWARD, MIXTURE),
    ALL_LINEAR: (ATTENTION, FEED_FORWARD, MIXTURE), OF_EXPERTS: (ATTENTION, FEED_FORWARD, MIXTURE),
}  # fmt: skip
"""Parts of a layer whose products have adapters."""


class BaseType(NamedTuple):
    """A type in which frozen weights are stored."""

    bytes: float  # of a weight, with its share of scales
    flop: float  # operations that convert it


BASE_TYPES: Mapping[str, BaseType] = {
    # a byte, and a scale a row (LLM.int8(), arXiv:2208.07339): convert and scale
    "int8": BaseType(1.0, 2.0),
    # 4 bits; a scale of 8 bits for 64 weights, and one of 32 bits for 256 of these scales (double
    # quantisation, arXiv:2305.14314, section 3): shift, mask, look up, scale, convert
    "nf4": BaseType((4.0 + 8.0 / 64.0 + 32.0 / (64.0 * 256.0)) / 8.0, 5.0),
}  # fmt: skip
NO_ADAPTERS = "the model has no adapters"
LORA: tuple[Column, ...] = tuple(
    column._replace(absent=NO_ADAPTERS)
    for column in (
        count(
            RANK, "columns between the two products of an adapter (LoRA's r); 0: no adapters", low=0, high=1e6
        ),
        text(
            TARGETS,
            "products with adapters: of queries and values alone (qv), of attention and other mixers, of the"
            " feed-forward part with shared experts (mlp), of both (all_linear), or of both and of routed"
            " experts (experts)",
            tuple(_PARTS),
        ),
        Column(DROPOUT, "bool", "", "true: dropout of each adapter's input; its masks are kept"),
        text(
            BASE,
            "type in which the frozen weights of layers' products are stored: model.dtype (operand), or"
            " int8 or nf4, which a pass converts before each product",
            (OPERAND, *BASE_TYPES),
        ),
    )
)  # fmt: skip
"""Inputs of adapters."""
DEFAULTS: Mapping[str, Any] = {RANK: 0, TARGETS: ALL_LINEAR, DROPOUT: False, BASE: OPERAND}
_QKV = "qkv"
_MODULES = {_QKV: 3, "gate and up": 2}
"""Products that stand for several, each with an adapter; all others are one."""
_NEEDED = "such as some layer has: experts in a mixture, mlp where a dense or shared part is, qv in attention"
_LATENT = ("lora",)
_SUM_MOVES, _SCALE_BACKWARD_MOVES = 5.0, 2.0
"""Tensors that scaling (one in, one out) and the sum (two in, one out) move; backward scaling alone."""
_SUM_FLOP = 2.0
_READS_OUTPUT = tuple(moe_passes.TYPES.values())
"""Timed kernels whose gradient does not read their own output, as that of attention does."""


def has_adapters(inputs: Inputs) -> bool:
    """Say whether models may have adapters; points of a call all have these keys, or none has."""
    return RANK in inputs


def without_adapters(inputs: Inputs) -> Inputs:
    """Return the inputs of models without the keys of adapters, of a reference model and of a teacher."""
    others = (PREFIX, PREFERENCE, TEACHER)
    if not any(key.startswith(others) for key in inputs):
        return inputs
    return {key: column for key, column in inputs.items() if not key.startswith(others)}


def adapts(points: Inputs) -> bool:
    """Say whether models with the same structure have adapters."""
    return has_adapters(points) and bool(points[RANK][0] > 0)


def adapter_structure(inputs: Inputs) -> tuple[Bools | Texts, ...]:
    """Return columns in which models whose adapters have the same kernels agree."""
    return (inputs[RANK] > 0, *(inputs[key] for key in (TARGETS, DROPOUT, BASE))) if RANK in inputs else ()


def invalid_adapters(inputs: Inputs) -> Iterator[tuple[Bools, str, str, str]]:
    """Yield points whose adapters contradict their other inputs, as `Family.invalid_sizes`."""
    if not has_adapters(inputs):
        return
    has = inputs[RANK] > 0
    yield ~has & (inputs[BASE] != OPERAND), BASE, RANK, f"{OPERAND} with {RANK}={{}}"
    yield ~has & inputs[DROPOUT], DROPOUT, RANK, f"false with {RANK}={{}}"
    yield has & ~inputs["model.training"], RANK, "model.training", "0 with model.training=false"
    narrow = map_values(QUANTIZED_BYTES, inputs["model.dtype"]) > 0.0
    allowed = f"{OPERAND} where products are of less than 16 bits (model.dtype={{}})"
    yield has & narrow & (inputs[BASE] != OPERAND), BASE, "model.dtype", allowed
    wide = inputs[RANK] > inputs["model.hidden"]
    yield has & wide, RANK, "model.hidden", "at most the {} of model.hidden"
    yield has & ~_has_targets(inputs), TARGETS, TARGETS, _NEEDED
    qv = (inputs[TARGETS] == OF_QV) & ((inputs["model.latent"] > 0) | (inputs["model.query_latent"] > 0))
    yield has & qv, TARGETS, TARGETS, f"{OF_ATTENTION} where queries or keys are latent"


def _has_targets(inputs: Inputs) -> Bools:
    """Say of which points a layer has a targeted product, (points,)."""
    patterns, targets = patterns_of(inputs), inputs[TARGETS]
    shared = (inputs["model.shared_ffn"] > 0) | (inputs["model.shared_experts"] > 0)
    mixes = patterns.each(lambda kinds: any(kind.mixers for kind in kinds))
    experts = patterns.each(lambda kinds: any(kind.has_experts for kind in kinds))
    dense = patterns.each(lambda kinds: any(kind.feed_forward == DENSE for kind in kinds))
    qkv = patterns.each(
        lambda kinds: (
            all(not kind.of_keys for kind in kinds)
            and any(name in OF_HEADS for kind in kinds for name in kind.mixers)
        )
    )
    dense = dense | (experts & shared)
    has: Bools = np.select(
        [targets == OF_QV, targets == OF_ATTENTION, targets == OF_MLP, targets == OF_EXPERTS],
        [qkv, mixes, dense, experts], mixes | dense,
    )  # fmt: skip
    return has


def adapted_layers(
    points: Inputs, size: Sizes, layers: Sequence[Layer], kinds: Iterable[LayerKind], targeted: bool = True
) -> list[Layer]:
    """Return the layers of models, from embedding to head, with frozen weights, and with adapters if any.

    kinds: of the hidden layers, in their order. Embedding, MTP modules and head have no adapters, and are
    stored in 16 bits or more (bitsandbytes quantises linear layers, but for the head). targeted: whether
    adapters are there, rather than switched off.
    """
    of_layers, options = iter(kinds), _options_of(points)
    options = options if targeted else options._replace(targets="")
    wide = _bytes_of_wide(points)
    result = [
        layer._replace(
            nodes=_adapted(points, size, options, next(of_layers), layer.nodes)
            if layer.kind == HIDDEN
            else tuple(node._replace(frozen=True, base_bytes=wide) for node in layer.nodes)
        )
        for layer in layers
    ]
    *nodes, last = result[0].nodes
    first = result[1].times
    is_run = bool(options.targets) and not (isinstance(first, int) and first == 1)
    return [result[0]._replace(nodes=(*nodes, last._replace(below_run=is_run))), *result[1:]]


class _Options(NamedTuple):
    """The adapters of models with the same structure."""

    rank: Any
    targets: str  # "": there are no adapters
    drops: bool
    base: str


def _options_of(points: Inputs) -> _Options:
    if not adapts(points):
        return _Options(0, "", False, OPERAND)
    return _Options(
        single(points[RANK]), str(points[TARGETS][0]), bool(points[DROPOUT][0]), str(points[BASE][0])
    )


def _adapted(
    points: Inputs, size: Sizes, options: _Options, kind: LayerKind, nodes: Sequence[Node]
) -> tuple[Node, ...]:
    """Return the nodes of a layer, frozen, and trained adapters beside the targeted products."""
    result: list[Node] = []
    renamed: dict[str, str] = {}
    for node in nodes:
        fixed = node._replace(reads=tuple(renamed.get(read, read) for read in node.reads))
        fixed = _stored(points, fixed, options.base)
        if not options.targets or not _is_target(node, options.targets):
            result.append(fixed)
            continue
        modules, cols = _modules(points, kind, node.name), node.cols
        if options.targets == OF_QV:
            of_kind = sizes_of(points, kind) if kind.sizes else size
            modules, cols = 2, of_kind.heads * of_kind.head_dim + of_kind.kv_heads * of_kind.value_dim
        sums = _adapter(size, options, modules, cols, fixed)
        renamed[node.name] = sums[-1].name
        result += [fixed._replace(keeps=0, keeps_whole=0), *sums]
    return tuple(_without_unread(result))


def _stored(points: Inputs, node: Node, base: str) -> Node:
    """Return a node of a layer with frozen weights; products' are stored in the type of the base."""
    if node.type.kind != PRODUCT:
        return node._replace(frozen=True, base_bytes=_bytes_of_wide(points))
    if base == OPERAND:
        return node._replace(frozen=True, base_bytes=_bytes_of_products(points, node))
    form = BASE_TYPES[base]
    return node._replace(
        frozen=True, base_bytes=form.bytes, passes=node.passes._replace(conversion=form.flop)
    )


def _bytes_of_wide(points: Inputs) -> float:
    """Return the bytes of a frozen weight of a table, a gain, or a product in 16 bits or more."""
    return float(map_values(OUTPUT_BYTES, points["model.dtype"][:1])[0])


def _bytes_of_products(points: Inputs, node: Node) -> float:
    """Return the bytes of a frozen weight of a product: in fp8 it has two copies, plain and transposed."""
    dtypes = points["model.dtype"][:1]
    quantised = float(map_values(QUANTIZED_BYTES, dtypes)[0])
    if node.wide:
        return _bytes_of_wide(points)
    return 2.0 * quantised if quantised > 0.0 else float(map_values(OPERAND_BYTES, dtypes)[0])


def _is_target(node: Node, targets: str) -> bool:
    """Say whether a product has an adapter: routers have none."""
    if node.part not in _PARTS[targets] or node.wide or (targets == OF_QV and not _is_qkv(node)):
        return False
    return node.type is gemm.TYPE or (node.type is grouped_gemm.TYPE and targets == OF_EXPERTS)


def _is_qkv(node: Node) -> bool:
    """Say whether a product makes queries, keys and values of heads."""
    return node.name.endswith(_QKV)


def _modules(points: Inputs, kind: LayerKind, name: str) -> int:
    """Return the number of products of a published model that a product stands for."""
    modules = next((number for ending, number in _MODULES.items() if name.endswith(ending)), 1)
    if name.endswith(_QKV):
        modules -= bool(points["model.query_latent"][0])
        modules -= 2 if SHARED_KV in kind.modifiers else EQUAL_KV in kind.modifiers
    return max(modules, 1)


def _adapter(size: Sizes, options: _Options, modules: int, cols: Size, base: Node) -> list[Node]:
    """Return the nodes of a product's adapters; the last one adds their output to that of the product.

    modules: the number of products of a published model that have adapters; cols: their columns.
    """
    rank = options.rank
    reads = base.reads
    nodes: list[Node] = []
    if options.drops:
        nodes.append(_dropped(size, base, modules))
        reads = (nodes[-1].name,)
    trained = base._replace(
        frozen=False, base_bytes=0.0, vectors=0, wide=base.type is gemm.TYPE, passes=ProductPasses(),
        keeps=None, keeps_whole=None, cost=PassCost(), width=None,
    )  # fmt: skip
    dims = base.dims
    down = trained._replace(
        name=f"{base.name} lora A", cols=modules * rank, reads=reads, dims=dims._replace(cols=_LATENT)
    )
    up = trained._replace(
        name=f"{base.name} lora B", inner=rank, cols=cols, reads=(down.name,), keeps=0, keeps_whole=0,
        dims=dims._replace(inner=_LATENT), passes=ProductPasses(shares_gradient=True),
    )  # fmt: skip
    if base.attributes:
        plain = {**base.attributes, "gated": 0.0}
        down, up = down._replace(attributes=plain), up._replace(attributes=plain)
    share = cols / base.cols
    total = Node(
        name=f"{base.name} lora add", type=pointwise.TYPES["add"], rows=base.rows, cols=base.cols,
        reads=(base.name, up.name),
        cost=PassCost(share * _SUM_MOVES, share * _SUM_FLOP, share * _SCALE_BACKWARD_MOVES),
        keeps=base.keeps, keeps_whole=base.keeps_whole, part=base.part, groups=base.groups,
        dims=Dims(dims.rows, (), dims.cols, dims.groups), width=base.width, frozen=True,
    )  # fmt: skip
    return [*nodes, down, up, total]


def _dropped(size: Sizes, base: Node, modules: int) -> Node:
    """Return the dropout of the inputs of a product's adapters, whose outputs and masks are kept."""
    mask_cols = 1.0 / np.asarray(size.activation_bytes)
    moved = 2.0 + mask_cols  # in, out, and the mask
    return Node(
        name=f"{base.name} lora dropout", type=pointwise.OPERATORS["mul"].base, rows=base.rows,
        cols=base.inner, reads=base.reads, part=base.part, groups=base.groups, frozen=True,
        cost=PassCost(modules * moved, modules * DROPOUT_FLOP, modules * moved),
        keeps=modules * mask(size, base.inner), keeps_whole=modules * base.inner,
        dims=Dims(base.dims.rows, (), base.dims.inner, base.dims.groups),
    )  # fmt: skip


def _without_unread(nodes: Sequence[Node]) -> list[Node]:
    """Return the nodes without saved outputs that only frozen products read, or adapters' dropout."""
    readers: dict[str, list[Node]] = {}
    for node in nodes:
        for read in node.reads:
            readers.setdefault(read, []).append(node)
    return [
        node._replace(keeps=0, keeps_whole=0)
        if node.name in readers and all(map(_needs_no_input, readers[node.name])) and not _keeps_own(node)
        else node
        for node in nodes
    ]


def _needs_no_input(reader: Node) -> bool:
    """Say whether the backward pass of a kernel does not read its input."""
    return (reader.frozen and reader.type.kind == PRODUCT) or reader.name.endswith("lora dropout")


def _keeps_own(node: Node) -> bool:
    """Say whether the backward pass of a kernel reads its own output, as that of fused attention does."""
    return node.type.time is not None and node.type not in _READS_OUTPUT and node.type.kind != PRODUCT
