"""Bytes of a number by its role: operand, weight, activation, cache, gradient, state, master weight.

Products compute in the operands' type, `model.dtype`; the group `precision` says in which type each of the
others is stored, moved and summed. By default weights, activations and gradients are of the operands' type,
and every 2-byte weight has a 4-byte master copy that the optimizer updates (Micikevicius et al., Mixed
Precision Training, ICLR 2018). Momentum keeps one state a weight, Adam two, of 4 bytes each (`optimizers`).
Of 8 bits, a state has a scale in fp32 for each block of 256 numbers, and is converted for the update
(Dettmers et al., arXiv:2110.02861; init_state of bitsandbytes/optim/optimizer.py at 51294d9, and
OptimStateFp8 of pytorch/ao, torchao/optim/subclass_fp8.py, at 029bb60).

Types of fewer than 2 bytes are for products only: their results, and so activations, are bf16. Some of them
train (Micikevicius et al., FP8 Formats for Deep Learning, arXiv:2209.05433): weights and gradients are bf16
then, and every weight has two quantised copies, plain and transposed, which an iteration makes
once (Transformer Engine keeps them between micro-batches).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fastflow.core.dedupe import factorize, map_each, map_values
from fastflow.core.reasons.codes import Code, rejected
from fastflow.core.reasons.columns import ReasonColumn, Reasons
from fastflow.core.tables import Bools, Floats, Inputs, Texts
from fastflow.physics.workload.data_types import (
    AS_WEIGHTS,
    BOTH_OPERANDS,
    DATA_TYPES,
    FP32_SCALE_BYTES,
    MAXIMUM_FLOP,
    OF_WEIGHTS_ALONE,
    QUANTISE_FLOP,
    SCALE_BYTES,
    UNMODELLED,
    WIDE,
)
from fastflow.physics.workload.optimizers import index_of, of_rules

FORMATS = DATA_TYPES
_SIZED = {**FORMATS, UNMODELLED: FORMATS[WIDE[0]]}  # of which sizes are read before it is refused
OUTPUT_BYTES = {name: form.output for name, form in _SIZED.items()}
QUANTIZED_BYTES = {name: form.quantized for name, form in _SIZED.items()}
QUANTISING_FLOP = {name: form.quantising for name, form in _SIZED.items()}
_TRAINING_FLOP = {name: MAXIMUM_FLOP + QUANTISE_FLOP + form.training for name, form in _SIZED.items()}
OPERAND_BYTES = {name: form.operand for name, form in _SIZED.items()}
STORED_BYTES = {name: form.stored or form.operand for name, form in _SIZED.items()}
_IS_GROUPED = {name: float(form.grouped) for name, form in _SIZED.items()}
_IS_NARROW = {name: float(form.quantized > 0.0 or name in OF_WEIGHTS_ALONE) for name, form in _SIZED.items()}
_ROLE_BYTES = {"fp16": 2, "bf16": 2, "fp32": 4}
MASTER_BYTES = 4.0
TRAINED = ("fp8", "fp8_block", "nvfp4")
"""GEMM-only types that a transformer trains in."""
COPIES = 2.0  # of quantised tensors in training: Hopper multiplies fp8 along the inner dimension only
OPERAND, AUTO, NONE, TRUE = "operand", "auto", "none", "true"
ROLE_TYPES = (OPERAND, *_ROLE_BYTES)
MASTER_TYPES = (AUTO, NONE, *ROLE_TYPES)
STATE_BLOCK = 256  # numbers of state of 8 bits that share a scale
_NARROW_STATES = dict.fromkeys(("int8", "fp8"), 1.0 + FP32_SCALE_BYTES / STATE_BLOCK)
STATE_TYPES = (*ROLE_TYPES, *_NARROW_STATES)
# to read a number of 8 bits, a multiplication by its scale; to write it, the largest of its block
_STATE_FLOP = dict.fromkeys(_NARROW_STATES, 1.0 + MAXIMUM_FLOP + QUANTISE_FLOP)
ATTENTION_TYPES = (AUTO, "fp32", "tf32", "bf16", "fp16", "fp8")
MODULE_TYPES = (OPERAND, *FORMATS)
"""Of the weights of a module of a model: its experts, or its attention."""
# Of caches of 4 bits, int4 has a scale and a zero point of 16 bits for the 128 columns of a head (QServe,
# arXiv:2405.04532, section 4.2), nvfp4 a scale of fp8 for 16 elements
_NARROW_CACHES = {"fp8": 1.0, "int8": 1.0, "int4": 0.5 + 4.0 / 128, "nvfp4": 0.5 + 1.0 / 16}
CACHE_TYPES = (*ROLE_TYPES, *_NARROW_CACHES)
_BYTES_BY_TYPE = dict.fromkeys(MASTER_TYPES, 0.0) | _ROLE_BYTES | _NARROW_CACHES
_BYTES_OF_STATES = _BYTES_BY_TYPE | _NARROW_STATES
_FLOP_OF_STATES = dict.fromkeys(STATE_TYPES, 0.0) | _STATE_FLOP
GROUP, ZERO_POINTS = "precision.group", "precision.zero_points"
ALONE, SCALES = "precision.fp8_param_gather", "chip.blocks.scales"
LATENT, HOLDS_SUMS, READS = "model.latent", "chip.blocks.persistent", "chip.blocks.operands"
EXPERTS, ATTENTION_WEIGHTS = "precision.experts", "precision.attention_weights"
CACHE = "precision.cache"
DEFAULT_GROUP = 128


class Precision(NamedTuple):
    """Bytes of a number by role, shape (points,)."""

    operand: Floats  # of products
    output: Floats  # of products
    quantised: Floats  # of all copies that quantising an operand writes; 0 where nothing is quantised
    quantising: Floats  # operations of a lane that quantise an element
    weight: Floats
    copies: Floats  # of a weight, quantised to train; 0 where it is not
    activation: Floats  # and the gradients of activations
    cache: Floats  # of the KV cache
    attention: Floats  # of attention's operands
    gradient: Floats  # of a weight
    summed: Floats  # that a product moves per weight gradient: its output, or a sum in and out
    master: Floats  # of a separate master weight; 0 where there is none
    state: Floats  # of a number of optimizer state
    state_flop: Floats  # operations that convert it for the update
    optimizer: Floats  # its number among `optimizers.OPTIMIZERS`

    def _rules(self, is_matrix: bool, field: str) -> Floats:
        return of_rules(self.optimizer, is_matrix, field)

    def update_traffic(self, is_matrix: bool = False) -> Floats:
        """Return the bytes that updating one weight moves: gradient in, weight and states in and out.

        is_matrix: of a matrix in a hidden layer. Numbers of state for whole rows and columns are left out.
        """
        reads = self._rules(is_matrix, "weight_reads")
        kept = np.where(self.master > 0.0, self.master, self.weight)
        weight = reads * kept + np.where(self.master > 0.0, self.master + self.weight, self.weight)
        quantising = np.where(self.copies > 0.0, self.weight + self.copies, 0.0)
        gradient = self._rules(is_matrix, "gradient_reads") * self.gradient
        states = self._rules(is_matrix, "states") * self.state
        scratch = self._rules(is_matrix, "scratch")
        traffic: Floats = gradient + weight + 2.0 * states + quantising + scratch
        return traffic

    def update_flop(self, is_matrix: bool = False) -> Floats:
        """Return the operations that updating one weight takes; is_matrix: as of `update_traffic`."""
        states = self._rules(is_matrix, "states")
        flop: Floats = self._rules(is_matrix, "flop") + states * self.state_flop
        return flop


UNSIZED = Precision(*np.zeros((len(Precision._fields), 1)))
"""Of a single point, where kernels are only counted."""


def precision(inputs: Inputs) -> Precision:
    """Return the bytes of all roles, by data types and optimizer.

    Inference has no master weights and no optimizer states.
    """
    training, master_type = inputs["model.training"], inputs["precision.master"]
    sizes = (OPERAND_BYTES, OUTPUT_BYTES, QUANTIZED_BYTES, QUANTISING_FLOP)
    operand, output, quantised, quantising = map_each(sizes, inputs["model.dtype"])
    quantised *= np.where(training, COPIES, 1.0)
    stored = stored_bytes(inputs, inputs["model.dtype"])
    trained = np.where(training & (quantised > 0.0), output, np.where(training, operand, stored))

    def of(role: str, default: Floats = operand) -> Floats:
        selected = map_values(_BYTES_BY_TYPE, inputs[f"precision.{role}"])
        return np.where(selected > 0.0, selected, default)

    weight, gradient = of("weight", trained), of("gradient", trained)
    copies = np.where(training, quantised, 0.0)
    alone = _holds_quantised(inputs) & (copies > 0.0)
    weight = np.where(alone, copies / COPIES, weight)
    copies = np.where(alone, copies - weight, copies)
    fused = inputs.get("model.fused_gradients", np.zeros(output.size, dtype=np.bool_))
    adds = training & fused & (gradient > output)
    needed = np.where(weight < MASTER_BYTES, MASTER_BYTES, 0.0)
    master = np.where(master_type == AUTO, needed, np.where(master_type == NONE, 0.0, of("master")))
    state_type = inputs["precision.state"]
    state = map_values(_BYTES_OF_STATES, state_type)
    state = np.where(state > 0.0, state, operand)
    return Precision(
        operand=operand,
        output=output,
        quantised=quantised,
        quantising=np.where(training, map_values(_TRAINING_FLOP, inputs["model.dtype"]), quantising),
        weight=weight,
        copies=copies,
        activation=of("activation", output),
        cache=of("cache", output),
        attention=map_values(OPERAND_BYTES, attention_type(inputs)),
        gradient=gradient,
        summed=np.where(adds, 2.0 * gradient, output),
        master=np.where(training, master, 0.0),
        state=np.where(training, state, 0.0),
        state_flop=map_values(_FLOP_OF_STATES, state_type),
        optimizer=index_of(inputs["model.optimizer"]),
    )


def _holds_quantised(inputs: Inputs) -> Bools:
    """Return whether points train with quantised weights alone, without a copy of 16 bits, (points,).

    Megatron-Bridge's recipes (training/mixed_precision.py) gather weights in fp8 where it has a scale for a
    whole tensor, or for 32 numbers on matrix units that scale; not where it has blocks of 128.
    """
    selected, types = inputs[ALONE], inputs["model.dtype"]
    scales = inputs.get(SCALES, np.full(types.size, ""))
    by_type = np.isin(types, TRAINED) & ((types == TRAINED[0]) | (scales == "units"))
    alone: Bools = (selected == TRUE) | ((selected == AUTO) & by_type)
    return alone


def _has(inputs: Inputs, dtype: str, points: int) -> Bools:
    """Return which points' chips multiply in a data type, (points,)."""
    has: Bools = inputs.get(f"chip.rate.{dtype}", np.zeros(points)) > 0.0
    return has


def first_type(inputs: Inputs, candidates: tuple[str, ...], points: int) -> Texts:
    """Return the first of some data types that every point's chip multiplies in, or else the first."""
    selected = np.full(points, candidates[0], dtype="<U16")
    for name in reversed(candidates):
        selected = np.where(_has(inputs, name, points), name, selected)
    return selected


def product_type(inputs: Inputs, types: Texts) -> Texts:
    """Return the data type that products compute in, (points,); types: of their weights, (points,).

    It differs for types of weights alone: the type of the activations, or the next wider one that the chip
    has.
    """
    computed, (names, index) = types, factorize(types)
    for number, name in enumerate(names):
        if name in OF_WEIGHTS_ALONE:
            first = first_type(inputs, FORMATS[name].products, types.size)
            computed = np.where(index == number, first, computed)
    return computed


class Operands(NamedTuple):
    """Operands of products with weights, as they are read; shape (points,)."""

    element: Floats  # of an activation, and of a weight once it is converted [B]
    stored: Floats  # of a weight, with its share of scales [B]
    conversion: Floats  # instructions of a lane that convert a weight


def operands_of(inputs: Inputs, types: Texts) -> Operands:
    """Return the operands of products, (points,); types: of their weights, (points,)."""
    element, conversion = map_values(OPERAND_BYTES, types), np.zeros(types.size)
    names, index = factorize(types)
    for number, name in enumerate(names):
        if name in OF_WEIGHTS_ALONE:
            form, selected = FORMATS[name], index == number
            computed = first_type(inputs, form.products, types.size)
            wide = map_values(OPERAND_BYTES, computed)
            element = np.where(selected, np.maximum(wide, form.operand), element)
            native = _has(inputs, form.native, types.size) & (wide < OPERAND_BYTES[WIDE[0]])
            conversion = np.where(selected & ~native, form.conversion, conversion)
    return Operands(element, stored_bytes(inputs, types), conversion)


def stored_bytes(inputs: Inputs, types: Texts) -> Floats:
    """Return the bytes of a weight in some data types, with its share of scales, (points,)."""
    stored, grouped = map_each((STORED_BYTES, _IS_GROUPED), types)
    if not grouped.any():
        return stored
    group = inputs.get(GROUP, np.full(types.size, DEFAULT_GROUP))
    zeros = inputs.get(ZERO_POINTS, np.zeros(types.size, dtype=np.bool_))
    scales = (SCALE_BYTES + np.where(zeros, stored, 0.0)) / np.where(group > 0, group, np.inf)
    return stored + np.where(grouped, scales, 0.0)


def wide_type(inputs: Inputs) -> Texts:
    """Return the type of every point's activations between products, (points,).

    It is 16 bits where products have narrower operands or weights.
    """
    types: Texts = inputs["model.dtype"]
    narrow = map_values(_IS_NARROW, types) > 0.0
    return np.where(narrow, first_type(inputs, WIDE, types.size), types) if narrow.any() else types


def reads_latent(inputs: Inputs) -> bool:
    """Say whether the type of some point's attention depends on whether it is latent."""
    if HOLDS_SUMS not in inputs:
        return False
    return bool(((inputs[CACHE] == "fp8") & _has_narrow_kernels(inputs)).any())


def _has_narrow_kernels(inputs: Inputs) -> Bools:
    """Return whether a chip's kernels of attention in fp8 are for narrow products alone, (points,)."""
    kernels: Bools = inputs[HOLDS_SUMS] | (inputs[READS] == "registers")
    return kernels


def attention_type(inputs: Inputs) -> Texts:
    """Return the data type that every point's attention computes in, (points,).

    As TensorRT-LLM does, in fp8 where the cache holds it and the chip has it (fmhaRunner.cpp). Its kernels
    for matrix units that hold the sums or read operands from registers do so only where products are narrow,
    too, or attention is latent (trtllmGenKernels/fmha, and times of ai-dynamo/aiconfigurator@095f58a).
    """
    selected, wide = inputs["precision.attention"], wide_type(inputs)
    fp8 = (inputs[CACHE] == "fp8") & _has(inputs, "fp8", selected.size)
    if reads_latent(inputs):
        is_latent = inputs.get(LATENT, np.zeros(selected.size)) > 0
        fp8 &= ~_has_narrow_kernels(inputs) | (wide != inputs["model.dtype"]) | is_latent
    return np.where(selected != AUTO, selected, np.where(fp8, "fp8", wide))


def _module_type(inputs: Inputs, key: str) -> Texts:
    """Return the data type of the weights of a module of every point, as its key says, (points,)."""
    dtypes: Texts = inputs["model.dtype"]
    selected = inputs.get(key, np.full(dtypes.size, OPERAND))
    return np.where(selected == OPERAND, dtypes, selected)


def _on_chip(inputs: Inputs, types: Texts) -> Texts:
    """Return the types, as types of weights alone where the chip does not multiply in them."""
    stored, (names, index) = types, factorize(types)
    for number, name in enumerate(names):
        if name in AS_WEIGHTS:
            lacks = (index == number) & ~_has(inputs, name, types.size)
            stored = np.where(lacks, AS_WEIGHTS[name], stored)
    return stored


def stored_experts(inputs: Inputs) -> Texts:
    """Return the data type in which every point's experts are stored, (points,)."""
    return _module_type(inputs, EXPERTS)


def expert_format(inputs: Inputs) -> Texts:
    """Return the data type of every point's experts on its chip, (points,).

    It is one of weights alone where the chip does not multiply in the stored type: mxfp4 on Hopper is
    converted to bf16 (triton_kernels of OpenAI's gpt-oss).
    """
    return _on_chip(inputs, stored_experts(inputs))


def expert_type(inputs: Inputs) -> Texts:
    """Return the data type that every point's experts compute in, (points,)."""
    return product_type(inputs, expert_format(inputs))


def attention_weights(inputs: Inputs) -> Texts:
    """Return the data type in which the weights of every point's attention are stored, (points,)."""
    return _module_type(inputs, ATTENTION_WEIGHTS)


def attention_format(inputs: Inputs) -> Texts:
    """Return the data type of the weights of every point's attention on its chip, (points,)."""
    return _on_chip(inputs, attention_weights(inputs))


def types_of(inputs: Inputs, has_experts: Bools) -> Texts:
    """Name the type of every point's products, and of attention's and experts' where these differ.

    has_experts: whether models have layers of experts, (points,).
    """
    dtypes = names = inputs["model.dtype"]
    for title, types, applies in (
        ("attention", attention_weights(inputs), np.ones(dtypes.size, dtype=np.bool_)),
        ("experts", stored_experts(inputs), has_experts),
    ):
        differs = (types != dtypes) & applies
        if differs.any():
            names = np.where(differs, np.char.add(np.char.add(names, f", {title} "), types), names)
    return names


def unmodelled_types(inputs: Inputs) -> ReasonColumn:
    """Say for every point if its model is published in a type that is not modelled, (points,)."""
    types = inputs["model.dtype"]
    reason = Reasons(types.size)
    for i in np.flatnonzero(types == UNMODELLED):
        allowed = f"one of {', '.join(FORMATS)}, since fastflow does not model what the model is published in"
        reason.add(i, rejected(Code.DATA_TYPE, "model.dtype", AUTO, allowed))
    return reason.column()


def invalid_training_types(inputs: Inputs, quantised: tuple[str, ...]) -> ReasonColumn:
    """Say for every point if it trains in an inference-only data type, (points,).

    quantised: GEMM-only types that the model trains in.
    """
    types, training = inputs["model.dtype"], inputs["model.training"]
    reason = Reasons(types.size)
    able = [name for name in BOTH_OPERANDS if QUANTIZED_BYTES[name] == 0.0 or name in quantised]
    conflicts = [("model.training", "true")]
    for i in np.flatnonzero(training & ~np.isin(types, able)):
        allowed = f"one of {', '.join(able)} where model.training=true"
        reason.add(i, rejected(Code.DATA_TYPE, "model.dtype", types[i], allowed, conflicts=conflicts))
    weights = inputs.get(ATTENTION_WEIGHTS, np.full(types.size, OPERAND))
    for row in reason.without(training & (weights != OPERAND)):
        allowed, given = f"{OPERAND} where model.training=true", weights[row]
        reason.add(row, rejected(Code.DATA_TYPE, ATTENTION_WEIGHTS, given, allowed, conflicts=conflicts))
    return reason.column()
