"""What a cache holds of the tensors of a repeated product, tensor by tensor (docs/model_kernels.md)."""

SPREAD = 0.15


def held(used, cache):
    """Return the share that is held of a tensor, after so many used bytes."""
    full, empty = (1 - SPREAD) * cache, (1 + SPREAD) * cache
    if used <= full:
        return 1.0
    return 0.0 if used >= empty else (empty - used) / (empty - full)


def partitions_of_a_line(partitions, readers):
    """Return how many partitions hold a line: those of its readers, and its own, each as often."""
    reading = set(range(min(partitions, readers)))
    return sum(len(reading | {own}) for own in range(partitions)) / partitions


def product(copies, a, b, c, cache, part, readers=10**9):
    """Return the shares of A, B and C; copies: of B at most; part: of the cache, that each reader has.

    readers: of each row of A.
    """
    if not copies or not cache:
        return 0.0, 0.0, 0.0
    turns = 1
    while turns < copies and turns * b < cache:
        turns += 1
    partitions = max(1, round(cache / part))
    a *= partitions_of_a_line(partitions, min(readers, partitions)) / partitions
    used_between_reads_of_a = a + b + c
    used_between_reads_of_b = a + turns * b + c
    alone = held(used_between_reads_of_a, part)
    return alone, held(used_between_reads_of_b, part), 0.0 if part < cache else alone
