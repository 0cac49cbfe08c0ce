"""Encoders counted by hand: the shapes of weights, the operations of tokens, the patches of an image.

Straight from the papers: BERT (arXiv:1810.04805), ViT (arXiv:2010.11929), Qwen2-VL (arXiv:2409.12191). One
layer, one token and one patch at a time.
"""


def norm_size(model):
    """Return the parameters of a norm: gains, and biases of layer normalisation."""
    return model["hidden"] * (1 if model["norm"] == "rms" else 2)


def layer_shapes(model):
    """Return the shapes of the weights of a layer's products, and whether each has a bias."""
    hidden, wide = model["hidden"], model["heads"] * model["head_dim"]
    biased = model["biased"]
    up = [(hidden, model["ffn"], biased)] * (2 if model["gated"] else 1)
    attention = [(hidden, wide, biased)] * 3 + [(wide, hidden, biased)]
    return [*attention, *up, (model["ffn"], hidden, biased)]


def projector_shapes(model):
    """Return the shapes of the weights of a projector's products."""
    inner = model["hidden"] if model["pooled"] else model["hidden"] * model["merge"] ** 2
    shapes = []
    for cols in model["projector"]:
        shapes.append((inner, cols, model["biased"]))
        inner = cols
    return shapes


def weights(shapes):
    """Return the parameters of products of some shapes."""
    return sum(inner * cols + (cols if biased else 0) for inner, cols, biased in shapes)


def parameters(model):
    """Return the parameters of an encoder."""
    hidden, total = model["hidden"], 0
    if model["input"] == "patches":
        total += weights(
            [(model["patch"] ** 2 * model["channels"] * model["temporal_patch"], hidden, model["biased"])]
        )
    else:
        total += model["vocabulary"] * hidden
    total += (model["positions"] + model["segments"] + model["class_tokens"]) * hidden
    total += norm_size(model) if model["embedding_norm"] else 0
    for _ in range(model["layers"]):
        total += weights(layer_shapes(model)) + 2 * norm_size(model)
    if model["block"] == "pre":
        total += norm_size(model)
    if model["output"] == "pooler":
        total += weights([(hidden, hidden, model["biased"])])
    if model["output"] == "masked":
        total += weights([(hidden, hidden, model["biased"])]) + norm_size(model)
        total += model["vocabulary"] if model["biased"] else 0  # the matrix is that of the embedding
    if model["output"] == "classifier":
        total += weights([(hidden, model["classes"], True)])
    if model["output"] == "projector":
        total += (1 + model["mergers"]) * weights(projector_shapes(model))
    return total


def keys_seen(model, query):
    """Return how many keys the token at a place sees; a window counts the token and those on each side."""
    seen = 0
    for key in range(model["sequence"]):
        near = abs(key - query) < model["window"] or not model["window"]
        seen += near and (key <= query or not model["causal"])
    return seen


def forward_flop(model):
    """Return the operations of products and attention of a forward pass over all sequences."""
    total = 0
    products = sum(2 * inner * cols for inner, cols, _ in layer_shapes(model))
    for _ in range(model["layers"]):
        for query in range(model["sequence"]):
            total += products + 2 * 2 * model["heads"] * model["head_dim"] * keys_seen(model, query)
    patches = model["sequence"] - model["class_tokens"]
    hidden = model["hidden"]
    if model["input"] == "patches":
        total += patches * 2 * model["patch"] ** 2 * model["channels"] * model["temporal_patch"] * hidden
    if model["output"] == "pooler":
        total += 2 * hidden * hidden
    if model["output"] == "masked":
        total += model["sequence"] * 2 * (hidden * hidden + hidden * model["vocabulary"])
    if model["output"] == "classifier":
        total += 2 * hidden * model["classes"]
    if model["output"] == "projector":
        tokens = -(-patches // model["merge"] ** 2) * (1 + model["mergers"])
        total += tokens * sum(2 * inner * cols for inner, cols, _ in projector_shapes(model))
    return model["batch"] * total


def pieces_of(height, width, side, tiles):
    """Return how many images of a fixed side an image becomes: tiles, and the whole where there are more."""
    if not side or not tiles:
        return 1
    count = 0
    for top in range(0, height, side):
        for left in range(0, width, side):
            assert top < height
            assert left < width
            count += 1
    count = min(count, tiles)
    return count + 1 if count > 1 else 1


def tokens_along(pixels, patch, merge):
    """Return the tokens along a side, to which its pixels are rounded."""
    side = patch * merge
    down = pixels // side
    rest = pixels - down * side
    more = 2 * rest > side or (2 * rest == side and down % 2 == 1)  # halves go to even numbers
    return max(down + more, 1)


def image_of(height, width, tower):
    """Return pieces, patches of each, and all tokens of an image."""
    patch, merge = tower["patch"], max(tower["merge"], 1)
    pieces = pieces_of(height, width, tower["image_size"], tower["tiles"])
    if tower["image_tokens"]:
        return pieces, tower["image_tokens"] * merge * merge, pieces * tower["image_tokens"]
    if tower["image_size"]:
        rows = cols = tower["image_size"] // patch
    else:
        rows, cols = (tokens_along(side, patch, merge) * merge for side in (height, width))
    tokens = 0
    for top in range(0, rows, merge):
        for left in range(0, cols, merge):
            assert top <= rows
            assert left <= cols
            tokens += 1
    return pieces, rows * cols, pieces * tokens
