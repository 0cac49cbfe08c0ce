"""Bytes of a number by its role: operand, weight, activation, cache, gradient, state, master weight.

Products compute in the operands' type, `model.dtype`; the group `precision` says in which type each of the
others is stored, moved and summed. By default weights, activations and gradients are of the operands' type,
and every 2-byte weight has a 4-byte master copy that the optimizer updates (Micikevicius et al., Mixed
Precision Training, ICLR 2018). Momentum keeps one state a weight, Adam two, of 4 bytes each.

Types of fewer than 2 bytes are for products only: their results, and so activations, are bf16. Some of them
train (Micikevicius et al., FP8 Formats for Deep Learning, arXiv:2209.05433): weights and gradients are bf16
then, and every weight has two quantised copies, plain and transposed, which an iteration makes
once (Transformer Engine keeps them between micro-batches).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fastflow.core.dedupe import map_values
from fastflow.core.reasons.codes import Code, rejected
from fastflow.core.reasons.columns import ReasonColumn, Reasons
from fastflow.core.tables import Floats, Inputs, Texts


class Format(NamedTuple):
    """Bytes of an element of a data type, with its share of the scales of its block."""

    operand: float  # as a product reads it
    output: float  # as a product writes it
    quantized: float = 0.0  # as quantising an activation writes it; 0 where nothing is quantised


# Scales: fp8_block has one of fp32 for 1 x 128 activations and for 128 x 128 weights, which are most of what
# a product reads where its bytes matter (DeepSeek-V3, arXiv:2412.19437, section 3.3); nvfp4 one of fp8 for 16
# elements (NVIDIA, Pretraining Large Language Models with NVFP4, arXiv:2509.25149); mxfp4 one of 8 bits for
# 32 (OCP Microscaling Formats, version 1.0). Those of fp8 and int8, a tensor's or a row's, are few.
# Results are bf16, int8's too once its int32 sums are multiplied by both scales, as TensorRT-LLM's
# SmoothQuant kernels do.
FORMATS = {
    "fp32": Format(4.0, 4.0),
    "tf32": Format(4.0, 4.0),
    "bf16": Format(2.0, 2.0),
    "fp16": Format(2.0, 2.0),
    "fp8": Format(1.0, 2.0, 1.0),
    "fp8_block": Format(1.0 + 4.0 / 128**2, 2.0, 1.0 + 4.0 / 128),
    "int8": Format(1.0, 2.0, 1.0),
    "nvfp4": Format(0.5 + 1.0 / 16, 2.0, 0.5 + 1.0 / 16),
    "mxfp4": Format(0.5 + 1.0 / 32, 2.0, 0.5 + 1.0 / 32),
}
OUTPUT_BYTES = {name: form.output for name, form in FORMATS.items()}
QUANTIZED_BYTES = {name: form.quantized for name, form in FORMATS.items()}
OPERAND_BYTES = {name: form.operand for name, form in FORMATS.items()}
_ROLE_BYTES = {"fp16": 2, "bf16": 2, "fp32": 4}
MASTER_BYTES = 4.0
# Operations: for the largest magnitude, absolute value and compare; to quantise, scale and round
MAXIMUM_FLOP, QUANTISE_FLOP = 2.0, 2.0
TRAINED = ("fp8", "fp8_block")
"""GEMM-only types that a transformer trains in."""
COPIES = 2.0  # of quantised tensors in training: Hopper multiplies fp8 along the inner dimension only
OPERAND, AUTO, NONE = "operand", "auto", "none"
ROLE_TYPES = (OPERAND, *_ROLE_BYTES)
MASTER_TYPES = (AUTO, NONE, *ROLE_TYPES)
STATES = {"sgd": 0, "momentum": 1, "adam": 2}
# operations a weight: scale by the clip factor, then the rule itself
UPDATE_FLOP = {"sgd": 3.0, "momentum": 5.0, "adam": 13.0}
ATTENTION_TYPES = (AUTO, "fp32", "tf32", "bf16", "fp16", "fp8")
EXPERT_TYPES = (OPERAND, *FORMATS)
CACHE_TYPES = (*ROLE_TYPES, "fp8", "int8")
_BYTES_BY_TYPE = dict.fromkeys(MASTER_TYPES, 0) | _ROLE_BYTES | {"fp8": 1, "int8": 1}


class Precision(NamedTuple):
    """Bytes of a number by role, shape (points,)."""

    operand: Floats  # of products
    output: Floats  # of products
    quantised: Floats  # of all copies that quantising an operand writes; 0 where nothing is quantised
    weight: Floats
    copies: Floats  # of a weight, quantised to train; 0 where it is not
    activation: Floats  # and the gradients of activations
    cache: Floats  # of the KV cache
    attention: Floats  # of attention's operands
    gradient: Floats  # of a weight
    summed: Floats  # that a product moves per weight gradient: its output, or a sum in and out
    master: Floats  # of a separate master weight; 0 where there is none
    state: Floats  # optimizer state a weight
    update_flop: Floats

    @property
    def update_traffic(self) -> Floats:
        """Return the bytes that updating one weight moves: gradient in, weight and states in and out."""
        weight = np.where(self.master > 0.0, 2.0 * self.master + self.weight, 2.0 * self.weight)
        quantising = np.where(self.copies > 0.0, self.weight + self.copies, 0.0)
        return self.gradient + weight + 2.0 * self.state + quantising


UNSIZED = Precision(*np.zeros((len(Precision._fields), 1)))
"""Of a single point, where kernels are only counted."""


def precision(inputs: Inputs) -> Precision:
    """Return the bytes of all roles, by data types and optimizer.

    Inference has no master weights and no optimizer states.
    """
    training, master_type = inputs["model.training"], inputs["precision.master"]
    operand = map_values(OPERAND_BYTES, inputs["model.dtype"])
    output = map_values(OUTPUT_BYTES, inputs["model.dtype"])
    quantised = map_values(QUANTIZED_BYTES, inputs["model.dtype"]) * np.where(training, COPIES, 1.0)
    trained = np.where(training & (quantised > 0.0), output, operand)

    def of(role: str, default: Floats = operand) -> Floats:
        selected = map_values(_BYTES_BY_TYPE, inputs[f"precision.{role}"])
        return np.where(selected > 0.0, selected, default)

    weight, gradient = of("weight", trained), of("gradient", trained)
    fused = inputs.get("model.fused_gradients", np.zeros(output.size, dtype=np.bool_))
    adds = training & fused & (gradient > output)
    needed = np.where(weight < MASTER_BYTES, MASTER_BYTES, 0.0)
    master = np.where(master_type == AUTO, needed, np.where(master_type == NONE, 0.0, of("master")))
    return Precision(
        operand=operand,
        output=output,
        quantised=quantised,
        weight=weight,
        copies=np.where(training, quantised, 0.0),
        activation=of("activation", output),
        cache=of("cache", output),
        attention=map_values(OPERAND_BYTES, attention_type(inputs)),
        gradient=gradient,
        summed=np.where(adds, 2.0 * gradient, output),
        master=np.where(training, master, 0.0),
        state=np.where(training, of("state") * map_values(STATES, inputs["model.optimizer"]), 0.0),
        update_flop=map_values(UPDATE_FLOP, inputs["model.optimizer"]),
    )


def wide_type(inputs: Inputs) -> Texts:
    """Return the output type of every point's products, (points,): bf16 where operands are quantised."""
    types: Texts = inputs["model.dtype"]
    return np.where(map_values(QUANTIZED_BYTES, types) > 0.0, "bf16", types)


def attention_type(inputs: Inputs) -> Texts:
    """Return the data type that every point's attention computes in, (points,).

    As TensorRT-LLM does, in fp8 where the cache holds it and the chip has it (fmhaRunner.cpp).
    """
    selected, wide = inputs["precision.attention"], wide_type(inputs)
    has_fp8 = inputs.get("chip.rate.fp8", np.zeros(selected.size)) > 0.0
    fp8 = (inputs["precision.cache"] == "fp8") & has_fp8
    return np.where(selected != AUTO, selected, np.where(fp8, "fp8", wide))


def stored_experts(inputs: Inputs) -> Texts:
    """Return the data type in which every point's experts are stored, (points,)."""
    selected = inputs.get("precision.experts", np.full(inputs["model.dtype"].size, OPERAND))
    return np.where(selected == OPERAND, inputs["model.dtype"], selected)


def types_of(inputs: Inputs) -> Texts:
    """Name the type of every point's products, and of its experts where it differs, (points,)."""
    dtypes, stored = inputs["model.dtype"], stored_experts(inputs)
    differs = (stored != dtypes) & (inputs.get("model.experts", np.zeros(dtypes.size)) > 0)
    if not differs.any():
        return dtypes
    return np.where(differs, np.char.add(np.char.add(dtypes, ", experts "), stored), dtypes)


def expert_type(inputs: Inputs) -> Texts:
    """Return the data type that every point's experts compute in, (points,).

    Where the chip does not multiply in their stored type, only the weights have it: they are converted to
    bf16 before the tensor cores (mxfp4 on Hopper: triton_kernels of OpenAI's gpt-oss).
    """
    stored = stored_experts(inputs)
    has = np.zeros(stored.size, dtype=np.bool_)
    for name in np.unique(stored).tolist():
        rate = inputs.get(f"chip.rate.{name}", np.zeros(stored.size))
        has |= (stored == name) & (rate > 0.0)
    return np.where(has, stored, "bf16")


def invalid_training_types(inputs: Inputs, quantised: tuple[str, ...]) -> ReasonColumn:
    """Say for every point if it trains in an inference-only data type, (points,).

    quantised: GEMM-only types that the model trains in.
    """
    types, training = inputs["model.dtype"], inputs["model.training"]
    reason = Reasons(types.size)
    for i in np.flatnonzero(
        training & (map_values(QUANTIZED_BYTES, types) > 0.0) & ~np.isin(types, quantised)
    ):
        able = ", ".join([*(name for name, size in QUANTIZED_BYTES.items() if size == 0.0), *quantised])
        allowed, conflicts = f"one of {able} where model.training=true", [("model.training", "true")]
        reason.add(i, rejected(Code.DATA_TYPE, "model.dtype", types[i], allowed, conflicts=conflicts))
    return reason.column()
