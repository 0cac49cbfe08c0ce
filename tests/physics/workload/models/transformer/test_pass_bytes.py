"""Bytes of every pass of a layer with attention of every kind, against tensors counted by hand."""

import numpy as np
import pytest

from fastflow.physics import workload
from fastflow.physics.workload.graph import HIDDEN, ON_ACTIVATIONS, UPDATE
from fastflow.physics.workload.models.attention import CACHED
from fastflow.physics.workload.precision import OUTPUT_BYTES
from tests.naive import passes as naive
from tests.support.transformers import SMALL, points, precision

TOKENS = SMALL["model.batch"] * SMALL["model.sequence"]
# no two sizes alike, so that a tensor that stands for another one shows
PLAIN = {"heads": 4, "kv_heads": 2, "head_dim": 20, "value_dim": 12}
LATENT = {"heads": 4, "kv_heads": 4, "head_dim": 20, "value_dim": 12, "latent": 28, "rotary": 6}
KINDS = {
    "grouped": PLAIN,
    "normed": PLAIN | {"qk_norm": True},
    "learned": PLAIN | {"position": "learned"},
    "learned and normed": PLAIN | {"position": "learned", "qk_norm": True},
    "alibi": PLAIN | {"position": "alibi"},
    "window": PLAIN | {"pattern": "window dense", "window": 3},
    "chunked": PLAIN | {"pattern": "chunked dense", "window": 4},
    "masked": PLAIN | {"density": 0.5},
    "latent": LATENT,
    "latent queries": LATENT | {"query_latent": 44},
}
MORE = {
    "fused": {},
    "scores": {"fused_attention": False},
    "dropout": {"fused_attention": False, "dropout": True},
    "fused, dropout": {"dropout": True},
    "biases": {"biases": "all", "gated": False, "activation": "gelu"},
    "attention biases": {"biases": "attention"},
    "post": {"block": "post"},
    "sandwich": {"block": "sandwich", "biases": "qkv"},
    "parallel": {"block": "parallel", "dropout": True},
    "parallel norms": {"block": "parallel_norms"},
    "fp32": {"dtype": "fp32", "dropout": True, "fused_attention": False},
}


def layer_of(given):
    """The naive layer of what a model is given."""
    return naive.Layer(
        heads=naive.Heads(
            given["heads"], given["kv_heads"], given["head_dim"], given["value_dim"], given.get("rotary", 0)
        ),
        hidden=SMALL["model.hidden"],
        ffn=SMALL["model.ffn"],
        sequence=SMALL["model.sequence"],
        latent="latent" in given,
        query_latent=given.get("query_latent", 0),
        key_latent=given.get("latent", 0) + given.get("rotary", 0),
        rotates=given.get("position", "rotary") == "rotary",
        qk_norm=given.get("qk_norm", False),
        fused=given.get("fused_attention", True),
        masked="window" in given or "density" in given,
        dropout=given.get("dropout", False),
        gated=given.get("gated", True),
        biases=given.get("biases", "none"),
        block=given.get("block", "pre"),
    )


def bytes_of_passes(graph):
    """Bytes of all passes over activations of the hidden layer, by label."""
    chosen = (graph.layer.kind == HIDDEN) & (graph.kind == ON_ACTIVATIONS) & (graph.phase != UPDATE)
    elements = 1.0 * graph.rows * graph.cols * graph.launches.repeat * graph.launches.batch
    moved = elements * graph.per_element.bytes
    return {str(graph.names[graph.label[row]]): moved[row] for row in np.flatnonzero(chosen)}


@pytest.mark.parametrize("more", MORE)
@pytest.mark.parametrize("kind", KINDS)
def test_every_pass_of_a_layer_moves_the_tensors_counted_by_hand(kind, more):
    given = {"layers": 1, "dtype": "bf16"} | KINDS[kind] | MORE[more]
    size = OUTPUT_BYTES[given["dtype"]]
    numbers = precision(1)._replace(activation=np.array([float(size)]), gradient=np.array([8.0]))
    result = bytes_of_passes(workload.build_graph(points(**given), numbers))
    expected = naive.passes(layer_of(given), size)
    assert result.keys() == expected.keys()
    for label, moved in result.items():
        assert moved == pytest.approx(TOKENS * expected[label], rel=1e-12), label


@pytest.mark.parametrize("attention", [1.0, 2.0])
@pytest.mark.parametrize("given", [PLAIN, LATENT], ids=["grouped", "latent"])
def test_a_prefill_writes_the_cache_counted_by_hand(given, attention):
    """Of a served pass; of a token's rows all moves are those of one pass, or of two launches."""
    heads = naive.Heads(*(given[name] for name in naive.Heads._fields[:4]), given.get("rotary", 0))
    numbers = precision(1)._replace(
        activation=np.array([2.0]), attention=np.array([attention]), cache=np.array([1.5])
    )
    inputs = points(**given, layers=1, training=False, name="served_pass") | {
        "model.pass": np.array(["prefill"]), "model.before": np.array([5]), "model.expert_rows": np.array([0])
    }  # fmt: skip
    served = bytes_of_passes(workload.build_graph(inputs, numbers))
    expected = naive.cache_write(heads, given.get("latent"), 2.0, attention, 1.5)
    assert served[CACHED] == pytest.approx(TOKENS * expected, rel=1e-12)
    if "latent" in given:
        of_kernel = {
            "name": "latent_attention", "phase": "prefill", "q_len": SMALL["model.sequence"], "kv_len": 1,
        }  # fmt: skip
        alone = inputs | {f"model.{key}": np.array([value]) for key, value in of_kernel.items()}
        assert bytes_of_passes(workload.build_graph(alone, numbers))[CACHED] == served[CACHED]


@pytest.mark.parametrize("kind", ["latent", "latent queries"])
def test_what_latent_attention_keeps_is_counted_by_hand(kind):
    given = {"layers": 1, "dtype": "bf16"} | KINDS[kind]
    graph = workload.build_graph(points(**given), precision(1))
    kept = (
        graph.rows
        * graph.launches.batch
        * graph.launches.repeat
        * (graph.memory.saved_cols + graph.memory.saved_whole_cols)
    )
    of_layer = kept[graph.layer.kind == HIDDEN].sum()
    assert 2 * of_layer == TOKENS * naive.kept_of_latent_attention(layer_of(given), 2)
