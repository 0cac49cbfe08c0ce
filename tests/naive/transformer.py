"""Parameters and operations of a transformer, counted by hand, straight from the papers."""


def attention(hidden, heads, kv_heads, head_dim, latent=None):
    """Weights of attention's products; latent: of queries, keys, rotated columns, and values."""
    if latent is None:
        return hidden * head_dim * (2 * heads + 2 * kv_heads)
    queries, keys, rotary, values = latent
    key = head_dim + rotary
    of_queries = hidden * queries + queries * heads * key if queries else hidden * heads * key
    return (
        of_queries + hidden * (keys + rotary) + keys * heads * (head_dim + values) + heads * values * hidden
    )


def feed_forward(hidden, ffn, gated):
    """Weights of a feed-forward layer."""
    return hidden * ffn * (3 if gated else 2)


def layer(hidden, mixer, dense=0, experts=0, expert=0, shared=0):
    """Weights of a layer's products: of attention, and of a dense feed-forward layer or of experts."""
    return mixer + (experts * expert + shared + hidden * experts if experts else dense)


def megatron_parameters(layers, hidden, vocabulary, positions):
    """Parameters of a GPT (Narayanan et al., arXiv:2104.04473, equation 2)."""
    l, h, v, s = layers, hidden, vocabulary, positions  # noqa: E741
    return 12 * l * h * h * (1 + 13 / (12 * h) + (v + s) / (12 * l * h))


def megatron_flop(batch, sequence, layers, hidden, vocabulary):
    """Operations of an iteration with all activations computed again (arXiv:2104.04473, section 5.1)."""
    b, s, l, h, v = batch, sequence, layers, hidden, vocabulary  # noqa: E741
    return 96 * b * s * l * h * h * (1 + s / (6 * h) + v / (16 * l * h))


def activation_bytes(sequence, batch, hidden, heads, tensor=1, sequence_parallel=False, selective=False):
    """Bytes of activations that a layer keeps (Korthikanti et al., arXiv:2205.05198, equations 1 to 6)."""
    s, b, h, a, t = sequence, batch, hidden, heads, tensor
    beside = 10 / t if sequence_parallel else 10
    core = 0 if selective else 5 * a * s / (h * t)
    return s * b * h * (beside + 24 / t + core)


def llama_bytes(tokens, hidden, heads, kv_heads, head_dim, ffn, normed):
    """Bytes of activations that a layer of Llama keeps in 16 bits.

    normed: queries and keys are normalised, so that they are kept before and after.
    """
    queries, keys = heads * head_dim, kv_heads * head_dim
    of_norms = 2 * (hidden + hidden)  # what goes in and comes out of each
    of_attention = queries + 2 * keys + queries + 2 * heads  # and a sum in fp32 for each query
    again = queries + keys if normed else 0
    return 2 * tokens * (of_norms + of_attention + again + 3 * ffn)


def bytes_of_a_layer(rows, hidden, keys, tensor=1, context=1, stages=1, topk=0):
    """Bytes that a device exchanges for a micro-batch of a layer in 16 bits, by collective and axis.

    rows: of those that share them by tensor alone; keys: columns of keys and values. Each tensor counts
    whole, as those that exchange it have it together. Korthikanti et al. (arXiv:2205.05198, figure 5) gather
    tokens before two products and scatter them after, each way, and gather them again for gradients of
    weights. Liu et al. (arXiv:2310.01889) send keys and values round forward and backward, and their
    gradients. Experts (Lepikhin et al., arXiv:2006.16668) get topk rows a token and send them back, each way.
    """
    own = 2 * rows * hidden
    found = {}
    if tensor > 1:
        found |= {"all-gather along tp": 6 * own, "reduce-scatter along tp": 4 * own}
    if context > 1:
        of_keys = 2 * context * rows * keys // tensor
        found |= {"all-gather along cp": 2 * of_keys, "reduce-scatter along cp": of_keys}
    if topk:
        found |= {"all-to-all along ep": 4 * topk * own}
    if stages > 1:
        found |= {"point-to-point along pp": 2 * own // tensor}
    return found
