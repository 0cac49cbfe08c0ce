"""Memory traffic of a logit in PyTorch's top-p sampling, kernel by kernel: bytes read and written.

As in vLLM's apply_top_k_top_p and random_sample (vllm/v1/sample/ops/topk_topp_sampler.py) with `torch.sort`
(aten/src/ATen/native/cuda/Sort.cu): logits of 16 bits come in, a sorted key has 4 bytes, an index 8, a truth
value 1.
"""

KEY, INDEX, TRUTH = 4, 8, 1
DIGIT, KEY_BITS = 6, 32  # a segmented radix sort takes so many bits a round

BEFORE = [
    ("cast to fp32", 2, KEY),
    ("divide by the temperature", KEY, KEY),
]
AFTER = [
    ("softmax", 2 * KEY, KEY),
    ("running sum", KEY, KEY),
    ("compare", KEY, TRUTH),
    ("fill where the mask is", TRUTH + KEY, KEY),
    ("scatter back", KEY + INDEX, KEY),
    ("softmax", 2 * KEY, KEY),
    ("exponential noise", 0, KEY),
    ("quotient", 2 * KEY, KEY),
    ("maximum", KEY, 0),
]


def rounds():
    """Yield the kernels of the sort: each round counts the digits, and moves keys with their indices."""
    yield "indices", 0, INDEX
    for _ in range(-(-KEY_BITS // DIGIT)):
        yield "count digits", KEY, 0
        yield "move", KEY + INDEX, KEY + INDEX


def sort_traffic():
    """Return all of it [B]."""
    return sum(read + written for _, read, written in [*BEFORE, *rounds(), *AFTER])
