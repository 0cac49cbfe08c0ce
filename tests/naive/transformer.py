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
