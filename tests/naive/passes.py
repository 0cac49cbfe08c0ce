"""What the passes of a transformer's layer read and write for a token, tensor by tensor.

Tensors are their columns, in activations. A row's statistics and the weights of a norm are small beside rows,
and so are angles and what all heads share: they are not counted. Masks have a byte an element; sums in wider
numbers have four.
"""

from typing import NamedTuple

MASK, FP32 = 1, 4


class Heads(NamedTuple):
    """Columns of a head, and how many there are."""

    heads: int
    kv_heads: int
    head_dim: int
    value_dim: int
    rotary: int = 0  # beside latent keys


class Layer(NamedTuple):
    """What decides which passes a layer has."""

    heads: Heads
    hidden: int
    ffn: int
    sequence: int
    latent: bool
    query_latent: int
    key_latent: int  # with the key's rotated columns
    rotates: bool = True
    qk_norm: bool = False
    fused: bool = True
    masked: bool = False  # whether queries see fewer keys than those before them
    dropout: bool = False
    gated: bool = True
    biases: str = "none"
    block: str = "pre"


def moved(size, reads, writes, beside=0):
    """Return the bytes of a token; beside: those of masks and of wider sums."""
    return size * (sum(reads) + sum(writes)) + beside


def rotary(layer):
    """Return what a rotary pass reads and writes; its gradient does the reverse.

    Latent: the rotated columns of queries are turned where they lie. Keys without rotated columns and values
    lie head by head in one product's output, and are copied to where attention reads them; the rotated key of
    a token, which all heads share, is copied to each.
    """
    of = layer.heads
    if not layer.latent:
        turned = [of.heads * of.head_dim, of.kv_heads * of.head_dim]
        return turned, turned
    apart = [of.heads * of.head_dim, of.heads * of.value_dim]
    queries, shared_key = [of.heads * of.rotary], of.heads * of.rotary
    return [*queries, *apart], [*queries, *apart, shared_key]


def of_attention(layer, size):
    """Return the bytes of a token of the passes between a layer's first products and its projection."""
    of, found = layer.heads, {}
    queries, keys = of.heads * of.head_dim, of.kv_heads * of.head_dim
    if layer.latent:
        norms = {"key norm": layer.key_latent}
        if layer.query_latent:
            norms["query norm"] = layer.query_latent
        for name, cols in norms.items():
            found |= norm(name, [cols], size)
    elif layer.qk_norm:
        found |= norm("query and key norm", [queries, keys], size)
    if layer.rotates or layer.latent:
        reads, writes = rotary(layer)
        found["rotary"] = moved(size, reads, writes)
        found["rotary gradient"] = moved(size, writes, reads)
    return found | (fused_scores(layer, size) if layer.fused else scores(layer, size))


def fused_scores(layer, size):
    """Return the passes beside FlashAttention-2's backward kernel, of sums in fp32 (arXiv:2307.08691)."""
    of = layer.heads
    values, queries = of.heads * of.value_dim, of.heads * (of.head_dim + of.rotary)
    sums = FP32 * of.heads  # of each row
    return {
        # the output and its gradient in, each row's sum out; clears the sums of the queries' gradient
        "attention row sums": moved(size, [values, values], [], sums + FP32 * queries),
        "attention query gradient": moved(size, [], [queries], FP32 * queries),
    }


def scores(layer, size):
    """Return the passes over scores of every query with every key, half of which are masked."""
    every = layer.heads.heads * layer.sequence
    seen = every if layer.masked else every / 2
    found = {
        # a mask of a byte for each score, where it is not causal alone (Megatron-LM's scaled_masked_softmax)
        "attention softmax": moved(size, [seen], [every], MASK * every * layer.masked),
        # what came out of it and the gradient of that in, of what is seen; zeros are written too
        "attention softmax gradient": moved(size, [seen, seen], [every]),
    }
    if layer.dropout:
        found["attention dropout"] = moved(size, [every], [every], MASK * every)
        found["attention dropout gradient"] = moved(size, [every], [every], MASK * every)
    return found


def norm(name, cols, size):
    """Return a norm's passes; backward it reads what went in and the gradient of what came out."""
    return {
        name: moved(size, cols, cols),
        f"{name} gradient": moved(size, [*cols, *cols], cols),
    }


def branch_sum(name, layer, size, branches, biases):
    """Return the passes that add branches to what went into them.

    Backward: two gradients in, their sum out; dropout's output in, its mask, its input out; a bias's gradient
    is a sum over what comes in.
    """
    hidden, mask = layer.hidden, MASK * layer.hidden if layer.dropout else 0
    back_in, back_out = [hidden, hidden], [hidden]
    if biases:
        back_in = [*back_in, hidden]
    if layer.dropout:
        back_in, back_out = [*back_in, hidden], [*back_out, hidden]
    return {
        name: moved(size, [hidden] * (branches + 1), [hidden], mask),
        f"{name} gradient": moved(size, back_in, back_out, mask),
    }


def passes(layer, size):
    """Return the bytes of a token of every pass over activations of a dense layer, by label."""
    hidden, ffn, of = layer.hidden, layer.ffn, layer.heads
    found = of_attention(layer, size)
    if layer.block != "post":
        found |= norm("attention norm", [hidden], size)
    if layer.block in ("pre", "sandwich", "parallel_norms"):
        found |= norm("norm", [hidden], size)
    if layer.block in ("post", "sandwich"):
        found |= norm("attention post norm", [hidden], size) | norm("post norm", [hidden], size)
    behind_attention, behind_all = layer.biases in ("attention", "all"), layer.biases == "all"
    if layer.block.startswith("parallel"):
        found |= branch_sum("add", layer, size, 2, behind_attention or behind_all)
    else:
        found |= branch_sum("attention add", layer, size, 1, behind_attention)
        found |= branch_sum("add", layer, size, 1, behind_all)
    if layer.gated:
        found["gate"] = moved(size, [ffn, ffn], [ffn])
        found["gate gradient"] = moved(size, [ffn, ffn, ffn], [ffn, ffn])
    else:
        found["activation"] = moved(size, [ffn], [ffn])
        found["activation gradient"] = moved(size, [ffn, ffn], [ffn])
    if layer.biases in ("qkv", "attention", "all") and not layer.latent:
        every = of.heads * of.head_dim + of.kv_heads * (of.head_dim + of.value_dim)
        found["qkv bias gradient"] = moved(size, [every], [])
    if behind_all:
        up = "gate and up" if layer.gated else "up"
        found[f"{up} bias gradient"] = moved(size, [2 * ffn if layer.gated else ffn], [])
    return found


def cache_write(heads, latent, activation, attention, cache):
    """Return the bytes of a token of the pass of a prefill that turns queries and keys and fills the cache.

    latent: columns of a token's latent vector, None where keys and values are of heads. Queries lie apart
    from the cache, in the type of attention. Where that has fewer bytes than activations, what a latent cache
    is expanded to is rounded by a launch of its own.
    """
    queries = heads.heads * heads.head_dim
    if latent is None:
        kept = heads.kv_heads * (heads.head_dim + heads.value_dim)
        return activation * (queries + kept) + attention * queries + cache * kept
    kept, rotated = latent + heads.rotary, heads.heads * heads.rotary
    # the token's latent vector in; rotated columns of queries in and out, and of every head's key out
    total = moved(activation, [kept, rotated], [rotated, rotated], cache * kept)
    if attention < activation:
        rotated_queries = queries + rotated
        keys, values = queries + rotated, heads.heads * heads.value_dim
        total += (activation + attention) * (rotated_queries + keys + values)
    return total


def kept_of_latent_attention(layer, size):
    """Return the bytes of a token that a gated layer with fused latent attention keeps for its backward pass.

    What products, norms, the activation and attention read, and of attention its output and a sum of each
    row in fp32.
    """
    of = layer.heads
    queries = of.heads * (of.head_dim + of.rotary)
    of_norms = [layer.hidden, layer.key_latent, layer.query_latent, layer.hidden]
    of_core = [queries, queries, of.heads * of.value_dim, of.heads * of.value_dim]
    return size * (2 * sum(of_norms) + sum(of_core) + 3 * layer.ffn) + FP32 * of.heads
