"""Kinds of layers with sizes of their own, hyper-connections, per-layer embeddings, latent experts."""

import numpy as np
import pytest

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
