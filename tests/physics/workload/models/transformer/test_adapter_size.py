"""Sizes of served adapters, counted matrix by matrix, and for Llama 3 8B as PEFT prints them."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from fastflow.physics.workload.models.transformer.adapter_size import adapter_size
from tests.naive.lora import adapter_weights
from tests.physics.workload.models.transformer.test_lora import LLAMA, sizes
from tests.support.checks import cases
from tests.support.transformers import points

KEY = "server.lora_rank"
PRODUCTS = 4  # of a layer: queries, keys and values together, output, gate and up, down


def size_of(model, rank):
    inputs = dict(points(**model._asdict())) | {KEY: np.array([rank])}
    weights, products = adapter_size(inputs, np.array([0]), KEY)
    return weights.tolist(), products.tolist()


@cases(20)
@given(model=sizes, rank=st.integers(1, 5))
def test_weights_are_those_of_all_matrices(model, rank):
    expected = adapter_weights(model, "all_linear", rank)
    assert size_of(model, rank) == ([expected], [PRODUCTS * model.layers])


def test_llama_has_as_many_as_peft_prints():
    """print_trainable_parameters of Hugging Face's PEFT: 41,943,040 with r=16 of all linear layers."""
    assert size_of(LLAMA, 16)[0] == [41_943_040]
