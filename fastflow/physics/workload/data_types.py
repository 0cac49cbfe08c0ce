"""Data types of products: bytes of operands, weights and results, and the types that products compute in.

Most types are those of both operands. Types of *weights alone* have names of compressed-tensors and vLLM:
`w4a16` is weights of 4 bits with activations of 16 bits. Integer weights have no prefix and integer
activations (`w4a8`), or fp8 activations (`w4afp8`); weights of other formats have a prefix (`mxfp4_w4a16`,
`nvfp4_w4a16`, `fp8_w8a16`). Integer weights have a scale of 16 bits for each group of `precision.group`
weights, and a zero point of their own bits where `precision.zero_points` says so (AWQ, arXiv:2306.00978;
GPTQ, arXiv:2210.17323).

Products read such weights as they are stored, convert them, and compute in the type of the activations
(Marlin, arXiv:2408.11743). Where a chip lacks this type, they compute in the next wider one.
"""

from __future__ import annotations

from typing import NamedTuple

WIDE = ("bf16", "fp16", "fp32")
"""Types without quantised operands, the nearest first to those that a chip lacks."""
SCALE_BYTES = 2.0  # of a group of integer weights
FP32_SCALE_BYTES = 4  # of a block or a row of fp8
# Operations: for the largest magnitude, absolute value and compare; to quantise, scale and round
MAXIMUM_FLOP, QUANTISE_FLOP = 2.0, 2.0
# Operands of weight gradients are transformed 16 at a time, with as many additions as a fast Hadamard
# transform has stages, and gradients rounded with a random number (NVIDIA, Pretraining Large Language Models
# with NVFP4, arXiv:2509.25149, sections 3.2 and 3.4)
HADAMARD_FLOP, ROUNDING_FLOP = 4.0, 1.0


class Format(NamedTuple):
    """Bytes of an element of a data type, with its share of the scales of its block."""

    operand: float  # as a product reads it: of both operands, or of activations
    output: float  # as a product writes it
    quantized: float = 0.0  # as quantising an activation writes it; 0 where nothing is quantised
    # operations of a lane that quantise an element, its share of a scale included
    quantising: float = MAXIMUM_FLOP + QUANTISE_FLOP
    stored: float = 0.0  # of a weight in a type of weights alone, without scales of groups; 0: as operand
    grouped: bool = False  # weights have scales for groups
    products: tuple[str, ...] = ()  # that compute it, the first that a chip has; (): the type itself
    native: str = ""  # a type whose units read such weights unconverted
    conversion: float = 0.0  # instructions that convert a weight on vector lanes
    training: float = 0.0  # operations that prepare an element to be quantised in training


# Instructions of a lane that convert a weight, as counted in Marlin's CUDA code (IST-DASLab/marlin@0f102e1,
# dequant and scale): of four weights of 4 bits, two logical operations, a shift for every other four, a
# subtraction, a multiply-add, two multiplications by scales and the copy of a scale. Floats of 4 and 8 bits
# take as many: two shifts, two logical operations, two multiplications of exponents
# (vllm-project/vllm, csrc/quantization/marlin/dequant.h)
CONVERSION = 7.5 / 4.0


def _of_integers(bits: int) -> dict[str, Format]:
    """Return the types of integer weights of some bits, by the type of activations."""
    stored = bits / 8.0
    common = {"output": 2.0, "stored": stored, "grouped": True, "conversion": CONVERSION}
    of_8 = {"operand": 1.0, "quantized": 1.0}
    types = {f"w{bits}a16": Format(operand=2.0, products=WIDE, **common)}  # type: ignore[arg-type]
    if bits < 8:
        types[f"w{bits}a8"] = Format(products=("int8", *WIDE), **of_8, **common)  # type: ignore[arg-type]
        types[f"w{bits}afp8"] = Format(products=("fp8", *WIDE), **of_8, **common)  # type: ignore[arg-type]
    return types


# Scales: fp8_block has one of fp32 for 1 x 128 activations and for 128 x 128 weights, which are most of what
# a product reads where its bytes matter (DeepSeek-V3, arXiv:2412.19437, section 3.3); nvfp4 one of fp8 for 16
# elements (NVIDIA, Pretraining Large Language Models with NVFP4, arXiv:2509.25149); mxfp4 one of 8 bits for
# 32 (OCP Microscaling Formats, version 1.0). Those of fp8 and int8, a tensor's or a row's, are few.
# Operations that quantise to them are calibrated: fp8_block's on products on H100 and B200, nvfp4's on B200
# (ai-dynamo/aiconfigurator@095f58a).
# Results are bf16, int8's too once its int32 sums are multiplied by both scales, as TensorRT-LLM's
# SmoothQuant kernels do.
DATA_TYPES = {
    "fp32": Format(4.0, 4.0),
    "tf32": Format(4.0, 4.0),
    "bf16": Format(2.0, 2.0),
    "fp16": Format(2.0, 2.0),
    "fp8": Format(1.0, 2.0, 1.0),
    "fp8_block": Format(1.0 + FP32_SCALE_BYTES / 128**2, 2.0, 1.0 + FP32_SCALE_BYTES / 128, 105.0),
    "int8": Format(1.0, 2.0, 1.0),
    "nvfp4": Format(0.5 + 1.0 / 16, 2.0, 0.5 + 1.0 / 16, 49.0, training=HADAMARD_FLOP + ROUNDING_FLOP),
    "mxfp4": Format(0.5 + 1.0 / 32, 2.0, 0.5 + 1.0 / 32),
    "fp8_w8a16": Format(2.0, 2.0, stored=1.0, products=WIDE, conversion=CONVERSION),
    "nvfp4_w4a16": Format(2.0, 2.0, stored=0.5 + 1.0 / 16, products=WIDE, conversion=CONVERSION),
    "mxfp4_w4a16": Format(2.0, 2.0, stored=0.5 + 1.0 / 32, products=WIDE, conversion=CONVERSION),
    # activations have a scale for 32 elements (mxfp8); units of Blackwell read both types at once, at the
    # rate of 8 bits (NVIDIA PTX documentation, mma kind mxf8f6f4)
    "mxfp4_w4a8": Format(
        1.0 + 1.0 / 32, 2.0, 1.0 + 1.0 / 32, stored=0.5 + 1.0 / 32, products=("fp8", *WIDE), native="mxfp4",
        conversion=CONVERSION,
    ),
    **_of_integers(8), **_of_integers(4), **_of_integers(3), **_of_integers(2),
}  # fmt: skip
OF_WEIGHTS_ALONE = tuple(name for name, form in DATA_TYPES.items() if form.stored > 0.0)
BOTH_OPERANDS = tuple(name for name in DATA_TYPES if name not in OF_WEIGHTS_ALONE)
UNMODELLED = "unmodelled"
"""Stands for a published type that is not modelled: such a point of a grid has a reason to have no time."""
AS_WEIGHTS = {
    "fp8": "fp8_w8a16", "fp8_block": "fp8_w8a16", "int8": "w8a16", "nvfp4": "nvfp4_w4a16",
    "mxfp4": "mxfp4_w4a16",
}  # fmt: skip
"""Types that not every chip multiplies, and the types of weights alone that hold the same weights."""
