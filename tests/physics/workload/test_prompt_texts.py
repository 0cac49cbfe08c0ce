"""Prompts as a forest: they share the tokens that they begin with, and no others."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastflow.physics.workload import prompt_texts as module
from fastflow.physics.workload.prompt_texts import prompt_texts
from fastflow.physics.workload.request_trace import _parse_version, read_trace
from tests.naive.request_trace import common, ordered, prompts_and_answers
from tests.support import traces
from tests.support.checks import cases


def path_to(texts, node):
    """Return the nodes from a root to this one."""
    path = []
    while node >= 0:
        path.append(node)
        node = texts.parent[node]
    return path[::-1]


def shared(texts, one, other):
    """Return the tokens of the nodes that are above both, or are both."""
    nodes = [a for a, b in zip(path_to(texts, one), path_to(texts, other), strict=False) if a == b]
    return int(texts.tokens[nodes].sum())


def check(texts, trace):
    """The invariants of every forest."""
    node = np.arange(texts.parent.size)
    assert (texts.parent < node).all()
    roots = texts.roots[texts.roots >= 0]
    assert np.array_equal(np.flatnonzero(texts.tokens == 0), np.sort(roots))
    assert (texts.parent[roots] < 0).all()
    assert (texts.tokens <= module.NODE_TOKENS).all()
    above = texts.before[texts.parent] + texts.tokens[texts.parent]
    assert np.array_equal(texts.before, np.where(texts.parent < 0, 0, above))
    assert np.array_equal(trace.isl, texts.before[texts.text] + texts.tokens[texts.text])
    assert np.array_equal(trace.isl + trace.osl, texts.before[texts.answer] + texts.tokens[texts.answer])


@cases(25)
@given(
    lines=traces.requests(), prefix=st.sampled_from([0, 3, 20]), longest=st.sampled_from([3, 7, 2048]),
    roots=st.sampled_from([(False, False), (True, False), (True, True)]),
)  # fmt: skip
def test_prompts_share_exactly_the_tokens_that_they_begin_with(tmp_path, lines, prefix, longest, roots):
    traces.write(tmp_path / "a.jsonl", lines, 0)
    _parse_version.cache_clear()
    trace = read_trace(str(tmp_path / "a.jsonl"))
    prompts, answers = prompts_and_answers(ordered(lines), traces.BLOCK, prefix, roots[0])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "NODE_TOKENS", longest)
        texts = prompt_texts(trace, prefix, *roots)
        check(texts, trace)
    used = set(trace.adapter.tolist()) if roots[0] else set()
    assert (texts.roots >= 0).sum() == len(used if roots[1] else used - {-1})
    for i, j in combinations(range(len(prompts)), 2):
        assert shared(texts, texts.text[i], texts.text[j]) == common(prompts[i], prompts[j])
        whole = prompts[i] + answers[i]  # of the turn before, perhaps
        assert shared(texts, texts.answer[i], texts.text[j]) == common(whole, prompts[j])


def read(folder, text, name="a.jsonl"):
    (folder / name).write_text(text)
    _parse_version.cache_clear()
    return read_trace(str(folder / name))


def test_equal_hashes_are_one_text_and_the_last_block_has_what_is_left(tmp_path):
    trace = read(
        tmp_path,
        '{"timestamp": 0, "input_length": 1100, "output_length": 5, "hash_ids": [0, 1, 2]}\n'
        '{"timestamp": 1, "input_length": 1100, "output_length": 6, "hash_ids": [0, 1, 2]}\n'
        '{"timestamp": 2, "input_length": 1000, "output_length": 7, "hash_ids": [0, 3]}\n'
        '{"timestamp": 3, "input_length": 512, "output_length": 8, "hash_ids": [1]}\n',
    )
    texts = prompt_texts(trace)
    check(texts, trace)
    assert texts.text.tolist() == [2, 2, 5, 7]
    assert texts.answer.tolist() == [3, 4, 6, 8]
    assert texts.parent.tolist() == [-1, 0, 1, 2, 2, 0, 5, -1, 7]
    assert texts.tokens.tolist() == [512, 512, 76, 5, 6, 488, 7, 512, 8]


def test_prompts_of_different_length_with_one_hash_share_no_part_of_this_block(tmp_path):
    """A hash is of a whole block: of two last blocks that have one hash, the tokens differ in number."""
    line = '{"timestamp": 0, "input_length": %d, "output_length": 1, "hash_ids": [46, 47]}\n'
    texts = prompt_texts(read(tmp_path, line % 655 + line % 672))
    assert shared(texts, *texts.text) == 512


def test_tokens_without_a_hash_are_of_one_prompt(tmp_path):
    """Servers give hashes to whole blocks alone."""
    line = '{"timestamp": 0, "input_length": 600, "output_length": 1, "hash_ids": [0]}\n'
    texts = prompt_texts(read(tmp_path, line * 2))
    assert texts.tokens.tolist() == [512, 88, 1, 88, 1]
    assert texts.parent.tolist() == [-1, 0, 1, 0, 3]


HEAD = "isl,osl,arrival_time,session\n"


def test_a_turn_goes_on_from_the_answer_before_unless_its_context_was_cut(tmp_path):
    trace = read(tmp_path, HEAD + "100,20,0,a\n150,30,1,a\n180,5,2,a\n186,5,3,a\n", "a.csv")
    texts = prompt_texts(trace)
    check(texts, trace)
    assert texts.parent.tolist() == [-1, 0, 1, 2, -1, 4, 5, 6]
    assert texts.tokens.tolist() == [100, 20, 30, 30, 180, 5, 1, 5]


def test_new_prompts_begin_with_the_shared_prefix_where_they_are_longer(tmp_path):
    trace = read(tmp_path, HEAD + "64,1,0,\n65,1,1,\n100,1,2,a\n120,1,3,a\n", "a.csv")
    texts = prompt_texts(trace, shared_prefix=64)
    check(texts, trace)
    assert texts.tokens.tolist() == [64, 1, 64, 1, 1, 36, 1, 19, 1]
    assert texts.parent.tolist() == [-1, 0, -1, 2, 3, 2, 5, 6, 7]


def test_long_texts_are_chains_of_nodes(tmp_path):
    trace = read(tmp_path, HEAD + "5000,4096,0,a\n9097,1,1,a\n", "a.csv")
    texts = prompt_texts(trace)
    check(texts, trace)
    assert texts.tokens.tolist() == [2048, 2048, 904, 2048, 2048, 1, 1]
    assert texts.parent.tolist() == [-1, 0, 1, 2, 3, 4, 5]
    assert (texts.text.tolist(), texts.answer.tolist()) == ([2, 5], [4, 6])


def test_many_blocks_fill_the_table_more_than_once(tmp_path):
    """Which begins with 1,024 entries."""
    line = '{"timestamp": 0, "input_length": 4096, "output_length": 1, "block_size": 2, "hash_ids": %s}\n'
    hashes = [[*range(1500), *range(start, start + 548)] for start in (5000, 6000, 5000)]
    trace = read(tmp_path, "".join(line % chain for chain in hashes))
    texts = prompt_texts(trace)
    check(texts, trace)
    assert texts.parent.size == 1500 + 2 * 548 + 3
    assert texts.text[0] == texts.text[2]
    assert shared(texts, texts.text[0], texts.text[1]) == 3000
