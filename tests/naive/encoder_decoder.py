"""Parameters, operations and bytes of an encoder-decoder, layer by layer, straight from the papers.

T5 (Raffel et al., arXiv:1910.10683), BART (Lewis et al., arXiv:1910.13461), Whisper (Radford et al.,
arXiv:2212.04356), after the layers of Vaswani et al. (arXiv:1706.03762): each is a list of weight matrices
that every token of its side goes through, and of pairs of queries and keys.
"""

from typing import NamedTuple

BUCKETS = 32  # of relative positions of T5


class Model(NamedTuple):
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    ffn: int
    encoder_layers: int
    decoder_layers: int
    vocabulary: int
    gated: bool = False
    biased: bool = False
    layer_norms: bool = False  # of two vectors, gains and biases; else gains alone
    norms_before: bool = True  # of every branch, and at the end of both stacks; else after every sum
    embedding_norm: bool = False
    tied: bool = True
    tables: int = 0  # of learned positions: rows of the target's
    source_tables: int = 0
    relative: str = ""  # "stack": a table of relative positions for each stack; "layer": for each layer
    mel: int = 0  # columns of a frame of sound; 0: the source is tokens


class Load(NamedTuple):
    sequences: int
    source: int
    target: int


def matrices_of_attention(model):
    """Return the shapes of the products with queries, with keys and values, and of the output."""
    queries, keys = model.heads * model.head_dim, model.kv_heads * model.head_dim
    return [(model.hidden, queries)], [(model.hidden, keys), (model.hidden, keys)], [(queries, model.hidden)]


def matrices_of_feed_forward(model):
    up = [(model.hidden, model.ffn)] * (2 if model.gated else 1)
    return [*up, (model.ffn, model.hidden)]


def matrices_of_source(model):
    """Return the products of an encoder layer's tokens."""
    queries, keys, output = matrices_of_attention(model)
    return [*queries, *keys, *output, *matrices_of_feed_forward(model)]


def matrices_of_target(model):
    """Return the products of a decoder layer's own tokens: cross attention has queries and output of them."""
    queries, keys, output = matrices_of_attention(model)
    return [*queries, *keys, *output, *queries, *output, *matrices_of_feed_forward(model)]


def matrices_of_memory(model):
    """Return the products of the encoder's output in a decoder layer: keys and values of cross attention."""
    return matrices_of_attention(model)[1]


def convolutions(model):
    """Return rows a source token, inner side and columns of the convolutions over three frames of sound."""
    return [(2, 3 * model.mel, model.hidden), (1, 3 * model.hidden, model.hidden)] if model.mel else []


def weights(model, matrices):
    """Return the parameters of products of some shapes."""
    return sum(inner * cols + (cols if model.biased else 0) for inner, cols in matrices)


def parameters(model):
    """Return the number of parameters."""
    norm = model.hidden * (2 if model.layer_norms else 1)
    count = weights(model, [(inner, cols) for _, inner, cols in convolutions(model)])
    for _ in range(model.encoder_layers):
        count += weights(model, matrices_of_source(model)) + 2 * norm
        if model.relative == "layer":
            count += BUCKETS * model.heads
    for _ in range(model.decoder_layers):
        count += weights(model, matrices_of_target(model) + matrices_of_memory(model)) + 3 * norm
        if model.relative == "layer":
            count += BUCKETS * model.heads
    if model.relative == "stack":
        count += 2 * BUCKETS * model.heads
    if model.norms_before:
        count += 2 * norm
    if model.embedding_norm:
        count += 2 * norm
    count += (model.tables + model.source_tables) * model.hidden
    return count + model.vocabulary * model.hidden * (1 if model.tied else 2)


def products_flop(model, load):
    """Return the operations of all products with weights of a forward pass."""
    source, target = load.sequences * load.source, load.sequences * load.target
    flop = 0
    for rows, inner, cols in convolutions(model):
        flop += 2 * rows * source * inner * cols
    for _ in range(model.encoder_layers):
        for inner, cols in matrices_of_source(model):
            flop += 2 * source * inner * cols
    for _ in range(model.decoder_layers):
        for inner, cols in matrices_of_target(model):
            flop += 2 * target * inner * cols
        for inner, cols in matrices_of_memory(model):
            flop += 2 * source * inner * cols
    return flop + 2 * target * model.hidden * model.vocabulary


def pairs_of_a_head(load):
    """Return the pairs of a query and a key it sees: of an encoder layer, and of the two of a decoder's."""
    of_encoder = sum(1 for _ in range(load.source) for _ in range(load.source))
    causal = sum(1 for query in range(load.target) for key in range(load.target) if key <= query)
    crossed = sum(1 for _ in range(load.target) for _ in range(load.source))
    return of_encoder, causal, crossed


def attention_flop(model, load):
    """Return the operations of attention's cores of a forward pass: scores, and their sums of values."""
    of_encoder, causal, crossed = pairs_of_a_head(load)
    pairs = model.encoder_layers * of_encoder + model.decoder_layers * (causal + crossed)
    return load.sequences * model.heads * pairs * 2 * 2 * model.head_dim


def caches(model, load):
    """Return the elements that decoding keeps: of the target so far, and of the source, of all layers."""
    of_a_token = model.decoder_layers * 2 * model.kv_heads * model.head_dim
    return load.sequences * load.target * of_a_token, load.sequences * load.source * of_a_token


def kept_bytes(model, load):
    """Return what training in 16 bits keeps of a decoder layer, and of an encoder layer.

    Of the encoder's output, which is the input of every decoder layer, only the last norm keeps: once.
    """
    h, queries, keys = model.hidden, model.heads * model.head_dim, model.kv_heads * model.head_dim
    source, target = load.sequences * load.source, load.sequences * load.target
    middle = model.ffn * (3 if model.gated else 2)  # what goes into the activation, and what comes out
    of_attention = queries + 2 * keys + queries + 2 * model.heads  # and a sum in fp32 for each query
    encoder = source * (2 * 2 * h + of_attention + middle)
    crossed = target * (queries + queries + 2 * model.heads) + source * 2 * keys
    decoder = target * (3 * 2 * h + of_attention + middle) + crossed
    return 2 * encoder, 2 * decoder


def bytes_of_a_layer(source, target, hidden, keys, is_decoder, tensor=1, context=1):
    """Bytes that a device exchanges for a layer in 16 bits, by collective and axis.

    source, target: tokens of those that share them by tensor alone; keys: columns of keys and values. Each
    tensor counts whole. Tokens are gathered before the first product of a branch and scattered after its
    last, each way, and gathered again for gradients of weights (Korthikanti et al., arXiv:2205.05198, figure
    5). The encoder's output is the input of one product of a decoder layer, so it is scattered backward
    alone. Keys and values go round forward and backward, and their gradients (Liu et al., arXiv:2310.01889):
    of cross attention those of the source.
    """
    branches = [target, target, target] if is_decoder else [source, source]
    gathered = sum(3 * tokens for tokens in branches) + (2 * source if is_decoder else 0)
    scattered = sum(2 * tokens for tokens in branches) + (source if is_decoder else 0)
    found = {}
    if tensor > 1:
        found |= {"all-gather along tp": 2 * hidden * gathered}
        found |= {"reduce-scatter along tp": 2 * hidden * scattered}
    if context > 1:
        of_keys = 2 * context * (target + source if is_decoder else source) * keys // tensor
        found |= {"all-gather along cp": 2 * of_keys, "reduce-scatter along cp": of_keys}
    return found
