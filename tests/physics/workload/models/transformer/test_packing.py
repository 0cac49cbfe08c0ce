"""Sequences of several documents: attention has the pairs of each document alone."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fastflow
from fastflow.physics.workload.models.transformer.network import network
from tests.naive import packing as naive
from tests.support.checks import cases, refusal
from tests.support.transformers import points

RUN = (
    "model=llama3_8b", "chip=h100_sxm", "system.devices=8", "parallel.strategy=TP-4-d2", "model.batch=8",
    "model.sequence=8192", "model.layers=4",
)  # fmt: skip


def window_of(**changed):
    """The window of the attention of the last kind of layer, 0 for none."""
    (*_, node) = (
        node
        for layer in network(points(batch=1, heads=2, hidden=8, **changed)).layers
        for node in layer.nodes
        if node.name == "attention"
    )
    return int(np.asarray(node.attributes["window"]))


@cases(60)
@given(st.integers(4, 90), st.data())
def test_pairs_are_counted_one_by_one(sequence, data):
    document = data.draw(st.integers(1, sequence))
    window = data.draw(st.integers(0, sequence))
    pattern = "window dense" if window else "dense"
    got = window_of(sequence=sequence, document_length=document, window=window, pattern=pattern)
    reached = min(got or sequence, sequence)
    expected = naive.pairs(sequence, document, window)
    # a window is a whole number of keys
    assert abs(0.5 * reached * (2 * sequence + 1 - reached) - expected) <= sequence / 2.0 + 1.0


@cases(30)
@given(st.integers(1, 40), st.integers(1, 40))
def test_documents_in_chunks_see_no_more_than_either(document, chunk):
    sequence = 40
    sizes = {"sequence": sequence, "window": chunk, "pattern": "chunked dense"}
    both, alone = window_of(**sizes, document_length=document), window_of(**sizes)
    assert (both or sequence) <= (alone or sequence)
    assert (both or sequence) <= (window_of(sequence=sequence, document_length=document) or sequence)


def test_only_attention_has_less_work():
    whole, one = fastflow.evaluate(*RUN), fastflow.evaluate(*RUN, "model.document_length=0,8192,4096,512,64")
    for column in ("time_s", "flop", "footprint_B"):
        assert one[column][0] == one[column][1] == whole[column][0]
    assert (np.diff(one.time_s[1:]) < 0).all()
    assert (np.diff(one.flop[1:]) < 0).all()
    assert one.footprint_B.nunique() == 1
    # without attention's pairs, the products of layers and head remain
    weights = 4 * 4096 * (4096 * 2 + 2 * 1024 + 3 * 14336) + 4096 * 128256
    assert one.flop[4] == pytest.approx(6.0 * weights * 8 * 8192, rel=0.02)


def test_half_as_long_documents_have_half_the_pairs():
    run = (*RUN, "model.sequence=32768", "model.batch=2")
    flop = [fastflow.evaluate(*run, f"model.document_length={size}").flop[0] for size in (0, 16384, 8192)]
    assert (flop[0] - flop[1]) / (flop[1] - flop[2]) == pytest.approx(2.0, rel=0.01)


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (("model.document_length=9000",), "expected at most the 8192 of model.sequence"),
        (("model.document_length=64", "model.training=false"), "expected 0 with model.training=false"),
        (("model.document_length=64", "model.fused_attention=false"), "which computes all scores"),
        (("model.document_length=64", "model.density=0.5"), "expected 0 with model.density=0.5"),
        (
            ("model.document_length=64", "model.pattern=sparse dense", "model.index_heads=4",
             "model.index_dim=64", "model.index_topk=64"),
            "0, unless all layers that attend have attention, window or chunked",
        ),
    ],
)  # fmt: skip
def test_what_contradicts_is_named(overrides, message):
    assert message in refusal(*RUN, *(text.replace("=sparse dense", "='sparse dense'") for text in overrides))
