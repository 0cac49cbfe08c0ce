"""Cases of a collector's prompts of attention, by loops as in its source."""


def cases(heads, types, max_elements=2**31 - 1):
    """Return (head_dim, heads, kv_heads, window, length, prompts, type), in the order of their runs."""
    found = []
    lengths = [1, 16, 32, 64, 128, 256, 512, 1024, 1536, 2048, 3072, 4096, 6144, 8192, 10240, 12288, 16384]
    for head_dim in sorted({each[0] for each in heads}):
        for queries in sorted({each[1] for each in heads}, reverse=True):
            for keys in [queries, *range(1, queries)]:
                for window in sorted({each[3] for each in heads}):
                    if (head_dim, queries, keys, window) not in heads:
                        continue
                    for length in sorted(lengths, reverse=True):
                        for prompts in (256, 128, 64, 32, 16, 8, 4, 2, 1):
                            if keys == queries and (length * prompts > 65536 or prompts > 128):
                                continue
                            if length * prompts > 131072:
                                continue
                            if length * prompts * keys * head_dim * 2 >= max_elements:
                                continue
                            for kind in types:
                                found.append((head_dim, queries, keys, window, length, prompts, kind))
    return found
