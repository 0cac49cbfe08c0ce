"""What a host launches one by one: iterations with prompts, and all of them without captured graphs."""

import numpy as np
import pytest

import fastflow

SERVER = (
    "serve=continuous", "server=trtllm", "model=llama3_8b", "chip=h100_sxm", "system=dgx_h100",
    "system.devices=2", "parallel.strategy=TP-2", "serve.isl=512", "serve.osl=64", "serve.concurrency=5",
)  # fmt: skip
EAGER, CAPTURED = "server.cuda_graphs=false", "server.cuda_graphs=true"


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
    rows = times("server.eager_launch_time=0s", "server.cuda_graphs=true,false", "server.graph_memory='0 B'")
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


def test_split_servers_launch_too():
    split = ("serve=disaggregated", "serve.prefill.devices=1", "parallel.strategy=TP-1-d1")
    captured, eager = times(*split, "server.cuda_graphs=true,false", "server.eager_launch_time=1ms")["tpot_s"]
    assert eager > 10 * captured
