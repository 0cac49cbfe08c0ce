"""Presets of requests: what they generate has the published statistics."""

from collections import OrderedDict

import numpy as np
import pytest

from fastflow.__main__ import COMMANDS
from fastflow.cli.request_arguments import main
from fastflow.config import catalog
from fastflow.config.request_presets import presets, read_preset
from fastflow.physics.workload.request_order import previous_turns
from fastflow.physics.workload.request_trace import read_trace
from fastflow.physics.workload.trace_statistics import reuse
from fastflow.schema.requests import GENERATED
from tests.physics.workload.test_trace_statistics import plain_reuse

TOLERANCE = {"isl_mean": 0.02, "isl_median": 0.02, "osl_mean": 0.02, "osl_median": 0.04, "reuse": 0.02}
"""Of a mean of heavy tails, and of a median of 13 tokens, which are whole."""


@pytest.fixture
def generated(tmp_path):
    """A function from keys to the trace of `fastflow requests`."""

    def generate(*keys):
        path = tmp_path / "requests.csv"
        assert main(COMMANDS["requests"], [f"output={path}", *keys]) == 0
        return read_trace(str(path))

    return generate


@pytest.mark.parametrize("name", presets())
def test_a_preset_has_the_published_statistics(name, generated, capsys):
    values, published = read_preset(name)
    trace = generated(f"preset={name}", "sessions=60000")
    found = {"reuse": reuse(trace, values.get("shared_prefix", 0))}
    for key, tokens in (("isl", trace.isl), ("osl", trace.osl)):
        found |= {f"{key}_mean": tokens.mean(), f"{key}_median": np.median(tokens)}
    assert published
    assert {key: found[key] for key in published} == {
        key: pytest.approx(value, rel=TOLERANCE[key]) for key, value in published.items()
    }
    assert capsys.readouterr().out.count("published") == len({key.partition("_")[0] for key in published})


@pytest.mark.parametrize("name", presets())
def test_a_preset_sets_keys_and_says_where_they_come_from(name):
    values = read_preset(name).values
    assert values.keys() <= {column.name for column in GENERATED}
    source = catalog.path_of(catalog.PRESETS, name).read_text().partition("source:")[2]
    said = {key.strip() for line in source.splitlines() for key in line.partition(":")[0].split(",")}
    assert values.keys() <= said


def lru_hits(trace, blocks):
    """Return the share of the prompts' blocks of 512 tokens that an LRU cache of some blocks has."""
    previous, when = previous_turns(trace), trace.sent.copy()
    for i in np.argsort(trace.turn, kind="stable"):
        when[i] += when[previous[i]] if trace.waits[i] else 0.0
    cache, hits, reads = OrderedDict(), 0, 0
    for i in np.argsort(when, kind="stable"):
        for block in range(int(trace.isl[i]) // 512):
            key = (int(trace.session[i]), block) if block else "the prefix of all"
            hits, reads = hits + (key in cache), reads + 1
            cache[key] = None
            cache.move_to_end(key)
            if len(cache) > blocks:
                cache.popitem(last=False)
    return hits / reads


def test_mooncake_has_the_hits_of_small_and_large_caches(generated):
    """Table 1 of the paper: 30% with 1,000 blocks, 50% with 50,000 and more."""
    trace = generated("preset=mooncake")
    assert trace.isl.size == pytest.approx(23_608, rel=0.02)
    assert lru_hits(trace, 1000) == pytest.approx(0.30, abs=0.01)
    assert lru_hits(trace, 50_000) == pytest.approx(0.50, abs=0.02)
    assert reuse(trace, 512) == pytest.approx(plain_reuse(trace, 512))


def test_keys_override_a_preset(generated):
    trace = generated("preset=mooncake", "turns=1", "sessions=50", "isl=100", "sigma=0", "shared_prefix=7")
    assert trace.isl.tolist() == [107] * 50


def test_a_median_stands_for_sigma(generated):
    trace = generated("isl=800", "isl_median=500", "osl_median=256", "sessions=20000", "sigma=3")
    assert np.median(trace.isl) == pytest.approx(500, rel=0.03)
    assert trace.isl.mean() == pytest.approx(800, rel=0.03)
    assert set(trace.osl) == {256}


@pytest.mark.parametrize(
    ("key", "says"),
    [
        ("preset=azure", "one of azure_code, azure_conversation, "),
        ("isl_median=600", "at most isl, 512, as of all log-normal lengths"),
        ("osl_median=-1", "at least 0"),
    ],
)
def test_a_mistake_is_one_line(key, says, tmp_path, capsys):
    assert main(COMMANDS["requests"], [f"output={tmp_path / 'a.csv'}", key]) == 2
    message = capsys.readouterr().err
    assert key.partition("=")[0] in message
    assert says in message
    assert message.count("\n") == 1
