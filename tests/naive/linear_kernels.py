"""Times of kernels of linear-time mixers on one chip, kernel by kernel, in plain numbers."""

from math import ceil


def convolution(chip, sequences, tokens, channels, size):
    """Blocks of 1,024 tokens of a channel, shared out over the bundles; the busiest bundle decides."""
    segments = ceil(tokens / 1024)
    element = 34 * (1 if tokens % 8 == 0 else 1.58)
    busiest = ceil(sequences * channels / chip.bundles)
    instructions = busiest * (18_600 + segments * 1024 * element)
    moved = 2 * size * sequences * tokens * channels
    return whole(chip, moved, instructions * chip.bundles, 1 + 5.7 * segments)


def convolution_step(chip, sequences, channels, width, size):
    """The tokens of the window are read and written."""
    return whole(chip, 2 * size * width * sequences * channels, 260 * sequences * channels, 7)


def step(chip, sequences, key_heads, key, heads, value, state_size, size):
    """The state of every head is read and written; a query, a key, a value and an output are moved."""
    states = sequences * heads * key * value
    columns = sequences * (2 * key_heads * key + 2 * heads * value)
    return whole(chip, 2 * state_size * states + size * columns, 61 * states, 3.4)


def chunks(chip, sequences, tokens, key_heads, key, heads, value, state_size, size, delta):
    """Kernels that each read and write tensors of a chunk, and chunks that wait for each other."""
    length, launches = (64, 6) if delta else (256, 5)
    number, all_heads, shared = ceil(tokens / length), sequences * heads, heads / key_heads
    if delta:
        token = 4 + 7 * key + 6 * value + 6 * length + 2 * key * value / length
    else:
        token = 8 + 3 * value + (4 * key + 2 * length) / shared + 8 * key * value / length
    moved = all_heads * (size * tokens * token + 2 * state_size * key * value)
    instructions = all_heads * (number * key * value * 144 + tokens * (key + value) * 65)
    waiting = number * 0.93e-6 * min(1.0, chip.bundles / all_heads)
    return whole(chip, moved, instructions, 1.4 * launches, launches) + waiting


def whole(chip, moved, instructions, trips, launches=1):
    """Bytes or instructions, whichever take longer, and what neither hides."""
    longer = max(moved / chip.bandwidths[-1], instructions / chip.issue)
    return longer + launches * chip.launch + trips * chip.latency
