"""What a host launches one by one: iterations with prompts, and all of them without captured graphs."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fastflow
from fastflow.performance.serving.passes.captured_graphs import (
    Graph,
    Graphs,
    captured_size,
    captured_sizes,
)
from tests.naive.serving import graph_size
from tests.support.checks import cases

SERVER = (
    "serve=continuous", "server=trtllm", "model=llama3_8b", "chip=h100_sxm", "system=dgx_h100",
    "system.devices=2", "parallel.strategy=TP-2", "serve.isl=512", "serve.osl=64", "serve.concurrency=5",
)  # fmt: skip
EAGER, CAPTURED = "server.cuda_graphs=false", "server.cuda_graphs=true"
EXACT = ("server.graph_memory='0 B'", "server.cuda_graph_interval=1")


def times(*overrides):
    rows = fastflow.evaluate(*SERVER, *overrides)
    assert rows["reason"].tolist() == [""] * len(rows)
    return rows


@pytest.mark.parametrize("simulated", ["serve.simulate=true", "serve.simulate=false"])
def test_iterations_without_graphs_take_the_time_of_their_launches(simulated):
    slow, slower = times(simulated, EAGER, "server.eager_launch_time=5ms,10ms")["tpot_s"]
    host = fastflow.evaluate(*SERVER, simulated, "server.eager_launch_time=0s")["serve_host_s"].iloc[0]
    launched = (slower - slow) / 0.005
    assert launched == pytest.approx(round(launched), rel=0.02)
    assert 32 * 10 < launched < 32 * 14  # kernels and two sums of each layer
    assert slow == pytest.approx(0.005 * launched + host, rel=0.03)


def test_quick_launches_take_no_time():
    rows = times("server.eager_launch_time=0s", "server.cuda_graphs=true,false", *EXACT)
    assert rows["tpot_s"].nunique() == rows["ttft_s"].nunique() == 1


def test_servers_of_a_call_differ_in_graphs_alone():
    both = times("server.cuda_graphs=true,false")
    alone = [times(one).iloc[0] for one in (CAPTURED, EAGER)]
    for name in ("ttft_s", "tpot_s", "graph_B", "kv_cache_capacity_B", "decode_bound_by"):
        assert both[name].tolist() == [one[name] for one in alone]
    assert (both["graph_B"] > 0).tolist() == [True, False]
    assert np.diff(both["kv_cache_capacity_B"]) > 0
    assert np.diff(both["tpot_s"]) > 0
    assert both["decode_bound_by"].tolist()[1] == "launch"


@cases(200)
@given(
    st.integers(0, 9),
    st.sampled_from([1, 3, 20, 1 << 40]),
    st.booleans(),
    st.integers(1, 40),
    st.floats(0, 1),
)
def test_graphs_are_those_of_the_definition(step, largest, pads, requests, fraction):
    want = graph_size({"step": step, "largest": largest, "pads": pads}, requests) or 0
    assert captured_size(Graph(step, largest, pads, 0.0), float(requests)) == want
    graphs = Graphs(np.array([step]), np.array([largest]), np.array([pads]), np.zeros(1))
    assert captured_sizes(graphs, np.array([1.0 * requests])).tolist() == [want]
    # mean numbers have the graph of the next whole number, or that of every number
    mean = max(1.0, requests - fraction)
    assert captured_sizes(graphs, np.array([mean]))[0] == captured_size(Graph(step, largest, pads, 0.0), mean)


@pytest.mark.parametrize("simulated", ["serve.simulate=true", "serve.simulate=false"])
def test_requests_are_padded_to_the_next_graph(simulated):
    """All lengths are equal, and so are the times: those of eight requests, but for the core of attention."""
    found = [
        times(simulated, "serve.concurrency=5,8", f"server.cuda_graph_interval={step}")["tpot_s"].to_numpy()
        for step in (1, 8)
    ]
    assert found[1][0] > found[0][0]
    assert found[1][1] == pytest.approx(found[0][1], rel=0.02)
    assert found[0][0] < found[1][0] <= found[1][1]


@pytest.mark.parametrize("simulated", ["serve.simulate=true", "serve.simulate=false"])
def test_numbers_without_a_graph_are_launched(simulated):
    slow = ("server.eager_launch_time=1ms", simulated)
    padded, launched = times(*slow, "server.cuda_graph_padding=true,false")["tpot_s"]
    assert launched > 10 * padded
    few, many = times(*slow, "serve.concurrency=4,40", "server.cuda_graph_max_bs=8")["tpot_s"]
    assert many > 10 * few
    (row,) = times("serve.concurrency=40", *slow, "server.cuda_graph_max_bs=8").to_dict("records")
    assert row["decode_bound_by"] == "launch"


def test_split_servers_launch_too():
    split = ("serve=disaggregated", "serve.prefill.devices=1", "parallel.strategy=TP-1-d1")
    captured, eager = times(*split, "server.cuda_graphs=true,false", "server.eager_launch_time=1ms")["tpot_s"]
    assert eager > 10 * captured
