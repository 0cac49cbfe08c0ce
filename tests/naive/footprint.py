"""What a device of each pipeline stage holds while a dense transformer trains, and what lies with its host.

Each part for itself, tensor by tensor and layer by layer: weights and masters, gradients, optimizer states,
activations, buffers. Under 1F1B a stage has as many micro-batches in flight as stages are left, under GPipe
all. What is offloaded is not on the device: all states and masters of the optimizer (ZeRO-Infinity,
arXiv:2104.07857), the device's share of weights and gradients that ZeRO 3 deals out, and what hidden layers
keep, but for two layers: one that is worked on and one that moves.
"""

from math import ceil
from typing import NamedTuple

from tests.naive import optimizers
from tests.naive.transformer import llama_bytes

OPERAND, MASTER = 2, 4  # bytes of a weight or gradient, and of its master
STATES = {"fp32": 4, "bf16": 2, "int8": 1 + 4 / 256, "fp8": 1 + 4 / 256}  # of a number of state
# Bytes of a logit in bf16 that losses keep, and those that there are of each of a chunk while it is worked on
LOGITS = {"whole": (4, 0), "eager": (2 + 4, 4), "chunked": (2, 2 + 4), "fused": (0, 2), "cut": (0, 0)}


class Model(NamedTuple):
    hidden: int
    heads: int
    kv_heads: int
    ffn: int
    vocabulary: int
    layers: int

    @property
    def head_dim(self):
        return self.hidden // self.heads


class Plan(NamedTuple):
    """How it is trained; tokens: of a micro-batch on a device."""

    tokens: int
    microbatches: int
    stages: int
    replicas: int  # devices with the same weights
    zero: int
    again: int  # hidden layers of a stage that are computed again
    offload: str
    optimizer: str = "adam"
    state: str = "fp32"
    loss: str = "whole"
    chunks: int = 1
    live: float = 0  # weights that are gathered at once, and gradients of a bucket, at least
    bucket: float = 0
    schedule: str = "1f1b"


class Layer(NamedTuple):
    weights: list  # rows and columns of each tensor
    kept: float  # bytes that its backward pass reads, with what it makes for the next one
    border: float  # bytes of what it reads
    hidden: bool = True
    meanwhile: float = 0.0  # bytes of what there is during one kernel alone


class Memory(NamedTuple):
    weights: float
    gradients: float
    optimizer: float
    activations: float
    buffers: float
    host: float
    meanwhile: float  # part of the buffers

    @property
    def device(self):
        return sum(self[:-2])


def liger_chunks(model):
    """Return the chunks of tokens that are a power of two (Liger's code), of 2^20 of them."""
    tokens = 2**20
    least = ceil(tokens / ceil(model.vocabulary / model.hidden))
    chunk = 1
    while chunk < least:
        chunk *= 2
    return tokens // chunk


def layers_of(model, tokens, loss="whole", chunks=1):
    """Return all layers in their order."""
    h, d = model.hidden, model.head_dim
    border = OPERAND * tokens * h
    products = [
        (h, d * (model.heads + 2 * model.kv_heads)), (model.heads * d, h), (h, 2 * model.ffn), (model.ffn, h),
    ]  # fmt: skip
    kept = llama_bytes(tokens, h, model.heads, model.kv_heads, d, model.ffn, normed=False)
    embedding = Layer([(model.vocabulary, h)], border, border, hidden=False)
    # the norm's output, and logits; or the logarithm of each token's sum in fp32
    kept_logit, meanwhile = LOGITS[loss]
    logits = kept_logit * tokens * model.vocabulary + (4 * tokens if loss == "cut" else 0)
    head = Layer(
        [(h, model.vocabulary)], border + logits, border, hidden=False,
        meanwhile=meanwhile * (tokens // chunks) * model.vocabulary,
    )  # fmt: skip
    return [embedding, *[Layer(products, kept, border)] * model.layers, head]


def stages_of(model, plan):
    """Return the layers of each stage, hidden ones dealt evenly."""
    embedding, *hidden, head = layers_of(model, plan.tokens, plan.loss, plan.chunks)
    each = len(hidden) // plan.stages
    stages = [hidden[each * i : each * (i + 1)] for i in range(plan.stages)]
    stages[0] = [embedding, *stages[0]]
    stages[-1] = [*stages[-1], head]
    return stages


def memory_of(layers, number, plan):
    """Return what a stage needs."""
    tensors = [rows * cols for layer in layers for rows, cols in layer.weights]
    whole, part = sum(tensors), sum(ceil(tensor / plan.replicas) for tensor in tensors)
    masters = part if plan.zero >= 1 else whole
    shards = plan.replicas if plan.zero >= 1 else 1
    numbers = sum(
        optimizers.state_numbers(plan.optimizer, tensor, layer.hidden, shards)
        for layer in layers for tensor in layer.weights
    )  # fmt: skip
    states = STATES[plan.state] * numbers
    all_away = plan.offload == "weights" or (plan.offload == "all" and plan.zero == 3)
    away = plan.offload in ("optimizer", "all") or all_away
    held = [], []  # bytes of every hidden layer, and of the others
    again = plan.again
    recomputed = []
    for layer in layers:
        if layer.hidden and again > 0:
            again -= 1
            recomputed.append(layer.kept)
            held[0].append(layer.border)
        else:
            held[not layer.hidden].append(layer.kept)
    border = layers[0].border
    rest = sum(held[1])
    if number > 0:
        rest += border  # what it received
    if number < plan.stages - 1:
        rest -= border  # what its last layer makes is sent on
    flying = plan.microbatches if plan.schedule == "gpipe" else min(plan.microbatches, plan.stages - number)
    on_device = moved = flying * sum(held[0])
    if plan.offload in ("activations", "all"):
        on_device = min(moved, sum(sorted(held[0])[-2:]))
    # of its own layers a stage keeps whole gradients over micro-batches, unless each one's are dealt out
    dealt = plan.zero >= 2 and plan.stages == 1
    meanwhile = max(layer.meanwhile for layer in layers)
    buffers = max(*recomputed, meanwhile, 0)
    weights, gradients = OPERAND * (part if plan.zero == 3 else whole), OPERAND * (part if dealt else whole)
    held_away = MASTER * masters * away + states * away + (weights + gradients) * all_away
    return Memory(
        weights=weights * (not all_away) + MASTER * masters * (not away),
        gradients=gradients * (not all_away),
        optimizer=states * (not away),
        activations=on_device + flying * rest,
        buffers=buffers,
        host=held_away + moved - on_device,
        meanwhile=meanwhile,
    )


def gathered(model, plan, layers):
    """Return the bytes of the largest weights, gathered; or of as many as are live at once."""
    return (plan.zero == 3) * _whole(model, plan, layers, plan.live)


def scattered(model, plan, layers):
    """Return the bytes of the largest gradient, before it is dealt out; or of a bucket."""
    return (plan.zero >= 2) * _whole(model, plan, layers, plan.bucket)


def _whole(model, plan, layers, least):
    """Return the bytes of the largest tensor, or of as many weights of the stage as `least`.

    Weights that are away come to the device for a pass, whether others have them or not.
    """
    stage = sum(rows * cols for layer in layers for rows, cols in layer.weights)
    most = max(rows * cols for layer in layers_of(model, 1) for rows, cols in layer.weights)
    away = plan.zero == 3 and plan.offload in ("weights", "all")
    if plan.replicas == 1 and not away:
        return 0
    return OPERAND * max(most, min(least, stage))


def fullest(model, plan):
    """Return which stage needs most, and what."""
    stages = stages_of(model, plan)
    every = [memory_of(layers, number, plan) for number, layers in enumerate(stages)]
    # buffers decide nothing, but for what there is during the loss

    def needed(i):
        return every[i].device - every[i].buffers + every[i].meanwhile, -i

    stage = max(range(plan.stages), key=needed)
    memory = every[stage]
    whole = gathered(model, plan, stages[stage]) + scattered(model, plan, stages[stage])
    buffers = memory.buffers + whole + before_sum(model, plan)
    return stage, memory._replace(buffers=buffers)


def before_sum(model, plan):
    """Return the bytes of the largest gradient of a product, which is made before it is added to the others.

    A first micro-batch's gradients are the sum. Those that ZeRO deals out are counted there.
    """
    if plan.zero >= 2 or plan.microbatches == 1:
        return 0
    products = layers_of(model, 1)[1:]  # an embedding is looked up
    return OPERAND * max(rows * cols for layer in products for rows, cols in layer.weights)
