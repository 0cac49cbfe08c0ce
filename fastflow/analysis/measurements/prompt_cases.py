"""The collector's prompts of attention, in their order, and where rows of a file are among them.

Each heads, heads of keys, head and window has its lengths from the longest, of each the most prompts first,
and each type of products and cache (ai-dynamo/aiconfigurator@095f58a, collector/trtllm/collect_attn.py,
collector/case_generator.py and collector/cases/base_ops/attention_context.yaml).
"""

from __future__ import annotations

from bisect import bisect_left
from itertools import product

import numpy as np

from fastflow.core.tables import Columns, Ints

LENGTHS = (16384, 12288, 10240, 8192, 6144, 4096, 3072, 2048, 1536, 1024, 512, 256, 128, 64, 32, 16, 1)
PROMPTS = [2**i for i in range(8, -1, -1)]
MOST_TOKENS, MOST_TOKENS_ALONE, MOST_PROMPTS_ALONE = 131072, 65536, 128  # alone: heads that share no keys
MOST_ELEMENTS = 2**31 - 1  # of keys and values

_Heads = tuple[int, int, int, int]
_Case = tuple[_Heads, int, int, tuple[bool, bool]]


def prompt_cases(inputs: Columns) -> tuple[Columns, Ints]:
    """Return the sizes of the collector's cases, (cases,), and the case of each row, (rows,).

    inputs: of the model, of rows that are prompts. Cases have the rows' heads and types; rows of other
    lengths or numbers of prompts are taken as the next case.
    """
    rows = _keys(inputs)
    types = {
        key[3]: names
        for key, *names in zip(
            rows, inputs["model.dtype"].tolist(), inputs["precision.cache"].tolist(), strict=True
        )
    }
    cases = [
        (heads, -length, -prompts, kind)
        for heads in sorted({key[0] for key in rows})
        for length, prompts, kind in product(LENGTHS, PROMPTS, sorted(types))
        if _is_run(heads, length, prompts)
    ]
    heads, lengths, prompts, kinds = zip(*cases, strict=True)
    head_dim, queries, keys, window = np.array(heads).T
    dtypes, caches = zip(*(types[kind] for kind in kinds), strict=True)
    sizes = {
        "model.head_dim": head_dim, "model.heads": -queries, "model.window": window,
        "model.kv_heads": np.where(keys == 0, -queries, keys),
        "model.q_len": -np.array(lengths), "model.kv_len": -np.array(lengths),
        "model.batch": -np.array(prompts),
        "model.dtype": np.array(dtypes), "precision.cache": np.array(caches),
    }  # fmt: skip
    at = np.array([bisect_left(cases, key) for key in rows])
    return sizes, np.minimum(at, len(cases) - 1)


def _keys(inputs: Columns) -> list[_Case]:
    """Return what sorts rows as the collector does."""
    names = ("head_dim", "heads", "kv_heads", "window", "kv_len", "batch")
    sizes = (inputs[f"model.{name}"].tolist() for name in names)
    types = (inputs[name] == "fp8" for name in ("model.dtype", "precision.cache"))
    return [
        ((dim, -heads, 0 if heads == keys else keys, window), -length, -prompts, (narrow, cached))
        for dim, heads, keys, window, length, prompts, narrow, cached in zip(
            *sizes, *(column.tolist() for column in types), strict=True
        )
    ]


def _is_run(heads: _Heads, length: int, prompts: int) -> bool:
    """Say whether the collector runs a case."""
    head_dim, queries, keys, _ = heads
    is_alone, tokens = keys == 0, length * prompts
    if 2 * tokens * (keys or -queries) * head_dim >= MOST_ELEMENTS:
        return False
    if is_alone:
        return tokens <= MOST_TOKENS_ALONE and prompts <= MOST_PROMPTS_ALONE
    return tokens <= MOST_TOKENS
