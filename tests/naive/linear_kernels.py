"""Times of kernels of linear-time mixers on one chip, kernel by kernel, in plain numbers."""

from math import ceil, log2

# Tokens of a chunk, kernels, and of a token and head: numbers, columns of keys and of values, pairs with the
# tokens of a chunk, shares of a state, that kernels move; uses of a state a chunk
FORWARD = {
    "gated_delta": (64, 6, 4, 7, 6, 6, 2, 4),
    "kimi_delta": (64, 7, 3, 21, 6, 10, 2, 4),
    "state_space": (256, 5, 8, 4, 3, 2, 8, 5),
    "gated_linear": (64, 5, 0, 17, 3, 4, 2, 3),
    "retention": (64, 2, 0, 3, 3, 0, 2, 3),
    "lightning": (256, 4, 0, 4, 5, 0, 8, 5),
    "rwkv7": (16, 6, 0, 23, 8, 16, 2, 5),
}
# of the backward pass: all kernels but the last once more, and twice what each reads and once what it writes
BACKWARD = {
    "gated_delta": (64, 9, 4 + 7, 5 + 13, 4 + 9, 6 + 9, 1 + 3, 3 + 8),
    "kimi_delta": (64, 8, 3 + 6, 18 + 38, 4 + 9, 8 + 15, 1 + 3, 3 + 8),
    "state_space": (256, 14, 6 + 14, 3 + 8, 1 + 5, 1 + 3, 6 + 12, 4 + 10),
    "gated_linear": (64, 7, 0, 14 + 32, 1 + 5, 2 + 6, 1 + 3, 2 + 6),
    "retention": (64, 4, 0, 1 + 6, 1 + 5, 0, 1 + 3, 2 + 6),
    "lightning": (256, 2, 0, 3 + 8, 3 + 8, 0, 6 + 12, 4 + 10),
    "rwkv7": (16, 12, 0, 22 + 37, 5 + 13, 14 + 24, 1 + 3, 4 + 10),
}
SHARED_KEYS = ("state_space", "selective_scan")
STEP_COLUMNS = {"kimi_delta": (3, 1), "gated_linear": (3, 1), "rwkv7": (5, 1), "selective_scan": (2, 3)}


def convolution(chip, sequences, tokens, channels, size, backward=False):
    """Blocks of 1,024 tokens of a channel, shared out over the bundles; the busiest bundle decides.

    Backward has three products with the weights, and three tensors.
    """
    products, tensors = (3, 3) if backward else (1, 2)
    segments = ceil(tokens / 1024)
    element = products * 34 * (1 if tokens % 8 == 0 else 1.58)
    busiest = ceil(sequences * channels / chip.bundles)
    instructions = busiest * (18_600 + segments * 1024 * element)
    moved = tensors * size * sequences * tokens * channels
    return whole(chip, moved, instructions * chip.bundles, 1 + 5.7 * segments)


def convolution_step(chip, sequences, channels, width, size):
    """The tokens of the window are read and written."""
    return whole(chip, 2 * size * width * sequences * channels, 260 * sequences * channels, 7)


def step(chip, rule, sequences, key_heads, key, heads, value, state_size, size):
    """The state of every head is read and written; a query, a key, a value and an output are moved."""
    states = sequences * heads * key * value
    keys, values = STEP_COLUMNS.get(rule, (2, 1))
    columns = sequences * (keys * key_heads * key + (values + 1) * heads * value)
    return whole(chip, 2 * state_size * states + size * columns, 61 * states, 3.4)


def chunks(
    chip, rule, sequences, tokens, key_heads, key, heads, value, state_size, size, backward=False
):  # fmt: skip
    """Kernels that each read and write tensors of a chunk, and chunks that wait for each other."""
    length, launches, numbers, keys, values, pairs, shares, uses = (BACKWARD if backward else FORWARD)[rule]
    number, all_heads = ceil(tokens / length), sequences * heads
    shared = heads / key_heads if rule in SHARED_KEYS else 1
    columns = keys * key / shared + values * value
    token = numbers + columns + pairs * length / shared + shares * key * value / length
    moved = all_heads * (size * tokens * token + 2 * state_size * key * value)
    instructions = all_heads * (number * uses * key * value * 36 + tokens * columns * 10)
    passes = 2 if backward else 1
    waiting = passes * number * 0.93e-6 * min(1.0, chip.bundles / all_heads)
    return whole(chip, moved, instructions, 1.4 * launches, launches) + waiting


def scan(
    chip, sequences, tokens, key_heads, key, heads, value, state_size, size, backward=False
):  # fmt: skip
    """A block for each channel goes through its tokens, 128 to 2,048 of them at a time, and all states."""
    at_once = min(max(2 ** ceil(log2(tokens)), 128), 2048)
    number, all_heads, shared = ceil(tokens / at_once), sequences * heads, heads / key_heads
    keys, values, shares = (4, 8, 4) if backward else (2, 5, 4)
    token = keys * key / shared + values * value + shares * key * value / 2048
    moved = all_heads * (size * tokens * token + 2 * state_size * key * value)
    busiest = ceil(all_heads / chip.bundles) * chip.bundles
    work = (3 * 7 - 2) / 7 if backward else 1
    instructions = busiest * number * at_once * key * value * 14 * work
    return whole(chip, moved, instructions, 1 + 5.7 * number)


def whole(chip, moved, instructions, trips, launches=1):
    """Bytes or instructions, whichever take longer, and what neither hides."""
    longer = max(moved / chip.bandwidths[-1], instructions / chip.issue)
    return longer + launches * chip.launch + trips * chip.latency
