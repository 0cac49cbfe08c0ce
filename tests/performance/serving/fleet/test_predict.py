"""Points with `serve.trace`: their columns, keys and messages."""

import json

import numpy as np
import pytest

import fastflow
from fastflow.cli.commands.requests import main as requests
from fastflow.cli.commands.sweep import main as sweep
from fastflow.core.errors import InputError
from fastflow.performance.serving.fleet import simulate, state
from fastflow.performance.serving.fleet.timeline import MAX_SAMPLES
from fastflow.performance.serving.predict import run_fleet_of
from fastflow.physics.workload.request_trace import read_trace
from tests.conftest import columns_of
from tests.support.fleets import of_package, random_fleet

SERVER = ("server=vllm", "model=llama3_8b", "system=dgx_h100", "system.devices=4", "parallel.strategy=TP-1")
FLEET = (*SERVER, "serve=continuous")
TIGHT = "server.gpu_memory_utilization=0.24"
"""Memory for caches of 30 sessions or so."""
EXACT = {"rel": 1e-9}


def sessions(folder, count=60, turns=4, seed=0):
    """Write a trace of sessions; returns its path."""
    random, lines, at = np.random.default_rng(seed), [], 0.0
    for session in range(count):
        at, context = at + random.exponential(0.4), 0
        for turn in range(turns):
            new, answer = (int(random.integers(*span)) for span in ((200, 900), (20, 200)))
            line = {"session": session, "isl": context + new, "osl": answer}
            line |= {"think_time": random.exponential(3.0)} if turn else {"arrival_time": at}
            lines.append(line)
            context += new + answer
    path = folder / "sessions.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return str(path)


def singles(folder, count=200):
    """Write a trace of requests that share nothing; returns its path."""
    random = np.random.default_rng(1)
    sent = np.cumsum(random.exponential(0.05, count))
    rows = [f"{at},{random.integers(100, 3000)},{random.integers(10, 300)}" for at in sent]
    path = folder / "singles.csv"
    path.write_text("\n".join(["arrival_time,isl,osl", *rows]), encoding="utf-8")
    return str(path)


@pytest.fixture(scope="module")
def trace(tmp_path_factory):
    return sessions(tmp_path_factory.mktemp("trace"))


def test_requests_that_share_nothing_are_served_as_without_a_router(tmp_path):
    path = singles(tmp_path)
    alone = (*SERVER[:-2], "system.devices=1", SERVER[-1], "serve=continuous", "server.first_use_time='0 s'")
    fleet = fastflow.evaluate(*alone, f"serve.trace={path}")
    server = fastflow.evaluate(*alone, f"serve.lengths={path}", "serve.concurrency=0")
    parts = ("", "_p50", "_p95", "_p99")
    times = [f"{name}{part}_s" for name in ("ttft", "tpot", "e2e") for part in parts]
    for name in (*times, "requests_per_s", "running_requests", "joules_per_token", "prefill_share"):
        assert fleet[name][0] == pytest.approx(server[name][0], **EXACT), name
    assert fleet["prefix_hit_rate"][0] == 0.0
    assert fleet["servers_on"][0] == pytest.approx(1.0)


def test_sessions_reuse_what_their_rank_has(trace):
    frame = fastflow.evaluate(
        *FLEET, f"serve.trace={trace}", "router=round_robin,session_sticky,prefix_aware"
    )
    hits = frame["prefix_hit_rate"].tolist()
    assert hits[0] < hits[1] <= hits[2] + 0.01
    assert frame["ttft_s"][1] < frame["ttft_s"][0]
    without = fastflow.evaluate(*FLEET, f"serve.trace={trace}", "server.enable_prefix_caching=false")
    assert without["prefix_hit_rate"].tolist() == [0.0]
    assert without["prefill_tokens_per_s"][0] > 2.0 * frame["prefill_tokens_per_s"][1]


def test_a_shared_prefix_is_computed_once_a_rank(trace):
    keys = (*FLEET, f"serve.trace={trace}", "router=session_sticky")
    frame = fastflow.evaluate(*keys, "serve.shared_prefix=0,190")
    assert frame["prefix_hit_rate"][1] > frame["prefix_hit_rate"][0]


def test_tiers_keep_what_the_devices_evict(trace):
    keys = (*FLEET, f"serve.trace={trace}", "router=session_sticky", TIGHT)
    frame = fastflow.evaluate(*keys, "serve.tiers.host.capacity='0 B','200 GB'")
    assert frame["tier_hit_rate"][0] == 0.0
    assert frame["tier_hit_rate"][1] > 0.02
    assert frame["prefix_hit_rate"][1] > frame["prefix_hit_rate"][0] + 0.02
    through = fastflow.evaluate(*keys, "serve.tiers.host.capacity='200 GB'", "serve.tiers.write=through")
    assert through["prefix_hit_rate"][0] == pytest.approx(frame["prefix_hit_rate"][1], abs=0.02)
    slow = fastflow.evaluate(
        *keys, "serve.tiers.host.capacity='200 GB'", "serve.tiers.host.bandwidth='0.2 GB/s'"
    )
    assert slow["ttft_s"][0] > frame["ttft_s"][1]


def test_weights_leave_less_of_a_tier_for_texts(trace):
    keys = (*FLEET, f"serve.trace={trace}", "router=session_sticky", "server.gpu_memory_utilization=0.2")
    keys += ("server.cpu_offload='2 GB'", "serve.tiers.host.scope=rank,server,fleet")
    small, large = (fastflow.evaluate(*keys, f"serve.tiers.host.capacity='{n} GB'") for n in (2.01, 12))
    assert (small["offloaded_B"] == 2e9).all()
    assert (small["tier_hit_rate"][:2] < 0.02).all()
    assert (large["tier_hit_rate"] > 0.1).all()


def test_a_store_of_the_fleet_helps_routers_that_do_not_know_sessions(trace):
    keys = (*FLEET, f"serve.trace={trace}", "serve.tiers.remote.capacity='2 TB'", "serve.tiers.write=through")
    frame = fastflow.evaluate(*keys, "serve.tiers.remote.scope=rank,fleet")
    assert frame["prefix_hit_rate"][1] > frame["prefix_hit_rate"][0] + 0.05


def test_a_faster_trace_is_a_larger_load(trace):
    frame = fastflow.evaluate(
        *FLEET, f"serve.trace={trace}", "serve.trace_speed=1,4", "serve.slo.ttft='50 ms'"
    )
    assert frame["running_requests"][1] > frame["running_requests"][0]
    assert (frame["goodput_per_s"] <= frame["requests_per_s"]).all()
    assert frame["goodput_per_s"][0] > 0.0
    first = fastflow.evaluate(
        *FLEET, f"serve.trace={trace}", "serve.num_requests=20", "serve.trace_speed=1,4"
    )
    assert first["goodput_per_s"].isna().all()


@pytest.mark.parametrize("by", ["queue", "rate", "latency"])
def test_servers_are_on_as_the_load_needs(trace, by):
    keys = (*FLEET, f"serve.trace={trace}", "serve.autoscale.start_time='1 s'", "router=least_loaded")
    target = {"queue": 4, "rate": 2, "latency": 0.02}[by]
    frame = fastflow.evaluate(*keys, f"serve.autoscale.by=none,{by}", f"serve.autoscale.target={target}")
    assert frame["servers_on"][0] == pytest.approx(4.0)
    assert frame["servers_on"][1] < 3.9
    assert frame["server_starts"].tolist()[0] == 0.0
    assert frame["server_starts"][1] > 0.0


def test_the_first_request_of_an_empty_fleet_waits_for_a_server(trace):
    keys = (*FLEET, f"serve.trace={trace}", "serve.num_requests=1", "serve.autoscale.by=queue")
    frame = fastflow.evaluate(*keys, "serve.autoscale.min_replicas=1,0", "serve.autoscale.start_time='7 s'")
    wait = frame["ttft_s"][1] - frame["ttft_s"][0]
    weights = frame["weight_B"][1] / 6.3e9  # from local drives
    assert wait == pytest.approx(7.0 + weights + 1e-4, rel=1e-6)


def test_disaggregated_servers_hand_caches_over(trace):
    keys = (*SERVER, "serve=disaggregated", "serve.prefill.devices=2", f"serve.trace={trace}")
    frame = fastflow.evaluate(*keys, "router=session_sticky", "serve.first_token=prefill,decode")
    assert (frame["transfer_s"] > 0.0).all()
    assert (frame["prefix_hit_rate"] > 0.3).all()
    assert frame["ttft_s"][0] < frame["ttft_s"][1]
    assert frame["e2e_s"][0] == pytest.approx(frame["e2e_s"][1], **EXACT)
    assert frame["servers_on"].tolist() == pytest.approx([4.0, 4.0])


def test_pipelines_and_ranks_have_fleets_too(trace):
    for strategy in ("TP-1-d2-p2", "TP-1-d4", "TP-2-d2"):
        frame = fastflow.evaluate(
            *SERVER[:-1], "serve=continuous", f"parallel.strategy={strategy}", f"serve.trace={trace}"
        )
        assert frame["feasible"].tolist() == [True], strategy
    mixture = ("server=vllm", "model=qwen3_30b", "system=dgx_h100", "system.devices=8")
    frame = fastflow.evaluate(
        *mixture,
        "serve=continuous",
        "parallel.strategy=TP-1-e8-d8",
        f"serve.trace={trace}",
        "router=session_sticky",
    )
    assert frame["prefix_hit_rate"][0] > 0.5


def test_classes_have_latencies_of_their_own(cli, tmp_path):
    path, random = tmp_path / "classes.csv", np.random.default_rng(2)
    lines = [f"{i / 40},{random.integers(500, 3000)},{1 + i % 3 * 40},{'ab'[i % 2]}" for i in range(300)]
    path.write_text("\n".join(["arrival_time,isl,osl,class", *lines]), encoding="utf-8")
    alone = (*SERVER[:-2], "system.devices=1", SERVER[-1], "serve=continuous", f"serve.trace={path}")
    frame = fastflow.evaluate(*alone, "server.policy=mixed,priority", "serve.slo.ttft='2 s'")
    usual, first = map(json.loads, frame["classes"])
    assert {name: of["requests"] for name, of in first.items()} == {"a": 150, "b": 150}
    assert first["a"]["ttft_p99_s"] < 0.7 * first["b"]["ttft_p99_s"]
    assert first["a"]["ttft_p99_s"] < usual["a"]["ttft_p99_s"]
    total = sum(of["goodput_per_s"] for of in first.values())
    assert total == pytest.approx(frame["goodput_per_s"][1], **EXACT)
    code, out, _ = cli(sweep, *alone, f"output={tmp_path / 'data'}")
    assert code == 0
    assert any(line.startswith("Classes of service") for line in out)


@pytest.mark.parametrize("keys", [FLEET, (*SERVER, "serve=disaggregated", "serve.prefill.devices=2")])
def test_sessions_and_their_turns_have_results_of_their_own(compose, trace, keys):
    keys = (*keys, f"serve.trace={trace}", "router=session_sticky", "serve.slo.ttft='80 ms'")
    frame, run = fastflow.evaluate(*keys), run_fleet_of(columns_of([compose(*keys)]))
    row, file, results = frame.iloc[0], read_trace(trace), run.requests
    turns = json.loads(row["turns"])
    assert [of["requests"] for of in turns.values()] == [60, 60, 120]
    assert list(turns) == ["1", "2", "3-5"]
    assert sum(of["goodput_per_s"] for of in turns.values()) == pytest.approx(row["goodput_per_s"], **EXACT)
    first = file.turn == 0
    assert turns["1"]["ttft_p50_s"] == pytest.approx(np.percentile(results.ttft_s[first], 50), **EXACT)
    assert np.mean(results.ttft_s) == pytest.approx(row["ttft_s"], **EXACT)
    assert np.mean(results.e2e_s) == pytest.approx(row["e2e_s"], **EXACT)
    assert np.nanmean(results.tpot_s) == pytest.approx(row["tpot_s"], **EXACT)
    assert row["later_turns_hit_rate"] > row["prefix_hit_rate"] > turns["1"]["prefix_hit_rate"]
    assert row["sessions"] == 60.0
    lasts = [results.ended.end[file.session == i].max() for i in range(60)]
    lasts = np.array(lasts) - results.ended.sent[first]
    host = results.e2e_s[0] - results.ended.end[0] + results.ended.sent[0]
    assert row["session_p99_s"] == pytest.approx(np.percentile(lasts + host, 99), **EXACT)
    assert row["session_wait_p50_s"] < row["session_p50_s"]
    assert row["session_wait_p99_s"] < row["session_p99_s"]


def test_a_trace_without_sessions_has_none_of_their_results(tmp_path):
    row = fastflow.evaluate(*FLEET, f"serve.trace={singles(tmp_path, 20)}").iloc[0]
    for name in ("sessions", "session_p50_s", "session_wait_p99_s", "later_turns_hit_rate", "turns"):
        assert row[name] is None or row[name] != row[name] or row[name] == "", name


def test_keys_without_effect_are_named(trace):
    alone = fastflow.evaluate(*FLEET, "serve.tiers.host.capacity='1 GB'", "router=random")
    assert {part.split(":")[0] for part in alone["no_effect"][0].split("; ")} == {
        "serve.tiers.host.capacity", "router",
    }  # fmt: skip
    frame = fastflow.evaluate(*FLEET, f"serve.trace={trace}", "serve.concurrency=3", "serve.isl=7")
    assert {part.split(":")[0] for part in frame["no_effect"][0].split("; ")} == {
        "serve.concurrency", "serve.isl",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("serve.trace=nosuch.csv", ("serve.trace", "nosuch.csv")),
        ("router=nosuch", ("router", "prefix_aware")),
        ("router.policy=nosuch", ("router.policy", "round_robin")),
        ("serve.tiers.host.scope=rack", ("serve.tiers.host.scope", "rank, server, fleet")),
        ("serve.autoscale.by=load", ("serve.autoscale.by", "queue")),
        ("router.cache_threshold=2", ("router.cache_threshold", "at most 1")),
    ],
)
def test_a_wrong_value_is_one_line_with_key_and_choices(trace, override, words):
    keys = [
        key for key in (f"serve.trace={trace}", override) if not override.startswith(f"{key.split('=')[0]}=")
    ]
    with pytest.raises(InputError) as error:
        fastflow.evaluate(*FLEET, *dict.fromkeys([*keys, override]))
    assert "\n" not in str(error.value)
    for word in words:
        assert word in str(error.value)


def test_a_request_too_long_for_the_cache_and_too_many_requests_are_reasons(tmp_path, trace):
    path = tmp_path / "long.csv"
    path.write_text("arrival_time,isl,osl\n0,120000,9000\n", encoding="utf-8")
    frame = fastflow.evaluate(*FLEET, f"serve.trace={path}", TIGHT)
    assert frame["feasible"].tolist() == [False]
    assert "cache" in frame["reason"][0]
    frame = fastflow.evaluate(*FLEET, f"serve.trace={trace}", "serve.num_requests=1000")
    assert "240 requests of serve.trace" in frame["reason"][0]


def test_a_fleet_beyond_the_memory_of_this_machine_is_a_reason(monkeypatch, trace):
    monkeypatch.setattr(simulate, "MAX_BYTES", 10_000)
    for mode in ("serve=continuous", "serve=disaggregated"):
        keys = (*SERVER, mode, f"serve.trace={trace}", "serve.prefill.devices=2")
        frame = fastflow.evaluate(*keys[: None if "disaggregated" in mode else -1])
        assert frame["feasible"].tolist() == [False]
        assert frame["reason"][0].startswith("serve.num_requests=240 is invalid: expected fewer requests")


def test_queues_grow_where_many_wait(monkeypatch):
    """As they are with room for all from the start."""
    for seed in range(8):
        fleet = random_fleet(np.random.default_rng(seed))
        usual = of_package(fleet).served
        monkeypatch.setattr(state, "_QUEUE", -15)
        short = of_package(fleet).served
        monkeypatch.undo()
        for name in ("rank", "cached", "end", "first"):
            assert getattr(usual, name).tolist() == getattr(short, name).tolist()


def test_samples_are_the_state_of_the_fleet(compose, trace):
    run = run_fleet_of(columns_of([compose(*FLEET, f"serve.trace={trace}", "serve.trace_speed=5")]))
    requests_, served, timeline = run.result.requests, run.result.served, run.result.timeline
    assert 10 < timeline.time.size <= MAX_SAMPLES
    assert np.allclose(np.diff(timeline.time), timeline.time[1] - timeline.time[0])
    assert timeline.time[-1] <= requests_.end.max()
    for i in range(timeline.time.size):
        at = timeline.time[i]
        running = ((requests_.admitted <= at) & (requests_.end > at)).sum()
        waiting = ((served.arrived <= at) & (requests_.admitted > at)).sum()
        assert (timeline.running[i], timeline.waiting[i]) == (running, waiting)
    assert (timeline.open == 4).all()
    assert timeline.cached_tokens.max() > 10_000


def test_the_screen_the_picture_and_the_trace_show_a_fleet(cli, trace, tmp_path):
    picture, events = tmp_path / "fleet.svg", tmp_path / "fleet.json"
    code, out, _ = cli(
        sweep, *FLEET, f"serve.trace={trace}", "router=prefix_aware", "serve.slo.ttft='1 s'",
        f"picture={picture}", f"trace={events}", f"output={tmp_path / 'data'}",
    )  # fmt: skip
    assert code == 0
    for words in (
        "router prefix_aware",
        "all 240 as they arrive",
        "prompts in the cache",
        "within serve.slo",
        "behind a router",
    ):
        assert words in "\n".join(out)
    assert "Time to the first token" in picture.read_text(encoding="utf-8")
    drawn = json.loads(events.read_text(encoding="utf-8"))["traceEvents"]
    assert {event["ph"] for event in drawn} == {"M", "b", "e", "C"}
    assert sum(event["ph"] == "b" for event in drawn) == 3 * 240


def test_a_single_pass_has_the_mean_prompt_of_a_trace(cli, trace, tmp_path):
    code, out, _ = cli(sweep, *SERVER, "serve=prefill", f"serve.trace={trace}", f"output={tmp_path / 'data'}")
    assert code == 0
    assert "are not used: serve=continuous sends requests then" in " ".join(" ".join(out).split())


def test_generated_requests_are_served(cli, tmp_path):
    path = tmp_path / "chats.csv"
    code, out, _ = cli(requests, f"output={path}", "sessions=50", "rate='3 1/s'", "turns=3", "isl=300")
    assert code == 0
    assert "50 sessions" in out[0]
    assert f"serve.trace={path}" in " ".join(out)
    frame = fastflow.evaluate(*FLEET, f"serve.trace={path}", "router=session_sticky")
    assert frame["prefix_hit_rate"][0] > 0.3


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["sessions=3"], "output"),
        (["output=a.txt"], ".csv"),
        (["output=a.csv", "turnz=3"], "turns"),
        (["output=a.csv", "turns=0"], "turns"),
        (["output=a.csv", "rate=3"], "rate"),
        (["output=a.csv", "sigma"], "KEY=VALUE"),
        (["output=a.csv", "seed=1", "seed=2"], "one value"),
        (["output=nosuch/a.csv"], "nosuch"),
    ],
)
def test_a_wrong_key_of_generated_requests_is_one_line(cli, tmp_path, monkeypatch, words, said):
    monkeypatch.chdir(tmp_path)
    code, out, err = cli(requests, *words)
    assert (code, out, len(err)) == (2, [], 1)
    assert said in err[0]
    assert not list(tmp_path.glob("*"))
