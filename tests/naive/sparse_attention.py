"""Sparse attention, token by token: what queries attend to, executed on small sizes; and times."""

from math import ceil, sqrt

import numpy as np


def attended(q_len, kv_len, topk, ratio=1, last=0):
    """Return the keys of each query: of the selected ones their number, and of the last tokens theirs.

    Tokens are counted by hand: query i is token kv_len - q_len + i. A key of `ratio` tokens counts as the
    share of it that the query sees.
    """
    for i in range(q_len):
        seen = [token for token in range(kv_len) if token <= kv_len - q_len + i]
        yield min(len(seen) / ratio, topk or kv_len), len(seen[-last:]) if last else 0


def execute(queries, keys, index_queries, index_keys, weights, topk, value_dim):
    """Return the output of one sequence's attention to selected latent keys, and its multiply-adds.

    queries: (tokens, heads, columns); keys: (tokens, columns), the first columns are values; index_queries:
    (tokens, index heads, columns); weights: (tokens, index heads). Multiply-adds: of the scores, and of
    attention.
    """
    tokens, heads, columns = queries.shape
    output, scored, attending = np.zeros((tokens, heads, value_dim)), 0, 0
    for token in range(tokens):
        scores = []
        for key in range(token + 1):
            of_heads = [np.dot(query, index_keys[key]) for query in index_queries[token]]
            scored += sum(query.size for query in index_queries[token])
            scores.append(sum(w * max(0.0, s) for w, s in zip(weights[token], of_heads, strict=True)))
        chosen = sorted(range(token + 1), key=lambda key: -scores[key])[:topk]
        for head in range(heads):
            products = np.array([np.dot(queries[token, head], keys[key]) for key in chosen])
            shares = np.exp(products - products.max())
            shares /= shares.sum()
            for share, key in zip(shares, chosen, strict=True):
                output[token, head] += share * keys[key, :value_dim]
            attending += len(chosen) * (columns + value_dim)
    return output, scored, attending


def dense(queries, keys, value_dim):
    """Return attention to all keys that a query sees."""
    tokens, heads, _ = queries.shape
    output = np.zeros((tokens, heads, value_dim))
    for token in range(tokens):
        for head in range(heads):
            products = keys[: token + 1] @ queries[token, head]
            shares = np.exp(products - products.max())
            output[token, head] = shares / shares.sum() @ keys[: token + 1, :value_dim]
    return output


# --- times


def scores(chip, pairs, heads, dim, keys_bytes, tokens):
    """Products on matrix units, then their sums on vector lanes; or bytes, whichever take longer."""
    padded = pairs + 128 * tokens
    work = 2 * padded * heads * dim / chip.flops + 7 * padded * heads / chip.issue
    moved = keys_bytes / 1.12 + 4 * pairs + tokens * heads * (dim + 4)
    return max(work, moved / chip.bandwidths[-1]) + chip.launch + 12.5 * chip.latency


def selection(chip, tokens, visible, topk, shared):
    """Rows in rounds over the bundles: eight bundles a row in decode, four rows a bundle in prefill."""
    at_once = chip.bundles / 8 if shared else 4 * chip.bundles
    rounds = ceil(tokens / at_once)
    trips = 4 * rounds
    if visible > topk:
        trips = 30 + 4 * (rounds - 1) if shared else 30 * rounds
    moved = tokens * ((2 * 4 * visible if visible > topk else 0) + 4 * topk)
    return moved / chip.bandwidths[-1] + chip.launch + trips * chip.latency


def attention(chip, tokens, sequences, keys, most, stored, heads, dim, value_dim, cache, decodes):
    """Blocks of a token over latent keys in 2 bytes or, narrower, in `cache` bytes."""
    narrow = cache < 2
    if chip.pair > 1 and (narrow or heads <= 16):
        return _generated(chip, tokens, sequences, keys, most, stored, heads, dim, value_dim, cache)
    converts = narrow and (decodes or heads < 32)
    tiles = ceil(heads / (64 * chip.pair))
    at_once = chip.bundles / chip.pair
    rows, blocks = 64 * chip.pair, tokens * tiles
    computed = ceil((most if converts else keys) / 64) * 64
    work = chip.bundles * (2 * 64 * (dim + value_dim) / chip.flops + 64 / chip.exponentials)
    if converts:
        work += 12.5 * value_dim / min(2, tiles) * chip.bundles / chip.issue
    read = dim * (cache if converts else 2) * at_once / chip.bandwidths[-2]
    parts = max(1, min(at_once / blocks, max(1, computed / 128))) if converts else 1
    rounds = max(1, blocks * parts / at_once) if converts else ceil(blocks / at_once)
    return _whole(
        chip, tokens, sequences, keys, stored, (rows, at_once, rounds, parts, computed),
        sqrt(work**2 + read**2),
        heads, dim, value_dim, cache, converts,
    )  # fmt: skip


def _generated(chip, tokens, sequences, keys, most, stored, heads, dim, value_dim, cache):
    rows = max(heads, 8)
    work = chip.bundles * (2 * rows * (dim + value_dim) / (chip.flops * 2 / cache) + rows / chip.exponentials)
    read = dim * cache * chip.bundles / (0.34 * chip.bandwidths[-2])
    parts = max(1, min(chip.bundles / tokens, max(1, keys / 128)))
    rounds = max(1, tokens * parts / chip.bundles)
    sums = 0
    if heads <= 32:  # parts of 256 keys, written and read in fp32
        sums = 2 * 4 * tokens * heads * value_dim * ceil(most / 256) / chip.bandwidths[-1]
    return sums + _whole(
        chip, tokens, sequences, keys, stored, (rows, chip.bundles, rounds, parts, keys),
        sqrt(work**2 + read**2), heads, dim, value_dim, cache, True,
    )  # fmt: skip


def _whole(chip, tokens, sequences, keys, stored, blocks, step, heads, dim, value_dim, cache, divided):
    rows, at_once, rounds, parts, computed = blocks
    memory = 1.12 * chip.bandwidths[-1]
    begin = 12.5 * chip.latency + rows * 2 * (dim + value_dim) * at_once / memory
    inside = rounds * (begin + computed / parts * step)
    unique = min(tokens * keys, sequences * stored) * dim * cache / memory
    merge = 0
    if divided:
        merge = chip.launch + 7 * chip.latency
        if parts > 1:
            merge += 2 * 4 * tokens * heads * value_dim * parts / chip.bandwidths[-2]
    return (inside**4 + unique**4) ** 0.25 + chip.launch + merge


# --- tensors


def of_sparse(size):
    """Return the shapes of sparse attention's tensors: latent where the size has latent keys."""
    h, heads, columns = size["hidden"], size["heads"], size["head_dim"]
    index = size["index_heads"] * size["index_dim"]
    found = {"index k": (h, size["index_dim"]), "index w": (h, size["index_heads"])}
    found |= {"index gain": (size["index_dim"],), "index bias": (size["index_dim"],)}
    if not size.get("latent"):
        kv = size["kv_heads"] * columns
        found |= {"q": (h, heads * columns), "k": (h, kv), "v": (h, kv), "index q": (h, index)}
        return found | {"o": (heads * columns, h)}
    inner = size["query_latent"]
    found |= {"q a": (h, inner), "q norm": (inner,), "q b": (inner, heads * (columns + size["rotary"]))}
    found |= {"kv a": (h, size["latent"] + size["rotary"]), "kv norm": (size["latent"],)}
    found |= {"k b": (heads, columns, size["latent"]), "v b": (heads, size["latent"], columns)}
    return found | {"index q": (inner, index), "o": (heads * columns, h)}


def of_compressed(size):
    """Return the shapes of compressed attention's tensors (DeepseekV4Attention of transformers)."""
    h, heads, columns, inner = (size[name] for name in ("hidden", "heads", "head_dim", "query_latent"))
    groups, rank = size["output_groups"], size["output_latent"]
    found = {
        "q a": (h, inner), "q norm": (inner,), "q b": (inner, heads * columns), "kv": (h, columns),
        "kv norm": (columns,), "sinks": (heads,), "o a": (groups, heads * columns // groups, rank),
        "o b": (groups * rank, h),
    }  # fmt: skip
    ratio, topk = size.get("compression", 1), size.get("index_topk", 0)
    if ratio == 1:
        return found
    windows = 2 if topk else 1
    dims = {"": columns} | ({"index ": size["index_dim"]} if topk else {})
    for name, dim in dims.items():
        found |= {f"{name}c": (h, windows * dim), f"{name}z": (h, windows * dim)}
        found |= {f"{name}positions": (ratio, windows * dim), f"{name}pool norm": (dim,)}
    if topk:
        found |= {
            "index q": (inner, size["index_heads"] * size["index_dim"]),
            "index w": (h, size["index_heads"]),
        }
    return found


def of_native_sparse(size):
    """Return the shapes of native sparse attention's tensors, of three branches."""
    h, heads, columns, kv = (
        size["hidden"],
        size["heads"],
        size["head_dim"],
        size["kv_heads"] * size["head_dim"],
    )
    found = {"q": (h, heads * columns), "o": (heads * columns, h), "gates": (h, 3 * heads)}
    found |= {f"{part} {branch}": (h, kv) for branch in range(3) for part in "kv"}
    return found | {"positions": (2 * size["compression"], 2 * columns)}
