"""What one pass of a serving library through a transformer computes and reads, counted by hand.

One token at a time, one layer at a time, on one device: products are 2 operations a weight, attention 2 for
each column of a key and of a value that a query sees.
"""

FULL, WINDOWED = 0, 1


def keys_seen(position, window):
    """Return how many keys the token at a position, counted from 0, sees with its own."""
    return position + 1 if not window else min(position + 1, window)


def layer_weights(model):
    """Return the weights of a layer's products that a token meets: attention, then feed-forward."""
    hidden, heads = model["hidden"], model["heads"]
    if model["latent"]:
        nope, rope, value = model["head_dim"], model["rotary"], model["value_dim"]
        queries = hidden * heads * (nope + rope)
        if model["query_latent"]:
            queries = hidden * model["query_latent"] + model["query_latent"] * heads * (nope + rope)
        attention = queries + hidden * (model["latent"] + rope) + heads * value * hidden
    else:
        columns = heads * model["head_dim"] + model["kv_heads"] * (model["head_dim"] + model["value_dim"])
        attention = hidden * columns + heads * model["value_dim"] * hidden
    of_ffn = 3 if model["gated"] else 2
    dense = of_ffn * hidden * model["ffn"]
    met = of_ffn * hidden * model["expert_ffn"] * model["topk"] + hidden * model["experts"]
    met += of_ffn * hidden * model["shared_ffn"]
    return attention, met if model["experts"] else dense


def tokens_flop(model, tokens):
    """Return the operations of the products of all layers, without attention's core."""
    return 2 * tokens * model["layers"] * sum(layer_weights(model))


def head_flop(model, rows):
    """Return those of the logits."""
    return 2 * rows * model["hidden"] * model["vocabulary"]


def decode_flop(model, requests, queries, before):
    """Return those of attention over caches of `before` tokens, latent ones as they lie."""
    total = 0
    for layer in range(model["layers"]):
        window = model["window"] if layer % 2 == 0 else 0  # a pattern of windows in turn, where there are any
        for query in range(queries):
            seen = keys_seen(before + query, window)
            if model["latent"]:
                columns = 2 * model["latent"] + model["rotary"]
                absorbed = model["latent"] * (model["head_dim"] + model["value_dim"])
                total += requests * model["heads"] * 2 * (columns * seen + absorbed)
            else:
                total += requests * model["heads"] * 2 * (model["head_dim"] + model["value_dim"]) * seen
    return total


def prefill_flop(model, prompts, chunk, before):
    """Return those of attention of chunks behind `before` tokens, latent caches expanded for all of them."""
    total = 0
    for layer in range(model["layers"]):
        window = model["window"] if layer % 2 == 0 else 0
        if model["latent"]:
            columns = model["heads"] * (model["head_dim"] + model["value_dim"])
            total += prompts * 2 * (before + chunk) * model["latent"] * columns
        width = model["head_dim"] + model["rotary"] + model["value_dim"]
        for query in range(chunk):
            total += prompts * model["heads"] * 2 * width * keys_seen(before + query, window)
    return total


def cache_bytes(model, tokens, element):
    """Return what the cache of one request takes."""
    total = 0
    for layer in range(model["layers"]):
        kept = min(tokens, model["window"]) if model["window"] and layer % 2 == 0 else tokens
        if model["latent"]:
            total += kept * (model["latent"] + model["rotary"]) * element
        else:
            total += kept * model["kv_heads"] * (model["head_dim"] + model["value_dim"]) * element
    return total
