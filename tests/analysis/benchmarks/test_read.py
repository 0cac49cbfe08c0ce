"""Outputs of benchmarks are read as their tools write them; what is no such file is refused in a line."""

import json
import re

import numpy as np
import pytest

from fastflow.analysis.benchmarks.read import read_runs
from fastflow.core.errors import InputError
from tests.support.benchmarks import of_sglang, of_vllm, write

ISL, OSL = [512, 300, 40, 64], [3, 2, 1, 4]
TIMES = [(0.5, 0.08, 0.1), (0.0, 0.06, 0.07), (0.7, 0.05, 0.05), (0.9, 0.04, 0.07)]
DETAILS = ("input_lens", "output_lens", "ttfts", "itls")


def vllm(**members):
    return of_vllm(ISL, OSL, TIMES, **members)


def sglang(**members):
    return of_sglang(ISL, OSL, TIMES, **members)


def read(tmp_path, *objects):
    return read_runs([write(tmp_path / "run.json", *objects)])


def without(members, *names):
    return {name: value for name, value in members.items() if name not in names}


def test_a_run_of_vllm_is_in_the_order_of_its_start_times(tmp_path):
    (run,) = read(tmp_path, vllm(request_rate=4.0, burstiness=0.5, max_concurrency=16))
    assert run.isl.tolist() == [300, 512, 40, 64]
    assert run.osl.tolist() == [2, 3, 1, 4]
    assert run.sent == pytest.approx([0.0, 0.5, 0.7, 0.9])
    assert run.ttft.tolist() == [0.06, 0.08, 0.05, 0.04]
    assert run.e2e == pytest.approx([0.07, 0.1, 0.05, 0.07])
    assert run.tpot == pytest.approx([0.01, 0.01, 0.01])  # of answers of several tokens
    assert run.sent_as == (4.0, 16, 0.5)
    assert (run.failed, run.name, run.tool) == (0, "run.json", "vllm bench serve")


def test_versions_of_vllm_without_start_times_keep_the_order_of_the_file(tmp_path):
    (run,) = read(tmp_path, without(vllm(), "start_times", "burstiness"))
    assert (run.isl.tolist(), run.sent.size) == (ISL, 0)
    assert run.sent_as == (np.inf, 0, 1.0)


def test_later_versions_of_vllm_say_when_the_last_token_came(tmp_path):
    (run,) = read(tmp_path, without(vllm(latencies=[0.2, 0.3, 0.4, 0.5]), "start_times"))
    assert run.e2e.tolist() == [0.2, 0.3, 0.4, 0.5]


def test_a_ramp_has_no_rate(tmp_path):
    (run,) = read(tmp_path, vllm(ramp_up_strategy="linear", ramp_up_start_rps=1, ramp_up_end_rps=9))
    assert np.isnan(run.sent_as.rate)


def test_a_file_of_sglang_has_a_run_in_each_line(tmp_path):
    runs = read(tmp_path, sglang(max_concurrency=2), sglang(request_rate=3.5), sglang(request_rate="trace"))
    assert [run.name for run in runs] == ["run.json:1", "run.json:2", "run.json:3"]
    assert {run.tool for run in runs} == {"sglang.bench_serving"}
    assert [run.sent_as[:2] for run in runs[:2]] == [(np.inf, 2), (3.5, 0)]
    assert np.isnan(runs[2].sent_as.rate)
    assert all(run.sent.size == 0 and run.isl.tolist() == ISL for run in runs)


def test_failed_requests_are_left_out(tmp_path):
    (run,) = read(tmp_path, vllm(errors=["", "timed out", "", None], output_lens=[0, 2, 1, 4]))
    assert (run.isl.tolist(), run.failed) == ([40, 64], 2)
    assert run.sent == pytest.approx([0.0, 0.2])


PARTS = [[0.01, 0.01], [0.01], [], [0.01, 0.01, 0.01]]
WRONG = {
    "no JSON": ("words", "expected the JSON that a benchmark writes, .* whose line 1 has words"),
    "nothing": ("", "not a file which is empty"),
    "a list": ("[1, 2]", "line 1 has "),
    "another object": ('{"a": 1, "b": 2}', "not a file whose object has a, b"),
    "a cut file": (json.dumps(vllm())[:-9], "line 1 has "),
    "no details of vllm": (
        without(vllm(), *DETAILS),
        "run vllm bench serve with --save-result --save-detailed; this file lacks input_lens, output",
    ),
    "no details of sglang": (
        without(sglang(), *DETAILS),
        "run sglang.bench_serving with --output-details; this file lacks input_lens, output_lens, ttfts",
    ),
    "a text": (vllm(ttfts=["x", 1, 1, 1]), r"ttfts\[0\] is a number of seconds from 0, not x"),
    "a time below 0": (sglang(ttfts=[1, -1, 1, 1]), r"ttfts\[1\] is a number of seconds from 0, not -1"),
    "no number": (vllm(ttfts=[1, 1, float("nan"), 1]), r"ttfts\[2\] is a number of seconds from 0, not nan"),
    "a truth": (vllm(input_lens=[True, 1, 1, 1]), r"input_lens\[0\] is a whole number of tokens, not True"),
    "half a token": (vllm(output_lens=[1.5, 1, 1, 1]), r"output_lens\[0\] is a whole number of tokens, not"),
    "no list": (vllm(itls=3), "itls is a list with an entry for each request, not 3"),
    "no list of lists": (vllm(itls=[1, 1, 1, 1]), r"itls\[0\] is a list of numbers of seconds, not 1"),
    "a wrong gap": (vllm(itls=[*PARTS[:3], [0.1, None]]), r"itls\[3\]\[1\] is a number of seconds from 0, "),
    "lengths that differ": (vllm(ttfts=[1, 1]), "these have input_lens 4, output_lens 4, ttfts 2, itls 4"),
    "start times that differ": (vllm(start_times=[1.0]), "errors 4, start_times 1"),
    "no requests": (sglang(**{name: [] for name in (*DETAILS, "errors")}), "a run of 1 to 65,536"),
    "failures alone": (
        vllm(errors=["Traceback:\n  refused"] * 4),
        r"a run with completed requests; all 4 of this one failed \(Traceback: refused\)",
    ),
    "empty answers": (sglang(output_lens=[0] * 4), "all 4 of this one failed"),
    "no stream": (vllm(itls=[[]] * 4), "a run with times between tokens; the answers of this one we"),
    "an empty prompt": (vllm(input_lens=[0, 1, 1, 1]), "whose prompts have at least 1 token"),
    "no rate": (vllm(request_rate=0), "request_rate is a number of requests a second above 0, or inf, not 0"),
    "no limit": (vllm(max_concurrency=-3), "max_concurrency is a number above 0, or null, not -3"),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_what_no_benchmark_writes_is_refused(tmp_path, name):
    content, says = WRONG[name]
    path = tmp_path / "run.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    with pytest.raises(InputError) as refused:
        read_runs([str(path)], "the command line")
    line = str(refused.value)
    assert re.search(says, line), line
    assert line.startswith("requests=")
    assert "(from the command line)" in line
    assert "\n" not in line


def test_a_mistake_in_a_file_of_several_runs_names_its_line(tmp_path):
    with pytest.raises(InputError, match=r"ttfts\[0\] is .* not x \(line 2\)$"):
        read(tmp_path, sglang(), sglang(ttfts=["x", 1, 1, 1]))


def test_a_file_that_cannot_be_read_is_refused(tmp_path):
    for path in (tmp_path, tmp_path / "none.json", "/dev/zero", "\0"):
        with pytest.raises(InputError, match=r"^requests="):
            read_runs([str(path)])
    (tmp_path / "bytes.json").write_bytes(b"\xff\xfe{}")
    with pytest.raises(InputError, match="not a file which is no text"):
        read_runs([str(tmp_path / "bytes.json")])
