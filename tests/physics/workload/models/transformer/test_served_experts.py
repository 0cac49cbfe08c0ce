"""Layers as serving libraries run them: kernels of experts, one product for two, one sum for two."""

import numpy as np
import pytest

from fastflow.performance.crossflow import predict
from fastflow.physics.workload.models.transformer import serving_pass as served
from fastflow.physics.workload.models.transformer.layer_pattern import KEY
from tests.physics.workload.models.transformer.test_serving_pass import BASE, LATENT, MIXTURE, inputs_of

__all__ = ["inputs_of"]  # a fixture

EXPERTS = ("route", "dispatch", "gate and up", "gate", "down", "combine")
LIBRARIES = {  # what each runs, by the names of types; None: nothing
    "cutlass": ("route", "dispatch", "experts", "expert gate", "experts", "combine"),
    "tuned": ("route", "dispatch", "experts", "expert gate", "experts", "combine"),
    "triton": ("route", "token dispatch", "experts", "expert gate", "experts", "combine"),
    "triton_kernels": ("triton route", "fused dispatch", "experts", None, "experts", "triton combine"),
    "deepgemm": ("route", "masked dispatch", "experts", "masked gate", "experts", "masked combine"),
    "trtllm": ("trtllm route", "token dispatch", "experts", None, "experts", "combine"),
}


def nodes_of(inputs_of, model):
    inputs = inputs_of(model, "tokens", 24, 1, 0)
    return {node.name: node for layer in served.network(inputs).layers for node in layer.nodes}


@pytest.mark.parametrize("kernels", LIBRARIES)
@pytest.mark.parametrize("more", [{}, LATENT])
def test_kernels_of_experts_are_those_of_the_library(inputs_of, kernels, more):
    nodes = nodes_of(inputs_of, BASE | MIXTURE | more | {"expert_kernels": kernels})
    got = tuple(nodes[name].type.title if name in nodes else None for name in EXPERTS)
    assert got == LIBRARIES[kernels]
    before = "gate" if "gate" in nodes else "gate and up"
    assert nodes["down"].reads == (before,)


def test_other_layers_have_the_same_kernels_for_every_library(inputs_of):
    layers = [nodes_of(inputs_of, BASE | LATENT | {"expert_kernels": kernels}) for kernels in LIBRARIES]
    assert all(nodes == layers[0] for nodes in layers)


def test_latent_queries_and_keys_come_from_one_product(inputs_of):
    nodes = nodes_of(inputs_of, BASE | LATENT)
    assert nodes["query and key down"].cols == 192 + 128 + 32
    assert nodes["query norm"].reads == nodes["key norm"].reads == ("query and key down",)
    assert not {"query down", "key down"} & {*nodes}


def test_keys_have_their_product_where_queries_are_not_latent(inputs_of):
    nodes = nodes_of(inputs_of, BASE | LATENT | {"query_latent": 0})
    assert nodes["key down"].cols == 128 + 32
    assert "query and key down" not in nodes


def test_a_gate_of_shared_experts_weighs_what_their_last_product_reads(inputs_of):
    plain, nodes = (nodes_of(inputs_of, BASE | MIXTURE | {"shared_gate": gate}) for gate in (False, True))
    assert {*nodes} - {*plain} == {"shared score", "shared weight"}
    assert [nodes["shared score"].inner, nodes["shared score"].cols] == [512, 1]
    assert nodes["shared weight"].reads == ("shared gate", "shared score")
    assert nodes["shared down"].reads == ("shared weight",)
    assert nodes["shared score"].part == nodes["shared down"].part


def test_gated_delta_nets_of_servers_have_a_product_for_their_two_numbers(inputs_of):
    sizes = {"linear_heads": 8, "linear_key_heads": 4, "linear_key_dim": 64, "linear_value_dim": 64}
    inputs = inputs_of(BASE | sizes, "tokens", 24, 1, 0) | {KEY: np.array(["gated_delta dense"])}
    nodes = {node.name: node for layer in served.network(inputs).layers for node in layer.nodes}
    columns = 2 * 4 * 64 + 2 * 8 * 64
    assert [nodes[name].cols for name in ("mixer product", "decay and strength", "mixer in")] == [
        columns, 16, columns
    ]  # fmt: skip
    assert nodes["decay and strength"].wide


def exchanges(inputs_of, model, strategy, devices):
    """Return the time of each kernel's exchange [s], where it has one."""
    inputs = inputs_of(model, "tokens", 24, 1, 0)
    inputs |= {
        "parallel.strategy": np.array([strategy]), "system.devices": np.array([devices]),
        "system.package.devices": np.array([8]),
    }  # fmt: skip
    result = predict(inputs)
    assert result.reason.at(0) is None
    labels = [str(result.graph.names[label]) for label in result.graph.label]
    seconds = result.communication.exchanges.sync_s
    return {label: s for label, s in zip(labels, seconds.tolist(), strict=True) if s > 0.0}


@pytest.mark.parametrize("kernels", LIBRARIES)
@pytest.mark.parametrize("more", [{}, {"shared_ffn": 0}])
def test_devices_sum_once_behind_attention_and_once_behind_all_experts(inputs_of, kernels, more):
    """As many tokens each time, whatever the number of experts that a token chooses."""
    model = BASE | MIXTURE | more | {"expert_kernels": kernels}
    got = exchanges(inputs_of, model, "TP-2", 2)
    assert set(got) == {"embedding", "projection", "add"}
    assert got["add"] == pytest.approx(got["projection"], rel=1e-12)


def test_devices_that_share_experts_exchange_rows_and_sum_nothing(inputs_of):
    got = exchanges(inputs_of, BASE | MIXTURE, "TP-1-e2-d2", 2)
    assert set(got) == {"dispatch", "down"}
