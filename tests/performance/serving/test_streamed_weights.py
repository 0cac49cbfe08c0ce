"""Weights in lower tiers of memory: what a device holds, and what a pass that reads them takes."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fastflow
from fastflow.performance.serving.streamed_weights import LIMITER, Streams, exposed_s
from fastflow.performance.serving.weight_tiers import capacity_of_tiers, reads_of
from fastflow.schema.serving import FLEET, SERVER, TIERS
from tests.naive.weight_streaming import filled_tiers, pass_on_demand, pass_with_two_buffers, read_s

DENSE = (
    "model=llama3_70b", "model.layers=20", "system=dgx_h100", "system.devices=1", "parallel.strategy=TP-1",
    "server=ideal", "serve.tiers.host.capacity='200 GB'",
)  # fmt: skip
DECODE = (*DENSE, "serve=decode", "serve.batch=16")
TIMES = st.floats(1e-6, 10.0)


@given(compute=TIMES, read=TIMES, layers=st.integers(1, 60))
def test_a_pass_is_that_of_two_buffers(compute, read, layers):
    streams = Streams(
        ahead=np.array([[layers * read]]), demanded=np.zeros((1, 1)), layers=np.array([layers]),
        bytes=np.zeros((1, 1)),
    )  # fmt: skip
    total = layers * compute
    time = total + exposed_s(np.array([[total]]), streams)[0, 0]
    assert time == pytest.approx(pass_with_two_buffers([compute] * layers, [read] * layers), rel=1e-9)
    demanded = streams._replace(ahead=streams.demanded, demanded=streams.ahead)
    time = total + exposed_s(np.array([[total]]), demanded)[0, 0]
    assert time == pytest.approx(pass_on_demand([compute] * layers, [read] * layers), rel=1e-9)
    assert time >= total + exposed_s(np.array([[total]]), streams)[0, 0] - 1e-9


BYTES = st.one_of(st.just(0.0), st.floats(1e6, 1e12))


@given(
    held=st.floats(1e6, 1e12), capacity=st.tuples(BYTES, BYTES, BYTES),
    bandwidth=st.tuples(*[st.floats(1e9, 1e12)] * 3), latency=st.tuples(*[st.floats(0.0, 1e-2)] * 3),
    scope=st.tuples(*[st.sampled_from((SERVER, FLEET))] * 3), devices=st.integers(1, 16),
    layers=st.integers(1, 100),
)  # fmt: skip
def test_tiers_are_filled_and_read(held, capacity, bandwidth, latency, scope, devices, layers):
    inputs = {}
    for number, name in enumerate(TIERS):
        for field, values in (
            ("capacity", capacity), ("bandwidth", bandwidth), ("latency", latency), ("scope", scope)
        ):  # fmt: skip
            inputs[f"serve.tiers.{name}.{field}"] = np.array([values[number]])
    shares = [most / devices if of == FLEET else most for most, of in zip(capacity, scope, strict=True)]
    assert capacity_of_tiers(inputs, np.array([devices]))[:, 0].tolist() == shares
    filled, left = filled_tiers(held, shares)
    reads = reads_of(inputs, np.array([held]), np.array([devices]))
    expected = read_s(filled, bandwidth, latency, layers)
    assert held * reads.seconds[0] + layers * reads.latency[0] == pytest.approx(expected, rel=1e-9)
    assert left >= 0.0


def rows_of(*overrides):
    return fastflow.evaluate(*overrides).to_dict("records")


@pytest.fixture(scope="module")
def decodes():
    """Return a pass that decodes with all weights in memory, with reads ahead, and with reads on demand."""
    plain, ahead = rows_of(*DECODE, "server.cpu_offload='0 B','10 GB'")
    (demanded,) = rows_of(*DECODE, "server.cpu_offload='10 GB'", "server.offload_backend=uva")
    return plain, ahead, demanded


def test_a_pass_reads_what_is_offloaded(decodes):
    plain, ahead, demanded = decodes
    reads_s = 10e9 / 50e9 + 20 * 10e-6
    assert plain["weight_read_s"] == plain["weight_read_B"] == plain["offloaded_B"] == 0.0
    for row in (ahead, demanded):
        assert row["weight_read_B"] == row["offloaded_B"] == 10e9
        assert row["tpot_s"] == pytest.approx(plain["tpot_s"] + row["weight_read_s"], rel=1e-9)
        assert row["decode_bound_by"] == LIMITER != plain["decode_bound_by"]
        assert row["power_W"] < plain["power_W"]  # it waits
    assert demanded["weight_read_s"] == pytest.approx(reads_s, rel=1e-9)
    assert reads_s < ahead["tpot_s"] < demanded["tpot_s"]


def test_the_cache_gets_the_room_of_weights(decodes):
    plain, ahead, demanded = decodes
    assert demanded["kv_cache_capacity_B"] - plain["kv_cache_capacity_B"] == pytest.approx(10e9, abs=1.0)
    two_layers = 2.0 * 10e9 / 20
    assert demanded["kv_cache_capacity_B"] - ahead["kv_cache_capacity_B"] == pytest.approx(
        two_layers, abs=1.0
    )
    for row in (ahead, demanded):
        assert row["weight_B"] == pytest.approx(plain["weight_B"] - 10e9, abs=1.0)
        assert row["footprint_B"] == pytest.approx(
            sum(row[f"{part}_B"] for part in ("weight", "workspace", "library", "graph", "context", "kv"))
            + row["communicator_B"], rel=1e-9,
        )  # fmt: skip


def test_no_more_is_offloaded_than_layers_have():
    most, more = rows_of(*DECODE, "server.cpu_offload='100 GB','150 GB'")
    assert most["offloaded_B"] == more["offloaded_B"] < 40e9
    assert most["tpot_s"] == more["tpot_s"]


@pytest.mark.parametrize("backend", ["prefetch", "uva"])
@pytest.mark.parametrize("server", ["ideal", "vllm", "sglang", "trtllm"])
def test_auto_offloads_as_little_as_fits(server, backend):
    large = (
        "model=llama3_70b", "system=dgx_h100", "system.devices=1", "parallel.strategy=TP-1",
        f"server={server}", f"server.offload_backend={backend}", "serve.tiers.host.capacity='200 GB'",
        "serve=decode", "serve.batch=8",
    )  # fmt: skip
    (auto,) = rows_of(*large, "server.cpu_offload=auto")
    assert auto["reason"] == ""
    assert auto["offloaded_B"] > 50e9
    assert auto["kv_B"] <= auto["kv_cache_capacity_B"] <= auto["kv_B"] + 1.0
    less, enough = rows_of(
        *large, f"server.cpu_offload={auto['offloaded_B'] - 1e6:.0f} B,{auto['offloaded_B'] + 1e3:.0f} B"
    )
    assert "caches need" in less["reason"]
    assert enough["reason"] == ""
    (small,) = rows_of(*DECODE, f"server={server}", "server.cpu_offload=auto")
    assert small["offloaded_B"] == 0.0


def test_flash_holds_what_the_host_has_no_room_for():
    host, both = rows_of(
        *DECODE, "server.offload_backend=uva", "server.cpu_offload='10 GB'",
        "serve.tiers.flash.capacity='1 TB'", "serve.tiers.host.capacity='200 GB','6 GB'",
    )  # fmt: skip
    assert host["weight_read_s"] == pytest.approx(10e9 / 50e9 + 20 * 1e-5, rel=1e-9)
    assert both["weight_read_s"] == pytest.approx(4e9 / 6.3e9 + 20 * 1e-4, rel=1e-9)


def test_weights_that_tiers_have_no_room_for_are_refused():
    short, none = rows_of(
        *DECODE, "server.cpu_offload='10 GB'", "serve.tiers.host.capacity='6 GB','0 B'"
    )  # fmt: skip
    assert short["reason_code"] == none["reason_code"] == "memory"
    assert "6 GB" in short["reason"]
    assert "serve.tiers.host.capacity" in none["reason"]


@pytest.mark.parametrize("load", ["serve.simulate=false", "serve.simulate=true"])
def test_servers_and_their_simulation_read_weights(load):
    keys = (
        *DENSE, "serve=continuous", "serve.concurrency=4", "serve.isl=200", "serve.osl=100", load,
        "serve.num_requests=40", "server.offload_backend=uva",
    )  # fmt: skip
    plain, read = rows_of(*keys, "server.cpu_offload='0 B','10 GB'")
    reads_s = 10e9 / 50e9 + 20 * 10e-6
    assert read["tpot_s"] - plain["tpot_s"] == pytest.approx(reads_s, rel=0.1)
    assert read["ttft_s"] - plain["ttft_s"] >= reads_s * (1.0 - 1e-9)


def test_stages_read_their_own_layers():
    one, two = (
        rows_of(
            *DENSE, "serve=decode", "serve.batch=16", "server.offload_backend=uva", "system.devices=2",
            f"parallel.strategy={strategy}", f"server.cpu_offload={offload}",
        )[0]
        for strategy, offload in (("TP-1-p2", "'0 B'"), ("TP-1-p2", "'5 GB'"))
    )  # fmt: skip
    assert two["offloaded_B"] == two["weight_read_B"] == 5e9
    kernels = two["tpot_s"] - one["tpot_s"]
    assert kernels == pytest.approx(2 * (5e9 / 50e9 + 10 * 1e-5), rel=0.02)


def test_servers_that_prefill_and_those_that_decode_read_weights():
    keys = (
        *DENSE, "serve=disaggregated", "system.devices=2", "serve.prefill.devices=1", "serve.isl=200",
        "serve.osl=20", "serve.concurrency=1", "serve.num_requests=4", "serve.length_range_ratio=0",
        "serve.first_token=prefill", "server.offload_backend=uva",
    )  # fmt: skip
    plain, read = rows_of(*keys, "server.cpu_offload='0 B','10 GB'")
    reads_s = 10e9 / 50e9 + 20 * 10e-6
    assert read["ttft_s"] - plain["ttft_s"] == pytest.approx(reads_s, rel=1e-6)
    assert read["tpot_s"] - plain["tpot_s"] == pytest.approx(reads_s, rel=1e-6)
