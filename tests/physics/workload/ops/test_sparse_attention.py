"""Sparse attention: keys and operations against execution token by token, times against those by hand."""

from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastflow.api.functions import _single_point
from fastflow.engine.run.predict import predict_points
from fastflow.physics.timing.attention.indexer import time_scores, time_selection
from fastflow.physics.timing.attention.sparse import SparseAttentions, time_sparse, time_sparse_backward
from fastflow.physics.workload.ops.attention import AttentionSizes
from fastflow.physics.workload.ops.indexer import (
    SCORE_FLOP,
    IndexerSizes,
    index_cache_bytes,
    index_scores,
    index_selection,
)
from fastflow.physics.workload.ops.sparse_attention import Selection, attended_keys, sparse_attention
from tests.naive import sparse_attention as naive
from tests.support.checks import cases, near
from tests.support.devices import column, device_of

READ = ("read",)


@given(st.integers(1, 9), st.integers(0, 40), st.integers(0, 9), st.integers(1, 4), st.integers(0, 12))
@cases(60)
def test_a_query_attends_to_the_keys_counted_one_by_one(q_len, before, topk, ratio, last):
    kv_len = q_len + before
    ours = attended_keys(q_len, kv_len, Selection(topk, ratio, last))
    each = [sum(pair) for pair in naive.attended(q_len, kv_len, topk, ratio, last)]
    assert near(float(ours), sum(each) / q_len, rel=1e-9)


@given(
    st.integers(1, 7), st.integers(1, 3), st.integers(2, 5), st.integers(1, 3), st.integers(1, 4),
    st.integers(1, 8),
)  # fmt: skip
@cases(20)
def test_operations_are_those_of_the_execution(tokens, heads, dim, index_heads, index_dim, topk):
    rng, value_dim = np.random.default_rng(0), max(1, dim - 1)
    queries, keys = rng.standard_normal((tokens, heads, dim)), rng.standard_normal((tokens, dim))
    of_index = rng.standard_normal((tokens, index_heads, index_dim)), rng.standard_normal((tokens, index_dim))
    weights = rng.standard_normal((tokens, index_heads))
    output, scored, attending = naive.execute(queries, keys, *of_index, weights, topk, value_dim)
    sizes = AttentionSizes(1, tokens, tokens, heads, 1, dim, value_dim, 0)
    core = sparse_attention("attention", READ, sizes, Selection(topk))
    assert near(core.cost.flop * heads * value_dim * tokens, 2 * attending, rel=1e-9)
    scores = index_scores("scores", READ, IndexerSizes(1, tokens, tokens, index_heads, index_dim, topk))
    of_scores = SCORE_FLOP * index_heads * tokens * (tokens + 1) / 2
    assert near(scores.cost.flop * topk * tokens, 2 * scored + of_scores, rel=1e-9)
    if topk >= tokens:  # all keys are selected
        assert np.allclose(output, naive.dense(queries, keys, value_dim))


def test_a_selection_reads_scores_only_where_there_is_a_choice():
    def flop(tokens):
        return index_selection("selection", READ, IndexerSizes(1, tokens, tokens, 4, 8, 16)).cost.flop

    assert flop(16) == 0.0
    assert flop(64) > 0.0


def test_the_cache_of_an_indexer_has_a_scale_for_128_columns():
    assert [index_cache_bytes(dim) for dim in (64, 128, 256)] == [68, 132, 264]


def simple(made):
    return SimpleNamespace(
        bundles=made.instances[0], bandwidths=made.memories.bandwidth[0], flops=made.matrix_flops[0],
        exponentials=made.special_functions[0], issue=made.issue[0], launch=made.library.launch[0],
        latency=made.library.latency[0], pair=made.library.pair[0],
    )  # fmt: skip


def work_of(**fields):
    texts = {"latent": np.bool_, "selects": np.bool_, "decodes": np.bool_}
    return SparseAttentions(
        point=np.zeros(1, dtype=np.int64),
        **{name: column([value], texts.get(name, np.float64)) for name, value in fields.items()},
    )


@pytest.mark.parametrize("chip", ["h100_sxm", "b200_sxm"])
@given(
    tokens=st.sampled_from([1, 7, 200, 5000]), keys=st.sampled_from([1.0, 63.5, 1024.0, 2048.0]),
    heads=st.sampled_from([1, 8, 16, 32, 64, 128]), cache=st.sampled_from([1.0, 2.0]), decodes=st.booleans(),
)  # fmt: skip
@cases(30)
def test_times_are_those_by_hand(chip, tokens, keys, heads, cache, decodes):
    made = device_of(chip)
    work = work_of(
        sequences=tokens, tokens=tokens, keys=keys, most=2048, stored=4096, heads=heads, kv_heads=1,
        head_dim=576, value_dim=512, latent=True, selects=True, size=2.0, cache=cache, output=2.0,
        decodes=decodes,
    )  # fmt: skip
    by_hand = naive.attention(simple(made), tokens, tokens, keys, 2048, 4096, heads, 576, 512, cache, decodes)
    assert near(time_sparse(made, work).time[0], by_hand, rel=1e-9)


def test_the_backward_pass_takes_longer_and_more_queries_never_less():
    made = device_of("h100_sxm")

    def run(time, **changed):
        fields = {
            "sequences": 1, "tokens": 4096, "keys": 1500, "most": 2048, "stored": 4096, "heads": 64,
            "kv_heads": 1, "head_dim": 576, "value_dim": 512, "latent": True, "selects": True, "size": 2.0,
            "cache": 2.0, "output": 2.0, "decodes": False,
        }  # fmt: skip
        return time(made, work_of(**fields | changed)).time[0]

    assert 2.0 < run(time_sparse_backward) / run(time_sparse) < 4.0
    for name, more in (("tokens", 5000), ("keys", 1900), ("heads", 128), ("kv_heads", 2), ("size", 4.0)):
        assert run(time_sparse, **{name: more}) >= run(time_sparse)
    shared = run(time_sparse, latent=False, kv_heads=4, head_dim=128, value_dim=128, selects=False)
    assert shared < run(time_sparse, latent=False, kv_heads=4, head_dim=128, value_dim=128)


def test_the_indexer_takes_the_time_by_hand():
    made = device_of("h100_sxm", "fp8")
    for tokens, visible in ((1, 70_000.0), (9000, 4000.0)):
        ours = time_scores(
            made, np.zeros(1, dtype=np.int64), pairs=column([tokens * visible]), heads=column([64.0]),
            dim=column([128.0]), keys_moved=column([132.0 * 8000]), tokens=column([float(tokens)]),
        )  # fmt: skip
        hand = naive.scores(simple(made), tokens * visible, 64, 128, 132.0 * 8000, tokens)
        assert near(ours.time[0], hand, rel=1e-9)
        for shared in (False, True):
            chosen = time_selection(
                made, np.zeros(1, dtype=np.int64), tokens=column([float(tokens)]), visible=column([visible]),
                most=column([2048.0]), shared=column([shared], np.bool_),
            )  # fmt: skip
            hand = naive.selection(simple(made), tokens, visible, 2048, shared)
            assert near(chosen.time[0], hand, rel=1e-9)


def kernels_of(*overrides):
    _, run = _single_point(("model=sparse_attention", "chip=h100_sxm", *overrides))
    prediction = predict_points(run.grid.first_inputs()).prediction
    graph = prediction.graph
    return dict(zip(graph.names[graph.label].tolist(), prediction.timing.time.tolist(), strict=True))


def test_an_indexer_trains_alone():
    names = kernels_of("model.training=true")
    assert {"index queries weight gradient", "query up input gradient", "index scores gradient"} <= {*names}
    assert not {"index queries input gradient", "index key and weights input gradient"} & {*names}
    assert names["attention gradient"] > 2.0 * names["attention"]


def test_devices_divide_heads_of_attention_and_not_the_indexer():
    """More heads take longer in all but the indexer."""
    few, many = (kernels_of(f"model.heads={heads}") for heads in (32, 128))
    same = [name for name in few if few[name] == many[name]]
    assert {"index scores", "index selection", "index queries", "key norm"} <= {*same}
    assert not {"attention", "query up", "absorbed values", "projection"} & {*same}


def test_products_of_narrow_types_round_their_inputs_first():
    wide, narrow = kernels_of(), kernels_of("model.dtype=fp8_block")
    added = {*narrow} - {*wide}
    assert added == {
        "query and key down quantise", "query up quantise", "index queries quantise", "projection quantise",
    }  # fmt: skip
