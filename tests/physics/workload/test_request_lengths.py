"""Lengths of requests from a file: what is read, what is sent, what is refused."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fastflow
from fastflow.performance.serving.requests import load
from fastflow.performance.serving.requests.lengths import MAX_SENT
from fastflow.physics.workload.request_lengths import read_lengths
from tests.support.checks import cases
from tests.support.paths import DATA
from tests.support.servers import loads

POINT = (
    "serve=continuous", "server=vllm", "model=llama3_8b", "system=dgx_h100", "system.devices=1",
    "parallel.strategy=TP-1", "serve.concurrency=16",
)  # fmt: skip


@pytest.fixture
def requests(tmp_path):
    """A function from pairs of lengths to the override that names a file of them."""

    def write(pairs, name="requests.csv"):
        path = tmp_path / name
        path.write_text("".join(f"{a},{b}\n" for a, b in [("isl", "osl"), *pairs]))
        return f"serve.lengths={path}"

    return write


def sent(pairs, count):
    """Return the pairs that a load of so many requests sends, from a file of these."""
    ordered = np.array(sorted(pairs, key=sum)).T.astype(np.int64)
    isl, osl = load.lengths_sent(
        loads({"known": len(pairs), "lengths": ordered, "requests": count}), 0, count
    )
    return list(zip(isl.tolist(), osl.tolist(), strict=True))


PAIRS = st.lists(st.tuples(st.integers(1, 90), st.integers(1, 90)), min_size=1, max_size=20)


@cases(60)
@given(PAIRS, st.integers(1, 4))
def test_each_request_of_a_file_is_sent_equally_often(pairs, times):
    assert Counter(sent(pairs, times * len(pairs))) == Counter(pairs * times)


@cases(60)
@given(PAIRS, st.integers(1, 20))
def test_of_each_part_of_a_file_one_request_is_sent(pairs, count):
    count = min(count, len(pairs))
    result, total = sorted(map(sum, sent(pairs, count))), sorted(map(sum, pairs))
    for i, tokens in enumerate(result):
        first, last = i * len(pairs) // count, -(-(i + 1) * len(pairs) // count) - 1
        assert total[first] <= tokens <= total[last]
    assert set(sent(pairs, count)) <= set(pairs)


def test_requests_of_one_length_are_as_isl_and_osl(requests):
    same = fastflow.evaluate(
        *POINT, "serve.isl=700", "serve.osl=90", "serve.length_range_ratio=0", "serve.simulate=true"
    )
    read = fastflow.evaluate(*POINT, requests([(700, 90)] * 3))
    times = ["ttft_s", "tpot_s", "ttft_p99_s", "tokens_per_s", "max_concurrent_requests"]
    assert read[times].equals(same[times])


@pytest.mark.parametrize("mode", [(), ("serve=disaggregated", "system.devices=2", "serve.prefill.devices=1")])
def test_requests_of_a_file_are_simulated(requests, mode):
    """Means are not enough for lengths that are not uniform."""
    random = np.random.default_rng(5)
    isl, osl = np.exp(random.normal([[6.3], [4.8]], [[0.8], [0.6]], (2, 300))).astype(int) + 1
    file = requests(zip(isl.tolist(), osl.tolist(), strict=True))
    both = fastflow.evaluate(*POINT, *mode, file, "serve.simulate=true,false")
    assert both["simulated"].all()
    for name in ("ttft_s", "tpot_s", "tpot_p99_s", "tokens_per_s"):
        assert both[name][0] == both[name][1]


def test_of_a_long_file_some_at_even_distances_are_sent(requests):
    file = requests([(i + 1, 1) for i in range(2 * MAX_SENT)])
    grid = fastflow.evaluate(*POINT, file, "serve.simulate=true")
    assert grid["reason"][0] == ""
    assert read_lengths(file.partition("=")[2]).isl.size == 2 * MAX_SENT


def test_what_a_file_holds_is_part_of_the_fingerprint(requests):
    result = {
        fastflow.evaluate(*POINT, requests([(100, osl)])).attrs["fastflow.fingerprint"] for osl in (10, 20)
    }
    assert len(result) == 2


def test_a_request_longer_than_the_model_allows_has_its_reason(requests):
    grid = fastflow.evaluate(*POINT, requests([(100, 10), (200_000, 10)]))
    assert grid["reason"][0].startswith("serve.lengths=")
    assert "model.positions, not 200010" in grid["reason"][0]


def test_a_request_that_no_cache_holds_says_what_it_needs(requests):
    file = requests([(100, 10), (120_000, 10)])
    grid = fastflow.evaluate(*POINT, file, "server.gpu_memory_utilization=0.3", "serve.simulate=true")
    need, left = (float(text.split()[-1]) for text in grid["reason"][0].split(" GB")[::2][:2])
    assert need > left


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "first line names the tokens of prompts and answers: one of isl and osl, input_length"),
        (b"isl,os\n1,2\n", "first line names the tokens"),
        (b"isl,isl,osl\n1,2,3\n", "names isl twice"),
        (b"isl,osl\n", "none"),
        (b"isl,osl\n5,0\n", "line 2 has 0"),
        (b"isl,osl\n-5,2\n", "column isl .* line 2 has -5"),
        (b"isl,osl\n5,2\n5.5,2\n", "line 3 has 5.5"),
        (b"isl,osl\n5\n", "column osl .* has nothing"),
        (b"isl,osl\n99999999999999999999,1\n", "line 2 has 9999"),
        (b'isl,osl\n"5,1\n', "comma-separated"),
        (b"isl,osl\n\xff,1\n", "comma-separated"),
        (b"isl,osl,timestamp\n5,1,soon\n", "column timestamp .* line 2 has soon"),
        (b"isl,osl,timestamp\n5,1,nan\n", "column timestamp .* line 2 has nan"),
        (b"isl,osl,timestamp\n5,1,1\n5,1\n", "column timestamp .* line 3 has nothing"),
        (b'{"isl": 5, "osl": 1}\n{"isl": 5, "osl"\n', "JSON object in each line; line 2 has"),
        (b'[{"isl": 5, "osl": 1}]\n', "JSON object in each line; line 1 has"),
        (b'{"isl": 5, "tokens": 1}\n', "whose line 1 has the tokens of prompts and answers: one of isl and"),
        (b'{"isl": 5, "osl": 1}\n\n{"isl": 5}\n', "column osl .* line 3 has nothing"),
        (b'{"isl": 5, "osl": true}\n', "column osl .* line 1 has True"),
        (b'{"isl": 5, "osl": 0}\n', "column osl .* line 1 has 0"),
        (b'{"isl": 5, "osl": 1, "arrived_at": null}\n', "column arrived_at .* line 1 has nothing"),
    ],
)
def test_files_that_are_refused(tmp_path, content, says):
    (tmp_path / "bad.csv").write_bytes(content)
    with pytest.raises(fastflow.InputError, match=says) as error:
        fastflow.evaluate(*POINT, f"serve.lengths={tmp_path / 'bad.csv'}")
    assert str(error.value).startswith("serve.lengths=")


def test_a_file_that_is_not_there_is_refused():
    with pytest.raises(fastflow.InputError, match=r"serve\.lengths=nowhere\.csv .* a file that can be read"):
        fastflow.evaluate(*POINT, "serve.lengths=nowhere.csv")


def test_other_columns_empty_lines_and_a_mark_of_unicode_pass(tmp_path):
    (tmp_path / "a.csv").write_bytes(b"\xef\xbb\xbfid, osl ,isl\r\nx,2,3\r\n\r\ny, 1,1\r\n")
    result = read_lengths(str(tmp_path / "a.csv"))
    assert (result.isl.tolist(), result.osl.tolist(), result.sent.size) == ([3, 1], [2, 1], 0)


TRACES = sorted(DATA.glob("trace_*"))


def test_the_names_and_units_of_published_traces_are_known():
    """The same requests as Mooncake, Azure, BurstGPT, Vidur and servers' logs write them."""
    assert len(TRACES) == 6
    first, *others = [read_lengths(str(path)) for path in TRACES]
    assert first.isl.size == 40
    assert first.sent[0] == 0.0
    assert 10 < first.sent[-1] < 40
    for other in others:
        assert other.isl.tolist() == first.isl.tolist()
        assert other.osl.tolist() == first.osl.tolist()
        assert other.sent == pytest.approx(first.sent, abs=1e-6)


def test_lines_in_any_order_are_sent_in_that_of_their_times(tmp_path):
    (tmp_path / "a.csv").write_text("isl,osl,timestamp\n5,1,12.5\n6,2,11\n7.0,3,2e1\n8,4,11\n")
    result = read_lengths(str(tmp_path / "a.csv"))
    assert result.isl.tolist() == [6, 8, 5, 7]
    assert result.sent.tolist() == [0.0, 0.0, 1.5, 9.0]


ARRIVE = ("serve.concurrency=0", f"serve.lengths={TRACES[-1]}")


def test_requests_are_sent_when_the_file_says():
    """Sequentially where they arrive far apart, with the tokens of each request."""
    file = read_lengths(str(TRACES[-1]))
    seen = fastflow.evaluate(*POINT, *ARRIVE).iloc[0]
    assert seen["simulated"]
    ends = file.sent[-1] + seen["ttft_s"] + seen["tpot_s"] * file.osl[-1]
    assert 40 / seen["requests_per_s"] == pytest.approx(ends, rel=0.02)
    assert seen["tokens_per_s"] == pytest.approx(seen["requests_per_s"] * file.osl.mean())
    few = fastflow.evaluate(*POINT, *ARRIVE, "serve.num_requests=10").iloc[0]
    assert few["tokens_per_s"] == pytest.approx(few["requests_per_s"] * file.osl[:10].mean())
    poisson = fastflow.evaluate(*POINT, *ARRIVE, "serve.request_rate=2 1/s").iloc[0]
    assert poisson["requests_per_s"] != seen["requests_per_s"]


def test_servers_that_share_nothing_are_sent_a_files_requests_in_turns():
    replicas = ("system.devices=2", "parallel.strategy=TP-1-d2")
    double, single = (fastflow.evaluate(*POINT, *ARRIVE, *more).iloc[0] for more in (replicas, ()))
    assert double["replicas"] == 2
    assert double["requests_per_s"] == pytest.approx(single["requests_per_s"], rel=0.1)
    assert double["tpot_s"] < single["tpot_s"]


def test_both_pools_of_disaggregated_servers_see_a_files_arrivals():
    pools = ("serve=disaggregated", "system.devices=2", "serve.prefill.devices=1")
    double, single = (fastflow.evaluate(*POINT, *more, *ARRIVE).iloc[0] for more in (pools, ()))
    assert double["simulated"]
    assert double["requests_per_s"] == pytest.approx(single["requests_per_s"], rel=0.1)


def test_more_requests_than_a_file_has_arrivals_of_are_refused():
    grid = fastflow.evaluate(*POINT, *ARRIVE, "serve.num_requests=41")
    assert grid["reason"][0] == (
        "serve.num_requests=41 is invalid: expected at most the 40 requests of serve.lengths, "
        "which are sent once"
        " each, or 0 for all"
    )


def test_an_open_loop_without_rate_needs_a_file_with_arrivals(requests):
    for file in ((), (requests([(5, 5)]),)):
        grid = fastflow.evaluate(*POINT, *file, "serve.concurrency=0")
        assert "serve.lengths with times of arrival" in grid["reason"][0]


@pytest.mark.parametrize("strategy", ["TP-1", "TP-1-d2"])
def test_a_closed_loop_of_all_requests_of_a_file_has_its_order(requests, strategy):
    """The last request alone has a long answer: it ends long after the others, as it would not elsewhere."""
    pairs = [(600, 20)] * 38 + [(600, 2000)] * 2
    devices = 2 if strategy == "TP-1-d2" else 1
    loop = (
        f"parallel.strategy={strategy}", f"system.devices={devices}", "serve.concurrency=4",
        "serve.simulate=true", "serve.num_requests=40",
    )  # fmt: skip
    last = fastflow.evaluate(*POINT, *loop, requests(pairs)).iloc[0]
    first = fastflow.evaluate(*POINT, *loop, requests(pairs[::-1], "first.csv")).iloc[0]
    drawn = fastflow.evaluate(*POINT, *loop[:-1], "serve.num_requests=41", requests(pairs)).iloc[0]
    assert first["requests_per_s"] > 1.05 * last["requests_per_s"]
    assert first["requests_per_s"] != drawn["requests_per_s"]
