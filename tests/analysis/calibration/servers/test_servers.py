"""Servers calibrated to benchmarks: figures of a naive server are found, and its times are replayed."""

import json
from pathlib import Path

import numpy as np
import pytest
import yaml

import fastflow
from fastflow.analysis.benchmarks.benchmark_run import BenchmarkRun, SentAs
from fastflow.analysis.calibration.robust_fit import FITTED, NOT_DETERMINED
from fastflow.analysis.calibration.servers.replay import CLOSED, POISSON, RECORDED, load_of
from fastflow.cli.commands.calibrate import main
from fastflow.core.errors import InputError
from tests.support.benchmarks import FIGURES, POINT, lengths_of, of_sglang, of_vllm, run, write
from tests.support.checks import near

VLLM = ("server=vllm", *POINT)
HOST = list(FIGURES)


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Files of a naive server: closed loops of 1, 4 and 16, as vLLM and as SGLang write them; open loops."""
    folder = tmp_path_factory.mktemp("runs")
    paths, objects = {}, []
    for limit in (1, 4, 16):
        isl, osl = lengths_of(40, limit)
        requests = run(isl, osl, concurrency=limit)
        paths[f"c{limit}"] = write(
            folder / f"c{limit}.json", of_vllm(isl, osl, requests, max_concurrency=limit)
        )
        objects.append(of_sglang(isl, osl, requests, max_concurrency=limit))
    paths["sglang"] = write(folder / "runs.jsonl", *objects)
    for rate in (2.0, 12.0):
        isl, osl = lengths_of(50, int(rate))
        gaps = np.random.default_rng(3).exponential(1.0 / rate, 50)
        requests = run(isl, osl, arrivals=(np.cumsum(gaps) - gaps[0]).tolist())
        paths[f"r{rate:.0f}"] = write(
            folder / f"r{rate:.0f}.json", of_vllm(isl, osl, requests, request_rate=rate)
        )
    return paths


def changed(files, tmp_path, name="c16", **members):
    """Write a file with other members, None for none; returns its path."""
    content = json.loads(Path(files[name]).read_text()) | members
    kept = {key: value for key, value in content.items() if value is not None}
    return write(tmp_path / "changed.json", kept)


def test_figures_of_the_host_are_found(files):
    found = fastflow.calibrate(*VLLM, requests=f"{files['c1']},{files['c4']},{files['c16']}")
    figures = found.figures.set_index("figure")
    for name, value in FIGURES.items():
        assert near(figures["after"][name], value, 0.05), name  # who shares an iteration changes in leaps
        assert figures["state"][name] == FITTED
    # every time of the naive server, also those that are not fitted
    assert np.allclose(found.times["after_s"], found.times["measured_s"], rtol=0.06)
    assert (found.errors["before"] > 0.1).all()
    assert (found.errors["after"] < 0.02).all()
    assert found.runs["arrivals"].tolist() == [f"closed loop, {limit} in flight" for limit in (1, 4, 16)]
    content = yaml.safe_load(found.text)
    assert content["defaults"] == ["vllm", "_self_"]
    assert content["source"]["step_overhead"].startswith(
        "calibrated: c1.json, c4.json, c16.json of vllm bench serve, 120 requests to llama3_8b on h100_sxm, "
        "TP-1; mean relative error of TTFT 0."
    )
    assert found.path is None


@pytest.mark.long
def test_runs_of_sglang_say_the_same(files):
    found = fastflow.calibrate(*VLLM, requests=files["sglang"])
    assert np.allclose(found.figures["after"], list(FIGURES.values()), rtol=0.05)
    assert set(found.runs["tool"]) == {"sglang.bench_serving"}


@pytest.mark.long
def test_recorded_arrivals_are_replayed(files):
    found = fastflow.calibrate(*VLLM, requests=f"{files['r2']},{files['r12']}")
    # who shares an iteration with whom changes in leaps
    assert np.allclose(found.figures["after"], list(FIGURES.values()), rtol=0.1)
    assert set(found.runs["arrivals"]) == {"at their recorded times"}
    rtol = np.where(found.times["statistic"] == "p99", 0.1, 0.03)
    assert (np.abs(found.times["after_s"] / found.times["measured_s"] - 1.0) < rtol).all()


@pytest.mark.long
def test_noise_moves_figures_little(files, tmp_path):
    rng, paths = np.random.default_rng(1), []
    for limit in (1, 4, 16):
        content = json.loads(Path(files[f"c{limit}"]).read_text())
        content["ttfts"] = [time * np.exp(rng.normal(0.0, 0.05)) for time in content["ttfts"]]
        content["itls"] = [[gap * np.exp(rng.normal(0.0, 0.2)) for gap in gaps] for gaps in content["itls"]]
        paths.append(write(tmp_path / f"n{limit}.json", content))
    found = fastflow.calibrate(*VLLM, requests=",".join(paths)).figures
    assert np.allclose(found["after"], list(FIGURES.values()), rtol=0.15)
    assert (np.abs(found["after"] - list(FIGURES.values())) < 5 * found["standard_error"]).all()


@pytest.mark.long
def test_one_load_does_not_tell_all_figures(files):
    found = fastflow.calibrate(*VLLM, requests=files["c1"]).figures.set_index("figure")
    assert found["state"]["step_overhead_per_request"] == NOT_DETERMINED
    assert found["after"]["step_overhead_per_request"] == found["before"]["step_overhead_per_request"]


@pytest.mark.long
@pytest.mark.parametrize(("factor", "bound"), [(0.3, "0 s"), (40.0, "100 ms")])
def test_times_that_no_host_explains_are_said_to_be(cli, files, tmp_path, factor, bound):
    content = json.loads(Path(files["c16"]).read_text())
    ttfts = [factor * time for time in content["ttfts"]]
    itls = [[factor * gap for gap in gaps] for gaps in content["itls"]]
    path = changed(files, tmp_path, ttfts=ttfts, itls=itls)
    code, out, _ = cli(main, *VLLM, f"requests={path}", "output=mine.yaml")
    assert code == 0
    assert f"step_overhead is at its bound, {bound}: the mechanism is wrong" in out
    (said,) = (
        line for line in out if line.startswith("figures of the host do not explain these times (TTFT")
    )
    assert "TPOT is still" in said


@pytest.mark.long
def test_the_command_prints_and_writes_a_file_that_server_takes(cli, files, tmp_path):
    paths = f"requests={files['c1']},{files['c16']}"
    code, out, err = cli(main, *VLLM, paths, "server.max_num_seqs=512", "fit=request_overhead,step_overhead")
    assert code == 0
    assert err[0] == "fitting 2 figures of server vllm to 2 runs"
    assert out[0] == "80 requests in 2 runs of vllm bench serve: llama3_8b on h100_sxm, TP-1, server vllm"
    assert out[-1] == "Server: vllm-calibrated.yaml"
    content = yaml.safe_load((tmp_path / "vllm-calibrated.yaml").read_text())
    assert content["max_num_seqs"] == 512
    assert [name for name in HOST if name in content] == ["step_overhead", "request_overhead"]
    said = {key: f"{value!r}" for key, value in content.items()}
    alone = "server.step_overhead_per_request='0 s'"
    points = fastflow.evaluate("serve=continuous", "server=vllm-calibrated.yaml", alone, *POINT)
    assert f"'{points['serve_host_s'][0] * 1e3:.4g} ms'" == said["step_overhead"]
    # a calibration goes on from a calibration: the errors after are those before
    found = fastflow.calibrate("server=vllm-calibrated.yaml", *POINT, paths, "fit=step_overhead")
    assert out[-2].startswith(f"mean relative error: TTFT {found.errors['before'][0]:.1%} (before: ")
    assert [path.name for path in tmp_path.iterdir()] == ["vllm-calibrated.yaml"]


MISTAKES = {
    "both": (
        ["requests=FILE", "measurements=gemms.csv"],
        "expected null beside measurements=FILE.csv: a calibration is of a chip or of a server",
    ),
    "neither": ([], "expected one or more CSV files; or requests=RESULT.json, for a server"),
    "no file": (["requests=none.json"], "requests=none.json (from the command line) is invalid: expected a"),
    "no text": (["requests=3"], "requests=3 (from the command line) is invalid: expected one or more "),
    "twice": (["requests=FILE,FILE"], "is invalid: expected each file once"),
    "a figure": (
        ["requests=FILE", "fit=step_overhed"],
        "fit=step_overhed (from the command line) is invalid: expected one of step_overhead, step_",
    ),
    "arrivals": (["requests=FILE", "arrivals=now"], "expected null, or one of recorded, closed, poisson"),
    "a load": (["requests=FILE", "serve.concurrency=8"], "expected no override: the files of requests= have"),
    "a mode": (["requests=FILE", "serve=decode"], "expected no override: the files of requests= have"),
    "a key of chips": (["requests=FILE", "timed=call"], "expected null with requests=, which has no such"),
    "a server": (["requests=FILE", "server=vlm"], "server=vlm"),
    "an output": (["requests=FILE", "output=FILE"], "expected a file on this machine, NAME.yaml"),
    "a grid": (["requests=FILE", "model.dtype=bf16,fp8"], ""),
}  # fmt: skip


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_a_line(cli, files, tmp_path, name):
    overrides, says = MISTAKES[name]
    arguments = [text.replace("FILE.", "FILE .").replace("FILE", files["c16"]) for text in overrides]
    code, out, err = cli(main, *VLLM, *arguments)
    assert (code, out, len(err)) == (2, [], 1), err
    assert says in err[0]
    assert list(tmp_path.iterdir()) == []


def test_the_layout_of_several_devices_is_asked_for(cli, files):
    code, _, err = cli(main, f"requests={files['c16']}", "model=llama3_8b", "system=dgx_h100")
    assert (code, len(err)) == (2, 1)
    assert err[0].startswith("parallel.strategy=auto")
    assert err[0].endswith("expected the layout of the measured server, such as TP-8")


def test_requests_that_do_not_fit_are_named_by_their_file(cli, files, tmp_path):
    path = changed(files, tmp_path, input_lens=[300_000] * 40)
    code, _, err = cli(main, *VLLM, f"requests={path}")
    assert code == 2
    assert err[-1].startswith(
        "the server of changed.json cannot be predicted: requests=changed.json is invalid: "
    )


def test_too_few_times_fit_no_three_figures(cli, files, tmp_path):
    path = changed(files, tmp_path, output_lens=[1] * 40, itls=[[]] * 40)
    code, _, err = cli(main, *VLLM, f"requests={path}")
    assert code == 2
    assert "expected at most 1 figure, since these loads have 2 times; or more loads" in err[-1]


# --- how requests arrive


def bench(count=6, sent=None, **sent_as):
    tokens = np.full(count, 8)
    times = np.full(count, 0.5)
    sent = np.zeros(0) if sent is None else np.array(sent)
    return BenchmarkRun(tokens, tokens, times / 2, times, sent, SentAs(**sent_as), 0, "some.json", "a tool")


@pytest.mark.parametrize(
    ("measured", "arrivals", "concurrency"),
    [
        (bench(), CLOSED, 6),
        (bench(concurrency=2), CLOSED, 2),
        (bench(concurrency=99), CLOSED, 6),
        (bench(rate=5.0), POISSON, 0),
        (bench(sent=[0, 0.1, 0.2, 0.3, 0.4, 0.9], rate=5.0), RECORDED, 0),
        (bench(sent=[0, 0.1, 0.2, 0.3, 0.4, 0.9]), RECORDED, 0),
        (bench(sent=[0, 0.1, 0.5, 0.6, 1.0, 1.1], concurrency=2), CLOSED, 2),
        # as many as there may be are not sent before the first one ends: a trace with times of its own
        (bench(sent=[0, 0.6, 1.2, 1.8, 2.4, 3.0], concurrency=2), RECORDED, 0),
        (bench(sent=[0, 0.1, 0.2, 0.3, 0.4, 0.9], rate=float("nan")), RECORDED, 0),
    ],
)
def test_requests_arrive_as_the_benchmark_sent_them(measured, arrivals, concurrency):
    load = load_of(measured)
    assert (load.arrivals, load.concurrency) == (arrivals, concurrency)
    assert load.sent.size == (0 if arrivals == CLOSED else 6)
    if arrivals == RECORDED:
        assert load.sent.tolist() == measured.sent.tolist()
    if arrivals == POISSON:
        assert near(load.sent[-1] + np.diff(load.sent).mean(), 6 / 5.0, 0.5)


def test_what_is_not_replayed_is_said():
    notes = load_of(bench(rate=5.0, burstiness=0.5, concurrency=4)).notes()
    assert notes == [
        "some.json does not say when requests were sent: here they arrive at random times, 5/s (Poisson)",
        "burstiness=0.5 of some.json is not replayed",
        "max_concurrency=4 of some.json is not replayed",
    ]
    assert load_of(bench(concurrency=4)).notes() == []


@pytest.mark.parametrize(
    ("measured", "wanted", "says"),
    [
        (
            bench(rate=float("nan")),
            None,
            "requests=some.json is invalid: expected runs that say when requests we",
        ),
        (
            bench(),
            RECORDED,
            "arrivals=recorded is invalid: expected one of closed, poisson, or runs that say whe",
        ),
        (
            bench(),
            POISSON,
            "arrivals=poisson is invalid: expected one of recorded, closed, since some.json has n",
        ),
    ],
)
def test_arrivals_that_no_file_has_are_refused(measured, wanted, says):
    with pytest.raises(InputError) as refused:
        load_of(measured, wanted)
    assert str(refused.value).startswith(says)


def test_arrivals_may_be_chosen():
    assert load_of(bench(rate=5.0), CLOSED).concurrency == 6
    assert load_of(bench(sent=[0, 1, 2, 3, 4, 5], rate=5.0), POISSON).arrivals == POISSON
