"""Sparse, compressed and native sparse attention in a transformer: tensors, caches, training and serving."""

import numpy as np
import pytest

import fastflow
from fastflow.physics.workload.models.transformer.dimensions import sizes_of
from fastflow.physics.workload.models.transformer.layer_kind import LayerKind
from fastflow.physics.workload.models.transformer.layer_pattern import parse
from fastflow.physics.workload.models.transformer.mixer import MIXERS
from fastflow.physics.workload.models.transformer.parameters import parameters
from tests.naive import sparse_attention as naive
from tests.support.transformers import overrides, points, precision

LATENT = {
    "pattern": "sparse dense", "latent": 48, "rotary": 16, "query_latent": 40, "head_dim": 24,
    "value_dim": 24, "index_heads": 4, "index_dim": 32, "index_topk": 16,
}  # fmt: skip
HEADS = {
    "pattern": "sparse dense", "kv_heads": 2, "head_dim": 16, "index_heads": 2, "index_dim": 32,
    "index_topk": 16, "index_block": 4,
}  # fmt: skip
COMPRESSED = {
    "head_dim": 32, "rotary": 8, "query_latent": 40, "window": 8, "output_groups": 2, "output_latent": 24,
    "index_heads": 4, "index_dim": 32,
}  # fmt: skip
NATIVE = {
    "pattern": "native_sparse dense", "kv_heads": 2, "head_dim": 16, "window": 8, "compression": 2,
    "index_block": 4, "index_topk": 16,
}  # fmt: skip
CASES = {
    "latent": (naive.of_sparse, LATENT),
    "heads": (naive.of_sparse, HEADS),
    "window": (naive.of_compressed, COMPRESSED | {"pattern": "compressed dense"}),
    "heavily compressed": (
        naive.of_compressed, COMPRESSED | {"pattern": "compressed dense", "compression": 16}
    ),
    "indexed": (
        naive.of_compressed,
        COMPRESSED | {"pattern": "compressed dense", "compression": 4, "index_topk": 6},
    ),
    "native": (naive.of_native_sparse, NATIVE),
}  # fmt: skip
OF_A_LAYER = 2 * 64 + 3 * 64 * 96  # norms, and a gated feed-forward part
AROUND = 2 * 50 * 64 + 64  # embedding, head and its norm


@pytest.mark.parametrize("case", CASES)
def test_parameters_are_those_of_every_tensor(case):
    shapes, model = CASES[case]
    total, active = parameters(points(**model))
    layer = sum(np.prod(shape) for shape in shapes({"hidden": 64, "heads": 4} | model).values())
    assert total[0] == active[0] == AROUND + 2 * (layer + OF_A_LAYER)


def cache_of(model, tensor=1, size=2.0):
    (kind, *_) = parse(model["pattern"])
    inputs = points(**model)
    numbers = precision(1)._replace(cache=np.array([size]), activation=np.array([2.0]))
    mixer = MIXERS[kind.mixers[0]]
    found = mixer.cache(inputs, sizes_of(inputs, kind), kind, numbers, np.array([tensor]))
    return [float(np.ravel(part)[0]) for part in found]


def test_what_a_request_keeps_is_counted_by_hand():
    """Of a token, of one in the window, and whatever the tokens; an index key is fp8 with a scale."""
    assert cache_of(LATENT) == [2 * (48 + 16) + 36, 0, 0]
    assert cache_of(LATENT, tensor=4) == cache_of(LATENT)
    assert cache_of(HEADS) == [2 * 2 * 2 * 16 + 36, 0, 0]
    assert cache_of(HEADS, tensor=2) == [2 * 2 * 16 + 36, 0, 0]
    window, heavy, indexed = (CASES[name][1] for name in ("window", "heavily compressed", "indexed"))
    assert cache_of(window) == [0, 64, 0]
    waiting = 2 * 16 * 4 * 32 / 8  # gated columns of up to 16 tokens in fp32, over the window's 8
    assert cache_of(heavy) == [64 / 16, 64 + waiting, 0]
    waiting = 2 * 2 * 2 * 4 * 4 * (32 + 32) / 8  # of two windows of 4 tokens, in two parts
    assert cache_of(indexed) == [64 / 4 + 36 / 4, 64 + waiting, 0]
    of_token = 2 * 2 * 2 * 16
    assert cache_of(NATIVE) == [of_token * 1.5, 2 * of_token, 0]


LARGE = {
    "layers": 4, "hidden": 2048, "heads": 32, "ffn": 4096, "vocabulary": 32000, "sequence": 16384,
    "batch": 16,
}  # fmt: skip
SPARSE = {
    "latent": 512, "rotary": 64, "query_latent": 768, "head_dim": 128, "index_heads": 16, "index_dim": 128,
    "index_topk": 1024,
}  # fmt: skip
MODELS = {
    "sparse dense": SPARSE,
    "compressed dense": {
        "head_dim": 512, "query_latent": 512, "rotary": 64, "window": 128, "compression": 128,
        "output_groups": 8, "output_latent": 256,
    },
    "native_sparse dense": {
        "kv_heads": 4, "head_dim": 128, "window": 512, "compression": 16, "index_block": 64,
        "index_topk": 1024,
    },
}  # fmt: skip


@pytest.mark.parametrize("pattern", MODELS)
def test_training_is_divided_between_devices(pattern):
    """Two devices take less than one, and more than half: the indexer and latent keys are not divided."""
    model = overrides({"pattern": pattern, **LARGE, **MODELS[pattern]})
    one, two = (
        fastflow.evaluate(
            "model=transformer", "system=dgx_h100", f"system.devices={devices}", *model,
            f"parallel.strategy=TP-{devices}-d1", "parallel.microbatch=1",
        )
        for devices in (1, 2)
    )  # fmt: skip
    assert 0.45 < two.time_s[0] / one.time_s[0] < 0.9
    assert two.flop[0] == one.flop[0]


@pytest.mark.parametrize("pattern", MODELS)
def test_decoding_slows_less_with_long_prompts_than_attention_to_all_keys(pattern):
    def slowdown(words, extra):
        model = overrides({"pattern": words, **LARGE, "positions": 0, **extra})
        first, last = (
            fastflow.evaluate(
                "model=transformer", "system=dgx_h100", "serve=decode", "server=vllm", "serve.batch=64",
                f"serve.isl={isl}", "parallel.strategy=TP-8", *model,
            ).tpot_s[0]
            for isl in (1000, 64000)
        )  # fmt: skip
        return last - first

    heads = {"kv_heads": 4, "head_dim": 128}
    dense = slowdown("dense", heads if pattern.startswith("native") else {
        name: SPARSE[name] for name in ("latent", "rotary", "query_latent", "head_dim")
    })  # fmt: skip
    assert 0.0 < slowdown(pattern, MODELS[pattern]) < dense


def test_an_indexer_needs_its_sizes():
    df = fastflow.evaluate(
        "model=transformer", *overrides({"pattern": "sparse dense", **LARGE, **SPARSE, "index_dim": 0})
    )
    assert df.reason[0].startswith("model.index_dim=0 is invalid: expected at least 1")


def test_a_kind_has_its_own_compression():
    kinds = parse("compressed experts(compression=4 index_topk=512), compressed experts(compression=128)")
    assert kinds[0] == LayerKind(("compressed",), "experts", (), (("compression", 4), ("index_topk", 512)))
    assert dict(kinds[1].sizes) == {"compression": 128}
