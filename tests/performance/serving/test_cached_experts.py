"""Experts that a device keeps by use: what it holds, and what passes read."""

import random

import pytest

import fastflow
from tests.naive.expert_cache import chances, passes

EXPERT_B = 3 * 4096 * 14336 * 2  # of Mixtral 8x7B in 16 bits
LAYERS, LINK = 32, 50e9
MIXTURE = (
    "model=mixtral_8x7b", "system=dgx_h100", "system.devices=1", "parallel.strategy=TP-1", "server=ideal",
    "serve=decode", "serve.batch=1", "serve.tiers.host.capacity='200 GB'", "serve.tiers.host.latency='0 s'",
)  # fmt: skip


def rows_of(*overrides):
    return fastflow.evaluate(*overrides).to_dict("records")


def row_of(*overrides):
    (row,) = rows_of(*overrides)
    return row


@pytest.mark.parametrize("power_law", [0, 1.2])
@pytest.mark.parametrize("batch", [1, 4])
@pytest.mark.parametrize("policy", ["lru", "lfu"])
def test_a_pass_reads_the_experts_that_draws_miss(power_law, batch, policy):
    row = row_of(
        *MIXTURE, "server.resident_experts=0.5", f"server.expert_cache={policy}", f"serve.batch={batch}",
        f"model.power_law={power_law}",
    )  # fmt: skip
    assert row["reason"] == ""
    _, missed = passes(batch, 2, 8, power_law, 4, policy, 3000, random.Random(3))
    assert row["weight_read_B"] == pytest.approx(LAYERS * missed * EXPERT_B, rel=0.1)
    assert row["weight_read_s"] == pytest.approx(row["weight_read_B"] / LINK, rel=1e-9)
    assert row["offloaded_B"] == pytest.approx(LAYERS * 4 * EXPERT_B, rel=1e-9)


def test_experts_that_a_device_does_not_have_leave_room():
    some, fewer, one = rows_of(*MIXTURE, "server.resident_experts=0.75,0.5,0.01")
    six = LAYERS * EXPERT_B
    assert fewer["kv_cache_capacity_B"] - some["kv_cache_capacity_B"] == pytest.approx(2 * six, abs=1.0)
    assert one["offloaded_B"] == pytest.approx(7 * six, rel=1e-9)  # it has one expert of each layer at least


def test_auto_keeps_as_many_experts_as_have_room():
    auto = row_of(*MIXTURE, "server.resident_experts=auto")
    resident = 8 - round(auto["offloaded_B"] / EXPERT_B / LAYERS)
    assert auto["reason"] == ""
    more, as_many = rows_of(*MIXTURE, f"server.resident_experts={(resident + 1) / 8},{resident / 8}")
    assert "caches need" in more["reason"]
    assert as_many["tpot_s"] == auto["tpot_s"]
    small = row_of(*MIXTURE, "server.resident_experts=auto", "model.layers=4")
    assert small["offloaded_B"] == small["weight_read_s"] == 0.0


def test_predicted_experts_are_read_ahead():
    base = (*MIXTURE, "server.resident_experts=0.5", "serve.tiers.host.bandwidth='2 TB/s'")
    demanded, right, mostly = rows_of(*base, "server.expert_prefetch_accuracy=0,1,0.8")
    plain_s = demanded["time_s"] - demanded["weight_read_s"]
    reads_s = demanded["weight_read_s"]
    assert right["weight_read_B"] == pytest.approx(demanded["weight_read_B"], rel=1e-9)
    assert mostly["weight_read_B"] == pytest.approx(1.2 * demanded["weight_read_B"], rel=1e-9)
    assert right["time_s"] < mostly["time_s"] < demanded["time_s"]
    assert max(plain_s, reads_s) < right["time_s"] < plain_s + 0.5 * reads_s
    assert mostly["time_s"] == pytest.approx(right["time_s"] + 0.2 * reads_s, rel=1e-9)


def test_devices_that_share_experts_read_their_own():
    keys = (*MIXTURE, "system.devices=4", "serve.batch=4", "server.resident_experts=0.5")
    rank, sharded = (row_of(*keys, f"parallel.strategy={strategy}") for strategy in ("TP-1-e4-d4", "TP-4"))
    whole = row_of(*MIXTURE, "serve.batch=4", "server.resident_experts=0.5")
    for row in (rank, sharded):
        assert row["weight_read_B"] == pytest.approx(whole["weight_read_B"] / 4, rel=1e-9)
        assert row["offloaded_B"] == pytest.approx(whole["offloaded_B"] / 4, rel=1e-9)


def test_kernels_read_the_experts_that_tokens_choose():
    few, many = rows_of(
        *MIXTURE, "server.cpu_offload='40 GB'", "server.offload_backend=uva", "serve.batch=1,512"
    )
    layers = few["offloaded_B"]
    assert many["weight_read_B"] == pytest.approx(layers, rel=1e-6)
    experts = LAYERS * 8 * EXPERT_B
    attention = LAYERS * (2 * 4096 * 4096 + 2 * 4096 * 1024) * 2
    share = experts / (experts + attention)
    chosen = sum(chances(1, 2, 8, 0)) / 8
    assert few["weight_read_B"] == pytest.approx(layers * (1 - share * (1 - chosen)), rel=1e-3)
    ahead = row_of(*MIXTURE, "server.cpu_offload='40 GB'")
    assert ahead["weight_read_B"] == layers  # whole layers are copied


@pytest.mark.parametrize("load", ["false", "true"])
def test_servers_and_their_simulation_read_experts(load):
    keys = (
        *MIXTURE, "serve=continuous", "serve.batch=0", "serve.concurrency=4", "serve.isl=100", "serve.osl=64",
        "serve.num_requests=16", f"serve.simulate={load}", "server.resident_experts=0.75",
    )  # fmt: skip
    row = row_of(*keys)
    decode = row_of(*MIXTURE, "serve.batch=4", "server.resident_experts=0.75", "serve.context=132")
    assert row["tpot_s"] == pytest.approx(decode["tpot_s"], rel=0.15)


def test_what_does_not_suit_is_refused():
    dense = row_of(*MIXTURE, "model=llama3_8b", "server.resident_experts=0.5")
    assert dense["reason"].startswith("server.resident_experts=0.5")
    both = row_of(*MIXTURE, "server.resident_experts=0.5", "server.cpu_offload='1 GB'")
    assert "server.cpu_offload" in both["reason"]
    none = row_of(*MIXTURE, "server.resident_experts=0.5", "serve.tiers.host.capacity='10 GB'")
    assert "serve.tiers.host.capacity" in none["reason"]
    assert none["reason_code"] == "memory"
