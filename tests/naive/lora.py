"""Fine-tuning with adapters, counted matrix by matrix, as published models name them (PEFT's LoraConfig).

A frozen matrix W (k x n) has 2 k n operations a token forward, and as many for the gradient of its input. A
trained pair A (k x r) and B (r x n) beside it has three times 2 r (k + n). What a layer keeps for its
backward pass is listed kernel by kernel.
"""

from typing import NamedTuple

STORED = {"operand": 2.0, "int8": 1.0, "nf4": 4.127 / 8}
"""Bytes of a frozen weight of a layer; 4.127 bits: arXiv:2305.14314, section 3."""
TARGETS = {
    "qv": ("q_proj", "v_proj"), "attention": ("q_proj", "k_proj", "v_proj", "o_proj"),
    "mlp": ("gate_proj", "up_proj", "down_proj"),
}  # fmt: skip
TARGETS["all_linear"] = TARGETS["attention"] + TARGETS["mlp"]


class Llama(NamedTuple):
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    ffn: int
    vocabulary: int
    layers: int

    @property
    def matrices(self):
        """The linear layers of a decoder layer."""
        h, q, kv = self.hidden, self.heads * self.head_dim, self.kv_heads * self.head_dim
        return {
            "q_proj": (h, q), "k_proj": (h, kv), "v_proj": (h, kv), "o_proj": (q, h),
            "gate_proj": (h, self.ffn), "up_proj": (h, self.ffn), "down_proj": (self.ffn, h),
        }  # fmt: skip

    @property
    def frozen(self):
        """Weights of the linear layers of all decoder layers."""
        return self.layers * sum(k * n for k, n in self.matrices.values())

    @property
    def tables(self):
        """Weights of embedding and head, which nobody quantises."""
        return 2 * self.vocabulary * self.hidden


def adapter_weights(model, targets, rank):
    """Return the trained weights of all layers."""
    return model.layers * sum(rank * sum(model.matrices[name]) for name in TARGETS[targets])


def below(targets):
    """Return the matrices whose input depends on no trained weight, in a model of one layer."""
    first = ("q_proj", "k_proj", "v_proj")
    return (*first, "o_proj", "gate_proj", "up_proj") if targets == "mlp" else first


def product_flop(model, tokens, targets, rank):
    """Return the operations of the products with weights: forward, and backward."""
    base = model.frozen + model.vocabulary * model.hidden
    trained = adapter_weights(model, targets, rank)
    forward = 2 * tokens * (base + trained)
    # of a single layer nothing below the first adapters needs a gradient: neither W nor A there makes one
    first = 0
    for name in below(targets) if model.layers == 1 else ():
        k, n = model.matrices[name]
        first += k * n + (rank * k if name in TARGETS[targets] else 0)
    return forward, forward - 2 * tokens * first + 2 * tokens * trained


def converted(model, base):
    """Return the bytes that all conversions of stored weights move in an iteration of one micro-batch."""
    return 0.0 if base == "operand" else 2 * model.frozen * (STORED[base] + 2.0)


def kept(model, targets, rank, dropout):
    """Return the bytes that a layer keeps of a token in 16 bits."""
    h, q, kv = model.hidden, model.heads * model.head_dim, model.kv_heads * model.head_dim
    elements = 2 * h  # what the two norms read
    elements += q + 2 * kv + q  # queries, keys and values, and what attention made of them
    elements += 2 * model.heads  # a sum of exponentials in fp32 for each query
    elements += 2 * model.ffn  # gate and up
    inputs = {"q_proj": "x", "k_proj": "x", "v_proj": "x", "o_proj": "", "gate_proj": "y", "up_proj": "y",
              "down_proj": "z"}  # fmt: skip
    found = set()
    for name in TARGETS[targets]:
        k, _ = model.matrices[name]
        elements += rank  # what A made, for the gradient of B
        if dropout:
            elements += k + k / 2  # its own input after dropout, and a mask of a byte each
        elif inputs[name] and inputs[name] not in found:  # attention's output is kept anyway
            elements += k
            found.add(inputs[name])
    return 2.0 * elements


def exchanged(model, rows, targets, rank):
    """Return the bytes that devices exchange for a layer, sums of weight gradients aside, by collective.

    Tensor parallelism with sequence parallelism (Korthikanti et al., arXiv:2205.05198, figure 5): tokens are
    gathered before two products, and partial sums scattered after two; backward likewise. Frozen weights have
    no gradients, for which tokens would be gathered again. An A of a product whose columns are shared works
    on the tokens of its device, and its few columns are gathered for B; an A of a product whose inner side
    is shared makes partial sums, which are scattered to the tokens' devices. Backward the reverse.
    """
    moved = 4 * 2 * rows * model.hidden + len(TARGETS[targets]) * 2 * rows * rank
    return dict.fromkeys(("all-gather along tp", "reduce-scatter along tp"), moved)


class Memory(NamedTuple):
    weights: float
    gradients: float
    optimizer: float
    buffers: float


def memory(model, targets, rank, base, replicas=1, sharded=False):
    """Return the bytes of a device with all layers, that trains in bf16 with Adam; sharded: by ZeRO-3.

    A master and two states of 4 bytes for each trained weight; converted weights of one product at a time.
    """
    trained, frozen = adapter_weights(model, targets, rank), model.frozen * STORED[base] + model.tables * 2.0
    share = replicas if sharded else 1
    h, q, kv = model.hidden, model.heads * model.head_dim, model.kv_heads * model.head_dim
    largest = max(h * (q + 2 * kv), q * h, 2 * h * model.ffn)  # those of qkv and of gate and up lie together
    buffers = 0.0 if base == "operand" else 2.0 * largest
    return Memory((frozen + 6.0 * trained) / share, 2.0 * trained / share, 8.0 * trained / share, buffers)
