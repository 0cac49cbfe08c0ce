"""Traces from a file: what is read, in which order, and what is refused."""

from itertools import chain

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastflow.core.errors import InputError
from fastflow.physics.workload import request_file
from fastflow.physics.workload.request_trace import KEY, MAX_BYTES, _parse_version, read_trace
from tests.naive.request_trace import numbered, ordered
from tests.support import traces
from tests.support.checks import cases
from tests.support.paths import DATA


def read(folder, text, name="a.jsonl", **options):
    path = folder / name
    path.write_text(text, encoding="utf-8")
    _parse_version.cache_clear()  # files of the same size are written within a tick of the clock
    return read_trace(str(path), **options)


def lists(trace):
    return [
        trace.hash_ids[a:b].tolist() or None
        for a, b in zip(trace.hash_offsets[:-1], trace.hash_offsets[1:], strict=True)
    ]


@pytest.mark.parametrize("name", ["a.csv", "a.jsonl"])
@cases(25)
@given(lines=traces.requests(), which=st.integers(0, 2), part=st.sampled_from([1, 3, 2048]))
def test_requests_are_those_of_the_lines_by_arrival(tmp_path, name, lines, which, part):
    traces.write(tmp_path / name, lines, which)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(request_file, "_PART", part)
        _parse_version.cache_clear()
        trace = read_trace(str(tmp_path / name))
    expected = ordered(lines)

    def column(key):
        return [request[key] for request in expected]

    for key in ("isl", "osl", "sent", "follower", "waits"):
        assert getattr(trace, key).tolist() == column(key), key
    assert trace.turn.tolist() == column("rank")
    assert lists(trace) == column("hashes")
    assert trace.session.tolist() == numbered(column("session"))[0]
    codes, names = numbered(column("class"))
    assert (trace.service_class.tolist(), list(trace.class_names)) == (codes, names)
    assert trace.adapter.tolist() == numbered(column("adapter"))[0]
    assert np.nan_to_num(trace.deadline, nan=-1.0).tolist() == [limit or -1.0 for limit in column("deadline")]
    assert trace.block_tokens == traces.BLOCK
    assert all(column.flags.c_contiguous for column in (trace.isl, trace.osl, trace.sent, trace.hash_ids))


def test_a_file_of_lengths_is_a_trace_too():
    trace = read_trace(str(DATA / "trace_mooncake.jsonl"))
    assert trace.follower.max() == -1
    assert trace.isl.size == 40
    assert trace.sent[0] == 0.0
    assert np.diff(trace.hash_offsets).tolist() == [1] * 40
    assert trace.block_tokens == 512


def test_mooncakes_lines_are_in_milliseconds_with_blocks_of_512(tmp_path):
    """The first lines of its published trace."""
    trace = read(
        tmp_path,
        '{"timestamp": 0, "input_length": 1100, "output_length": 500, "hash_ids": [0, 1, 2]}\n'
        '{"timestamp": 3052, "input_length": 1024, "output_length": 794, "hash_ids": [0, 28]}\n'
        '{"timestamp": 3052, "input_length": 700, "output_length": 316}\n',
    )
    assert trace.sent.tolist() == [0.0, 3.052, 3.052]
    assert lists(trace) == [[0, 1, 2], [0, 28], None]
    assert trace.block_tokens == 512
    assert trace.session.tolist() == [-1, -1, -1]
    assert trace.turn.tolist() == [0, 0, 0]


SESSION = (
    '{"session_id": "abc", "timestamp": 500, "input_length": 300, "output_length": 40}\n'
    '{"session_id": "def", "timestamp": 100, "input_length": 70, "output_length": 9}\n'
    '{"session_id": "abc", "delay": 2, "input_length": 150, "output_length": 20}\n'
    '{"session_id": "abc", "delay": 1500.5, "input_length": 10, "output_length": 5}\n'
)
"""As AIPerf writes sessions."""


def test_a_delay_is_in_milliseconds_after_the_turn_before(tmp_path):
    trace = read(tmp_path, SESSION)
    assert trace.isl.tolist() == [70, 300, 150, 10]
    assert trace.sent.tolist() == pytest.approx([0.0, 0.4, 0.002, 1.5005])
    assert trace.waits.tolist() == [False, False, True, True]
    assert trace.follower.tolist() == [-1, 2, 3, -1]
    assert trace.session.tolist() == [0, 1, 1, 1]
    assert trace.turn.tolist() == [0, 0, 1, 2]


def test_turns_of_new_tokens_get_the_turns_before_them(tmp_path):
    trace = read(tmp_path, SESSION, new_tokens=True)
    assert trace.isl.tolist() == [70, 300, 300 + 40 + 150, 300 + 40 + 150 + 20 + 10]
    assert trace.osl.tolist() == [9, 40, 20, 5]


def test_bailians_chats_are_sessions_in_seconds_with_blocks_of_16(tmp_path):
    trace = read(
        tmp_path,
        '{"chat_id": 159, "parent_chat_id": -1, "timestamp": 61.5, "input_length": 33, "output_length": 7,'
        ' "type": "text", "turn": 1, "hash_ids": [1089, 1090, 1091]}\n'
        '{"chat_id": 160, "parent_chat_id": 159, "timestamp": 62.5, "input_length": 32, "output_length": 8,'
        ' "type": "text", "turn": 2, "hash_ids": [1089, 1090]}\n'
        '{"chat_id": 161, "parent_chat_id": 160, "timestamp": 70, "input_length": 5, "output_length": 1,'
        ' "type": "text", "turn": 3, "hash_ids": []}\n'
        '{"chat_id": 162, "parent_chat_id": 158, "timestamp": 70, "input_length": 5, "output_length": 1,'
        ' "type": "text", "turn": 2, "hash_ids": [4]}\n'
        '{"chat_id": 163, "parent_chat_id": 158, "timestamp": 71, "input_length": 5, "output_length": 1,'
        ' "type": "text", "turn": 2, "hash_ids": [5]}\n',
    )
    assert trace.sent.tolist() == [0.0, 1.0, 8.5, 8.5, 9.5]
    assert trace.session.tolist() == [0, 0, 0, 1, 1]
    assert trace.turn.tolist() == [0, 1, 2, 0, 1]
    assert trace.block_tokens == 16


def test_turns_without_numbers_have_the_order_of_their_arrivals(tmp_path):
    trace = read(
        tmp_path,
        "isl,osl,arrival_time,session,think_time\n1,1,5,a,\n2,1,,a,0.5\n3,1,2,a,\n4,1,2026-01-31,b,\n",
        "a.csv",
    )
    assert trace.isl.tolist() == [3, 1, 2, 4]
    assert trace.turn.tolist() == [0, 1, 2, 0]
    assert trace.follower.tolist() == [-1, 2, -1, -1]


def test_a_time_of_arrival_counts_where_there_is_a_think_time_too(tmp_path):
    trace = read(tmp_path, "isl,osl,arrival_time,session,think_time\n1,1,5,a,9\n2,1,8,a,9\n", "a.csv")
    assert trace.sent.tolist() == [0.0, 3.0]
    assert not trace.waits.any()


def test_hashes_of_64_bits_are_equal_where_they_are(tmp_path):
    line = '{"isl": 600, "osl": 1, "timestamp": 0, "hash_ids": [%d, 5]}\n'
    trace = read(tmp_path, "".join(line % number for number in (2**64 - 1, 2**63, 2**64 - 1, 7)))
    first = trace.hash_ids[::2].tolist()
    assert first[0] == first[2]
    assert len({*first}) == 3
    assert first[3] == 7


def test_cells_may_have_line_breaks_and_hashes_in_brackets(tmp_path):
    trace = read(
        tmp_path,
        'isl,osl,arrival_time,class,hash_ids\n1100,1,0,"a\nb","[1, 2, 3]"\n\n , , , ,\n5,1,1,,\n',
        "a.csv",
    )
    assert lists(trace) == [[1, 2, 3], None]
    assert trace.class_names == ("a\nb",)


CELLS = st.sampled_from(["", "", "7", " 7", "a b", '"a"', '"a,b"', '"a\nb"', "\xe9", "\xa07", "7\x1f"])


@cases(200)
@given(
    rows=st.lists(st.lists(CELLS, min_size=1, max_size=3).map(",".join), max_size=7),
    ending=st.sampled_from(["\n", "\r\n", "\r"]),
    part=st.integers(1, 4),
)
def test_plain_lines_are_read_as_any_lines(tmp_path, rows, ending, part):
    """What splits at commas says the same as what looks for quotes, spaces and empty lines."""

    def lines_of(name):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(request_file, "_PART", part)
            if name:
                patch.setattr(request_file, name, lambda lines, width: [])
            parts = list(request_file.read_parts(str(tmp_path / "a.csv"), ["isl", "osl"]))
        return {
            "names": {tuple(part.values) for part in parts},
            "lines": list(chain.from_iterable(part.lines for part in parts)),
            **{key: list(chain.from_iterable(part.values[key] for part in parts)) for key in ("isl", "osl")},
        }

    (tmp_path / "a.csv").write_bytes(("isl,osl" + "".join(ending + row for row in rows)).encode())
    assert lines_of("") == lines_of("_plain_columns")


HEAD = "isl,osl,arrival_time,session,turn,think_time\n"
OBJECT = '{"isl": 512, "osl": 1, "arrival_time": 1, %s}\n'
GOOD = OBJECT % '"session": "a", "turn": 0'
CHAT = '{"isl": 5, "osl": 1, "timestamp": 1, "chat_id": %d, "parent_chat_id": %d}\n'


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "first line names the tokens of prompts and answers: one of isl and osl"),
        ("isl,osl,arrival_time\n", "a line for each request; this one has none"),
        ("isl,osl\n5,1\n", "a time of arrival in each line, or the time since .*; line 2 has neither"),
        ("isl,osl,time\n5,1,1\n", "line 2 has neither"),
        (HEAD + "5,1,-1,,,\n", "column arrival_time has times, .* from 0; line 2 has -1"),
        (HEAD + "5,1,soon,,,\n", "column arrival_time .*; line 2 has soon"),
        (HEAD + "5,1,nan,,,\n", "column arrival_time .*; line 2 has nan"),
        (HEAD + "5,1,1,a,0,\n5,1,,a,1,-2\n", "column think_time has times from 0, as num.*; line 3 has -2"),
        (HEAD + "5,1,1,a,0,\n5,1,,a,1,2026-01-31\n", "column think_time .*; line 3 has 2026-01-31"),
        (HEAD + "5,1,1,a,0,\n\n5,1,,a,1,\n", "or the time since the turn before; line 4 has neither"),
        (HEAD + "5,1,1,a,0,\n5,1,,,,2\n", "a session in each line without a time .*; line 3 has none"),
        (HEAD + "5,1,,a,0,3\n5,1,1,a,1,\n", "arrival for the first turn of each session; line 2 has none"),
        (HEAD + "5,1,1,a,0,\n5,1,2,a,0,\n", "each turn of a session once; line 3 has that of line 2"),
        (HEAD + "5,1,1,a,0,\n5,1,2,a,,\n", "numbers all turns of a session; line 3 has no turn"),
        (HEAD + "5,1,3,a,0,\n5,1,2,a,1,\n", "line 3 arrives before an earlier turn of its session"),
        (HEAD + "5,1,1,a,first,\n", "column turn has whole numbers from 0 to 1e.09; line 2 has first"),
        (HEAD + "5,0,1,a,0,\n", "column osl has whole numbers of tokens from 1 .*; line 2 has 0"),
        (HEAD + '5,1,1,"a\nb",0,\n5,0,1,c,0,\n', "column osl .*; line 4 has 0"),
        (GOOD + OBJECT % '"session": [1]', "column session has texts or whole numbers; line 2 has .1"),
        (GOOD + OBJECT % '"turn": true', "column turn .*; line 2 has True"),
        (GOOD + OBJECT % '"arrival_time": true', "column arrival_time .*; line 2 has True"),
        (GOOD + OBJECT % '"hash_ids": 7', "column hash_ids .*; line 2 has 7"),
        (GOOD + OBJECT % '"hash_ids": [0.5]', "column hash_ids has lists of whole numbers, as .0, 1"),
        (GOOD + OBJECT % '"hash_ids": [1, 2]', "one hash for each 512 tokens of a prompt; line 2 has more"),
        (GOOD + OBJECT % '"block_size": 0', "column block_size .*; line 2 has 0"),
        (OBJECT % '"block_size": 16' + OBJECT % '"block_size": 64', "one block_size in .*, not 16 and 64"),
        (CHAT % (1, 2) + CHAT % (2, 1), "a file whose chains of parent_chat_id end"),
        (CHAT % (1, 2) + CHAT % (2, 3) + CHAT % (3, 1), "a file whose chains of parent_chat_id end"),
        ("{" + GOOD, "a JSON object in each line; line 1 has"),
    ],
)
def test_files_that_are_refused(tmp_path, text, says):
    with pytest.raises(InputError, match=says) as error:
        read(tmp_path, text, "bad")
    assert str(error.value).startswith(f"{KEY}={tmp_path / 'bad'} is invalid: expected a file ")
    assert "\n" not in str(error.value)


def test_hashes_are_not_read_as_of_new_tokens(tmp_path):
    text = '{"isl": 5, "osl": 1, "arrival_time": 1, "hash_ids": [1]}\n'
    with pytest.raises(InputError, match="a file without hash_ids, where prompts are given as new tokens"):
        read(tmp_path, text, new_tokens=True)


def test_a_file_that_is_too_long_is_refused(tmp_path):
    with (tmp_path / "a.csv").open("wb") as file:
        file.truncate(MAX_BYTES + 1)  # takes no space on the disk
    with pytest.raises(InputError, match=f"at most {MAX_BYTES:,} bytes, not"):
        read_trace(str(tmp_path / "a.csv"))


def test_a_shorter_prompt_of_a_later_turn_is_a_cut_context(tmp_path):
    assert read(tmp_path, HEAD + "50,9,1,a,0,\n5,1,2,a,1,\n", "a.csv").isl.tolist() == [50, 5]
