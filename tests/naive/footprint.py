"""What a device of each pipeline stage holds while a dense transformer trains, and what lies with its host.

Each part for itself, tensor by tensor and layer by layer: weights and masters, gradients, optimizer states,
activations, buffers. Under 1F1B a stage has as many micro-batches in flight as stages are left. What is
offloaded is not on the device: all states and masters of the optimizer (ZeRO-Infinity, arXiv:2104.07857), and
what hidden layers keep, but for two layers: one that is worked on and one that moves.
"""

from math import ceil
from typing import NamedTuple

from tests.naive.transformer import llama_bytes

OPERAND, MASTER, STATE = 2, 4, 8  # bytes of a weight or gradient, of its master, of Adam's two moments


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


class Layer(NamedTuple):
    weights: list  # elements of each tensor
    kept: float  # bytes that its backward pass reads, with what it makes for the next one
    border: float  # bytes of what it reads
    hidden: bool = True


class Memory(NamedTuple):
    weights: float
    gradients: float
    optimizer: float
    activations: float
    buffers: float
    host: float

    @property
    def device(self):
        return sum(self[:-1])


def layers_of(model, tokens):
    """Return all layers in their order."""
    h, d = model.hidden, model.head_dim
    border = OPERAND * tokens * h
    products = [
        h * d * (model.heads + 2 * model.kv_heads), model.heads * d * h, 2 * h * model.ffn, model.ffn * h,
    ]  # fmt: skip
    kept = llama_bytes(tokens, h, model.heads, model.kv_heads, d, model.ffn, normed=False)
    embedding = Layer([model.vocabulary * h], border, border, hidden=False)
    # the norm's output, and logits in fp32
    head = Layer([h * model.vocabulary], border + 4 * tokens * model.vocabulary, border, hidden=False)
    return [embedding, *[Layer(products, kept, border)] * model.layers, head]


def stages_of(model, plan):
    """Return the layers of each stage, hidden ones dealt evenly."""
    embedding, *hidden, head = layers_of(model, plan.tokens)
    each = len(hidden) // plan.stages
    stages = [hidden[each * i : each * (i + 1)] for i in range(plan.stages)]
    stages[0] = [embedding, *stages[0]]
    stages[-1] = [*stages[-1], head]
    return stages


def memory_of(layers, number, plan):
    """Return what a stage needs."""
    tensors = [tensor for layer in layers for tensor in layer.weights]
    whole, part = sum(tensors), sum(ceil(tensor / plan.replicas) for tensor in tensors)
    states = part if plan.zero >= 1 else whole
    away = plan.offload in ("optimizer", "all")
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
    flying = min(plan.microbatches, plan.stages - number)
    on_device = moved = flying * sum(held[0])
    if plan.offload in ("activations", "all"):
        on_device = min(moved, sum(sorted(held[0])[-2:]))
    # of its own layers a stage keeps whole gradients over micro-batches, unless each one's are dealt out
    dealt = plan.zero >= 2 and plan.stages == 1
    buffers = max(recomputed, default=0)
    if plan.zero == 3 and plan.replicas > 1:
        buffers += OPERAND * max(tensors)  # the largest weights, gathered
    if plan.zero >= 2 and plan.replicas > 1:
        buffers += OPERAND * max(tensors)  # the largest gradient, before it is dealt out
    return Memory(
        weights=OPERAND * (part if plan.zero == 3 else whole) + MASTER * states * (not away),
        gradients=OPERAND * (part if dealt else whole),
        optimizer=STATE * states * (not away),
        activations=on_device + flying * rest,
        buffers=buffers,
        host=(MASTER + STATE) * states * away + moved - on_device,
    )


def fullest(model, plan):
    """Return which stage needs most, and what."""
    every = [memory_of(layers, number, plan) for number, layers in enumerate(stages_of(model, plan))]
    # buffers are those of the whole model and decide nothing
    stage = max(range(plan.stages), key=lambda i: (every[i].device - every[i].buffers, -i))
    return stage, every[stage]
