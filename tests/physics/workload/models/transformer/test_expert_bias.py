"""Passes that add the biases of experts in training."""

import numpy as np
import pytest

import fastflow
from fastflow.physics.workload.models.transformer import serving_pass as served
from fastflow.physics.workload.models.transformer.network import network
from tests.naive import expert_bias as naive
from tests.support.transformers import points

MIXTURE = {
    "layers": 2, "hidden": 256, "heads": 8, "ffn": 512, "experts": 8, "topk": 2, "expert_ffn": 64,
    "pattern": "experts", "biases": "all",
}  # fmt: skip


def nodes(**changed):
    return {node.name: node for layer in network(points(**MIXTURE | changed)).layers for node in layer.nodes}


def test_the_passes_move_what_their_kernels_do():
    bias = nodes()["expert bias"]
    assert 2 * bias.cost.moves == naive.traffic(naive.FORWARD)
    assert 2 * bias.cost.backward_moves == naive.traffic(naive.BACKWARD)
    assert (bias.rows, bias.cols, bias.groups) == (nodes()["down"].rows, 256, 8)
    assert nodes()["combine"].reads == ("expert bias",)


def test_without_biases_there_are_none():
    assert "expert bias" not in nodes(biases="none")
    assert nodes(biases="none")["combine"].reads == ("down",)


def test_kernels_of_servers_add_them():
    one = {"before": 0, "expert_rows": 0, "pass": "tokens", "sampler": "none", "expert_kernels": "cutlass"}
    inputs = points(**MIXTURE) | {f"model.{name}": np.array([value]) for name, value in one.items()}
    names = {node.name for layer in served.network(inputs).layers for node in layer.nodes}
    assert {"down", "combine"} <= names
    assert "expert bias" not in names


@pytest.mark.parametrize("experts", [2, 8])
def test_they_take_the_time_of_their_bytes(experts):
    base = (
        "model=gpt_oss_20b", "model.layers=4", "system=dgx_h100", "system.devices=1", "model.batch=8",
        "parallel.strategy=TP-1", "parallel.microbatch=8", f"model.topk={experts}",
        "chip.pinned.dram_capacity_B='900 GB'",
    )  # fmt: skip
    biased, plain = (fastflow.evaluate(*base, f"model.biases={which}").iloc[0] for which in ("all", "none"))
    rows = biased["tokens_per_s"] * biased["time_s"] * experts
    moved = rows * 2880 * (naive.traffic(naive.FORWARD) + naive.traffic(naive.BACKWARD)) * 4
    seconds = biased["experts_s"] - plain["experts_s"]
    assert 0.7 * moved / 3.0e12 < seconds < 1.5 * moved / 3.0e12
