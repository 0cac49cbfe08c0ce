"""Kinds of layers with sizes of their own, hyper-connections, per-layer embeddings, latent experts."""

import numpy as np
import pytest

from fastflow.physics.workload.models.transformer.network import network
from fastflow.physics.workload.models.transformer.parameters import parameters
from tests.naive import layer_kinds as naive
from tests.support.transformers import points

BASE = {
    "layers": 6, "hidden": 256, "heads": 8, "kv_heads": 4, "head_dim": 32, "ffn": 512, "vocabulary": 1000,
}  # fmt: skip
CASES = [
    {"pattern": "5*window dense(heads=4 kv_heads=2 head_dim=64), dense", "window": 128},
    {"pattern": "dense, shared_kv dense, equal_kv dense(ffn=300)"},
    {"pattern": "no_ffn, no_mixer dense"},
    {"pattern": "2*dense, experts(experts=16 expert_ffn=96)", "experts": 8, "topk": 2, "expert_ffn": 64},
    {"pattern": "experts", "experts": 8, "topk": 2, "expert_ffn": 64, "expert_latent": 48, "shared_ffn": 100},
    {"streams": 4},
    {"layer_embedding": 24},
    {"output_gate": "full"},
    {"output_gate": "head"},
    {"pattern": "chunked dense, dense", "window": 64},
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_parameters_are_those_of_every_tensor(case):
    model = BASE | case
    total, active = parameters(points(**model))
    expected = naive.tensors(model)
    assert total[0] == sum(np.prod(shape) for shape in expected.values())
    assert active[0] <= total[0]


def attention_flop(**changed):
    """Operations of attention in a layer that trains."""
    (node,) = (
        node
        for layer in network(points(**BASE | {"sequence": 4096, "batch": 1} | changed)).layers
        for node in layer.nodes
        if node.name == "attention"
    )
    return float(np.max(node.cost.flop * node.rows * node.cols * node.batch))


@pytest.mark.parametrize("density", [0.05, 0.25, 0.8])
def test_a_mask_keeps_its_share_of_the_keys(density):
    assert attention_flop(density=density) == pytest.approx(density * attention_flop(), rel=0.01)


@pytest.mark.parametrize("chunk", [64, 1000, 4096])
def test_a_query_sees_the_keys_before_it_in_its_chunk(chunk):
    """Each token of a sequence, one after the other; a rest of a sequence counts as a whole chunk."""
    seen = sum(token % chunk + 1 for token in range(-(-4096 // chunk) * chunk))
    full = sum(range(1, 4097))
    flop = attention_flop(pattern="chunked dense", window=chunk)
    assert flop == pytest.approx(attention_flop() * seen / full, rel=1e-9)
