"""A distributed GEMM (3.3, 5.1): C[m,n] = A[m,k] B[k,n], rows m of the batch.

CR-KP1 cuts k: local (m, k/KP1, n), then reduce-scatter of C. Backward: all-gather dC, then dA and dB
locally. RC-KP1-KP2 cuts m by KP1 and n by KP2: local (m/KP1, k, n/KP2), then all-gather of C along
KP2. Backward: dA is a partial sum along KP2, dB a partial sum along KP1. d{DP}: batch shards,
all-reduce of the weight gradients. The largest shard counts where a side does not divide.
"""


def shard(side, ways):
    """Return the largest of `ways` shards of a side, dealt out one at a time."""
    shards = [0] * ways
    for i in range(side):
        shards[i % ways] += 1
    return max(shards)


def cut(m, k, n, element, kernel, kp1, kp2, dp):
    """Return for each of the three products its local (m, k, n), and (collective, bytes, ranks) after it."""
    m = shard(m, dp)
    if kernel == "RC":
        m, n_local = shard(m, kp1), shard(n, kp2)
        forward = (m, k, n_local), ("all-gather", m * n * element, kp2)
        input_gradient = (m, n_local, k), ("all-reduce", m * k * element, kp2)
        weight_gradient = (k, m, n_local), ("all-reduce", k * n_local * element, dp * kp1)
    elif kernel == "CR":
        k = shard(k, kp1)
        forward = (m, k, n), ("reduce-scatter", m * n * element, kp1)
        input_gradient = (m, n, k), ("all-gather", m * n * element, kp1)
        weight_gradient = (k, m, n), ("all-reduce", k * n * element, dp)
    else:
        forward = (m, k, n), ("", 0, 1)
        input_gradient = (m, n, k), ("", 0, 1)
        weight_gradient = (k, m, n), ("all-reduce", k * n * element, dp)
    return [
        (size, exchange if exchange[2] > 1 else ("", 0, 1))
        for size, exchange in (forward, input_gradient, weight_gradient)
    ]


def table_gradient(tokens, vocabulary, cols, element, kernel, kp1, kp2, dp):
    """Return (collective, bytes, ranks) of an embedding's gradient, over the devices that share its weights.

    Each of them has the gradients of its own tokens' rows: they are gathered, or the whole table is summed
    by a reduce-scatter and an all-gather of the sums, whichever brings a device fewer bytes.
    """
    ranks = dp * (kp1 if kernel == "RC" else 1)
    width = shard(cols, {"RC": kp2, "CR": kp1}.get(kernel, 1))  # a table is cut as what is read from it is
    table, gathered = vocabulary * width * element, shard(tokens, ranks) * ranks * width * element
    others = ranks - 1
    if ranks == 1:
        return "", 0, 1
    if others * gathered < others * table + others * table:
        return "all-gather", gathered, ranks
    return "all-reduce", table, ranks
