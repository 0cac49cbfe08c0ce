"""Adapters and models that requests name, and states of linear layers in caches: by hand, and of points.

Iterations take 1 ms a token. A load takes 10 ms, and 1 ms for room of a token.
"""

import pytest

import fastflow
from tests.naive.prefix_cache import PER_RANK
from tests.performance.serving.fleet.test_simulate import check
from tests.support.fleets import fleet_of, texts_of, with_sizes

SOURCE = {"load_latency_s": 0.010, "load_token_s": 1e-3}
SERVER = ("server=vllm", "model=llama3_8b", "system=dgx_h100", "system.devices=1", "parallel.strategy=TP-1")


def adapters(*rooms):
    """Return texts: an adapter of each room, and for each a prompt of 20 tokens below it."""
    nodes = [*[(-1, 0)] * len(rooms), *[(number, 20) for number in range(len(rooms))]]
    tokens = [tokens for _, tokens in nodes]
    return with_sizes(texts_of(*nodes), tokens, [*rooms, *tokens[len(rooms) :]], [True] * len(nodes))


def served(texts, *rows, **fleet):
    return check(fleet_of(texts, *rows, **fleet) | {"source": SOURCE})


def test_a_request_waits_for_its_adapter_and_the_next_one_has_it():
    got = served(adapters(30), {"text": 1}, {"text": 1, "sent": 1.0})
    assert got.first == pytest.approx([0.010 + 0.030 + 0.020, 1.0 + 0.001])
    assert got.hit.tolist() == [0, 19]


def test_loads_of_a_rank_follow_each_other():
    got = served(adapters(30, 10), {"text": 2}, {"text": 3})
    assert got.admitted == pytest.approx([0.040, 0.060])


def test_the_least_recently_used_adapter_makes_room():
    """Room for two of 30 tokens with a prompt: the first one is loaded again after two others."""
    rows = [{"text": 3 + number, "sent": 1.0 * i} for i, number in enumerate((0, 1, 2, 0, 2))]
    got = served(adapters(30, 30, 30), *rows, servers=[{"capacity": 110}])
    waits = got.admitted - got.arrived
    assert waits == pytest.approx([0.040, 0.040, 0.040, 0.040, 0.0])


def test_a_lower_tier_keeps_what_is_evicted():
    tier = {"scope": PER_RANK, "capacity": 1000, "latency_s": 0.001, "token_s": 1e-4}
    rows = [{"text": 3 + number, "sent": 1.0 * i} for i, number in enumerate((0, 1, 2, 0))]
    got = served(adapters(30, 30, 30), *rows, servers=[{"capacity": 110}], tiers=[tier])
    assert (got.admitted - got.arrived)[3] == pytest.approx(0.001 + 0.003 + 0.002)  # and 20 tokens of text
    assert got.read.tolist() == [0, 0, 0, 20]


def test_an_iteration_takes_longer_for_each_adapter_in_it():
    """Two requests with two adapters that need no load, in one iteration of 40 tokens."""
    server = {"adapter_s": 0.002, "any_adapter_s": 0.001, "mixes": True}
    got = served(adapters(0, 0), {"text": 2}, {"text": 3}, servers=[server])
    assert got.end == pytest.approx([0.040 + 2 * 0.002 + 0.001] * 2)


def test_a_prompt_goes_on_from_a_checkpoint():
    """The second prompt has the first one's 20 tokens; only the first 12 end with a state."""
    texts = texts_of((-1, 12), (0, 8), (1, 5))
    plain = texts["tokens"]
    for resumes, hit in (([True, False, False], 12), ([True, True, False], 20), ([False] * 3, 0)):
        sized = with_sizes(texts, plain, plain, resumes)
        assert served(sized, {"text": 1}, {"text": 2, "sent": 1.0}).hit.tolist() == [0, hit]


def test_states_take_room_of_texts():
    """Three prompts of 20 tokens fit 70 tokens with states of none, and two with states of 10."""
    texts = texts_of(*[(-1, 20)] * 3)
    rows = [{"text": number, "sent": 1.0 * i} for i, number in enumerate((0, 1, 2, 0))]
    for state, hit in ((0, 19), (10, 0)):
        room = [20 + state] * 3
        sized = with_sizes(texts, texts["tokens"], room, [True] * 3)
        assert served(sized, *rows, servers=[{"capacity": 70}]).hit[3] == hit


@pytest.fixture(scope="module")
def named(tmp_path_factory):
    """A trace whose requests name one of 20 adapters; one of them has a deadline of its own."""
    path = tmp_path_factory.mktemp("named") / "named.csv"
    rows = [f"{0.5 * i},{300 + 7 * i % 200},40,a{i * 7 % 20},{'9' if i == 3 else ''}" for i in range(120)]
    path.write_text("\n".join(["arrival_time,isl,osl,adapter,deadline", *rows]), encoding="utf-8")
    return str(path)


def test_kinds_of_adapters_of_points(named):
    """Models of 16 GB take longer than adapters of 84 MB, and more iterations' time."""
    frame = fastflow.evaluate(
        *SERVER, "serve=continuous", f"serve.trace={named}", "server.adapters=none,lora,models",
        "serve.slo.ttft='10 ms'",
    )  # fmt: skip
    none, lora, models = frame["ttft_p50_s"]
    assert none < lora < models
    assert frame["tpot_p50_s"].is_monotonic_increasing
    assert frame["goodput_per_s"][0] > 0.0  # of the request with its own deadline


def test_a_model_that_does_not_fit_beside_the_first_is_a_row_with_a_reason(named):
    frame = fastflow.evaluate(
        *SERVER, "serve=continuous", f"serve.trace={named}", "server.adapters=models",
        "server.gpu_memory_utilization=0.3",
    )  # fmt: skip
    assert not frame["feasible"][0]
    assert "adapter" in frame["reason"][0]


def test_checkpoints_of_states_of_points(tmp_path):
    """With states more prompts are computed than were states free, and fewer with more checkpoints."""
    path = tmp_path / "turns.csv"
    rows = [f"{2.0 * t + 0.1 * s},{s},{t},{3000 * (t + 1)},50" for t in range(4) for s in range(20)]
    path.write_text("\n".join(["arrival_time,session,turn,isl,osl", *rows]), encoding="utf-8")
    base = ("server=vllm", "model=qwen3_next_80b", "system=dgx_h100", "system.devices=4",
            "parallel.strategy=TP-4", "serve=continuous", f"serve.trace={path}")  # fmt: skip
    frame = fastflow.evaluate(*base, "server.mamba_block_size=0,2048")
    assert (frame["prefix_hit_rate"] > 0.2).all()
