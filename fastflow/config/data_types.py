"""Other names of data types, and what is nearest to types that are not modelled."""

from __future__ import annotations

import re
from collections.abc import Collection

_LIBRARY = re.compile(r"^(torch|jnp|jax\.numpy|np|tf|dtype)\.")
_SYNONYMS = {
    "fp32": "float32 float f32 single fp32_ieee",
    "tf32": "tensorfloat32 tensorfloat_32 tfloat32",
    "bf16": "bfloat16 bfloat brainfloat16 b16",
    "fp16": "float16 half f16",
    "fp8": "float8 f8 fp8_e4m3 fp8_e5m2 fp8_e4m3fn fp8_e4m3fnuz fp8_e5m2fnuz e4m3 e4m3fn e5m2 float8_e4m3"
    " float8_e4m3fn float8_e4m3fnuz float8_e5m2 float8_e5m2fnuz fp8_hybrid fp8_delayed fp8_tensorwise"
    " fp8_per_tensor fp8_current",
    "fp8_block": "fp8_blockwise fp8_block_scaled fp8_blockscale block_fp8 blockwise_fp8 float8_blockwise",
    "int8": "i8 w8a8 int8_sq w8a8_int8",
    "nvfp4": "fp4_nv nvidia_fp4",
    "mxfp4": "fp4_mx mx_fp4 mxfp4_e2m1",
    "w4a16": "w4a16_awq w4a16_gptq int4_awq int4_gptq int4_wo int4_weight_only",
    "w8a16": "w8a16_gptq int8_wo int8_weight_only",
    "w4afp8": "w4a8_awq w4a8_fp8",
    "w4a8": "w4a8_int8",
    "fp8_w8a16": "w8a16_fp8 fp8_weight_only",
    "nvfp4_w4a16": "w4a16_nvfp4 nvfp4a16",
    "mxfp4_w4a16": "w4a16_mxfp4 mxfp4a16",
    "mxfp4_w4a8": "w4a8_mxfp4 w4a8_mxfp4_fp8 w4a8_mxfp4_mxfp8",
}
_BY_SYNONYM = {name: dtype for dtype, names in _SYNONYMS.items() for name in names.split()}
_UNMODELLED = {
    "mxfp8 mxfp8_e4m3 mxfp8_e5m2 mx_fp8 mx8 mx9": ("8 bits with a scale for 32 numbers", ("fp8_block",)),
    "nvfp8": ("no type of NVIDIA's; of 8 bits", ("fp8", "fp8_block")),
    "fp8_rowwise fp8_per_channel fp8_per_token fp8_dynamic": ("8 bits with a scale for a row", ("fp8",)),
    "mxint8": ("8 bits with a scale for 32 numbers", ("int8",)),
    "fp6 mxfp6 mx6 fp6_e2m3 fp6_e3m2 e2m3 e3m2 float6": ("6 bits, at the rate of 8 on Blackwell", ("fp8",)),
    "fp4 float4 f4 e2m1 fp4_e2m1 float4_e2m1": ("4 bits with a scale for 16 or 32", ("nvfp4", "mxfp4")),
    "int4 i4 uint4 nf4 awq gptq q4": ("weights of 4 bits", ("w4a16", "nvfp4", "mxfp4", "int4")),
    "int2 ternary bitnet w1_58a8": ("weights of 2 bits", ("w2a16", "w2a8", "int4")),
    "int16": ("16 bits", ("fp16", "bf16")),
    "int32": ("32 bits", ("fp32",)),
    "fp64 float64 f64 double int64": ("64 bits, more than any", ("fp32",)),
}
"""Description of each type, and the modelled types nearest in bytes and rate."""
_FP4 = ("nvfp4", "mxfp4")
_DESCRIPTIONS = {name: description for names, description in _UNMODELLED.items() for name in names.split()}
_WIDER = ("fp8", "int8"), ("fp16", "bf16")
"""The nearest where a key takes nothing narrower."""


def _normalised(text: str) -> str:
    """Return a name as the tables have it."""
    return _LIBRARY.sub("", text.strip().lower()).replace("-", "_").replace(" ", "_")


def data_type(text: str, known: Collection[str]) -> str:
    """Return the data type that a text names, of those that are known; the text itself where none."""
    name = _normalised(text)
    dtype = name if name in known else _BY_SYNONYM.get(name, text)
    types_of_4_bits = [name for name in _FP4 if name in known]
    if name in ("fp4", "float4", "f4") and len(types_of_4_bits) == 1:
        return types_of_4_bits[0]  # of a key that takes one of these
    return dtype if dtype in known else text


def nearest(text: str, known: Collection[str]) -> str:
    """Describe a data type that is not modelled, and the nearest modelled types; "" for any other text.

    known: the data types that a key takes.
    """
    if _normalised(text) not in _DESCRIPTIONS:
        return ""
    description, candidates = _DESCRIPTIONS[_normalised(text)]
    supported = next(
        filter(None, ([dtype for dtype in dtypes if dtype in known] for dtypes in (candidates, *_WIDER))), []
    )
    return f"{description}: nearest here {'is' if len(supported) == 1 else 'are'} {' and '.join(supported)}"
