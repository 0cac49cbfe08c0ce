"""Biases of experts as Megatron-core's TEGroupedMLP adds them, kernel by kernel: bytes of a number.

torch.cat([t + b * p for t, b, p in zip(...)]).to(t.dtype): t in 16 bits, the router's weight p in 32.
"""

NARROW, WIDE = 2, 4

FORWARD = [
    ("b * p", 0, WIDE),
    ("t + b * p", NARROW + WIDE, WIDE),
    ("concatenation", WIDE, WIDE),
    ("rounding", WIDE, NARROW),
]
BACKWARD = [
    ("gradient of the rounding", NARROW, WIDE),
    ("gradient of t", WIDE, NARROW),
    ("gradients of the parts of t in one", NARROW, NARROW),
    ("gradient of b, of each row", WIDE, WIDE),
    ("gradient of b, summed over rows", WIDE, 0),
    ("gradient of p, of each column", WIDE, WIDE),
    ("gradient of p, summed over columns", WIDE, 0),
]


def traffic(kernels):
    """Return all of it [B]."""
    return sum(read + written for _, read, written in kernels)
