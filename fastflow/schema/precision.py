"""Inputs of precision: data types by the roles of tensors."""

from __future__ import annotations

from fastflow.core.field import Column, count, text
from fastflow.physics.parallelism.options import SWITCH
from fastflow.physics.workload.precision import (
    ATTENTION_TYPES,
    CACHE_TYPES,
    MASTER_TYPES,
    MODULE_TYPES,
    ROLE_TYPES,
    STATE_TYPES,
)

PRECISION: tuple[Column, ...] = (
    *(
        text(f"precision.{role}", f"data type of {tensors}; operand: that of model.dtype", ROLE_TYPES)
        for role, tensors in (
            ("weight", "weights: held, gathered (ZeRO) and written by the update"),
            ("activation", "activations and their gradients: kept, moved and exchanged"),
            ("gradient", "weight gradients: held, summed over devices, read by their norm and the update"),
        )
    ),
    text(
        "precision.fp8_param_gather",
        "true: quantised weights are held and gathered in fp8 alone, without a copy of 16 bits (Megatron's"
        " --fp8-param-gather); auto: so with fp8, and with fp8_block on matrix units that scale",
        SWITCH,
    ),
    text(
        "precision.state",
        "data type of the optimizer state, such as int8 with a scale for 256 numbers (8-bit Adam);"
        " operand: that of model.dtype",
        STATE_TYPES,
    ),
    text(
        "precision.cache",
        "data type of the KV cache; operand: that of activations, or bf16 where products quantise",
        CACHE_TYPES,
    ),
    text(
        "precision.attention",
        "data type that attention computes in; auto: fp8 where the cache is fp8 and the chip computes in"
        " fp8 (on Blackwell only if products quantise or attention is latent), else that of products, or"
        " bf16 where products quantise",
        ATTENTION_TYPES,
    ),
    text(
        "precision.experts",
        "data type of the weights of experts, such as mxfp4; where the chip does not multiply in"
        " this type, weights are converted to 16 bits as they are read",
        MODULE_TYPES,
    ),
    text(
        "precision.attention_weights",
        "data type of the weights of attention (queries, keys, values, projection); operand: that of"
        " model.dtype",
        MODULE_TYPES,
    ),
    count(
        "precision.group",
        "integer weights that share a scale of 16 bits, in types of weights alone such as w4a16 (group_size"
        " of a config.json); 0: a column has one scale",
        low=0,
    ),
    Column(
        "precision.zero_points",
        "bool",
        "",
        "true: each group of integer weights has a zero point too (AWQ, GPTQ)",
    ),
    text(
        "precision.master",
        "data type of the master weights that the optimizer updates; auto: fp32 where weights"
        " have less than 4 bytes; none: no master weights",
        MASTER_TYPES,
    ),
)
