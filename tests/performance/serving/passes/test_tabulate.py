"""Tables of a server's passes: servers do not know of each other, and are tabulated once."""

import numpy as np
import pytest

import fastflow
from fastflow.performance.serving.passes import tabulate

SERVER = (
    "serve=continuous", "model=llama3_8b", "chip=h100_sxm", "system=dgx_h100", "system.devices=2",
    "parallel.strategy=TP-2", "serve.isl=512", "serve.osl=64", "serve.concurrency=4", "engine.jobs=1",
)  # fmt: skip
COLUMNS = (
    "ttft_s",
    "tpot_s",
    "tokens_per_s",
    "energy_J",
    "decode_bound_by",
    "kv_cache_capacity_B",
    "compute_flops",
)


@pytest.fixture
def tabulated(monkeypatch):
    """How many servers each call tabulates."""
    sizes, real = [], tabulate.tabulate

    def counted(*arguments):
        sizes.append(arguments[1].ranks.size)
        return real(*arguments)

    monkeypatch.setattr(tabulate, "tabulate", counted)
    monkeypatch.setattr(tabulate, "_last", tabulate.threading.local())
    return sizes


def test_servers_of_a_call_do_not_know_of_each_other():
    """More servers than are predicted together."""
    many = fastflow.evaluate(*SERVER, "model.ffn=range(1024,2304,32)")
    assert len(many) == 40 > tabulate._BATCH_SIZE
    for row in (0, 31, 32, 39):
        single = fastflow.evaluate(*SERVER, f"model.ffn={1024 + 32 * row}")
        assert [single[name].iloc[0] for name in COLUMNS] == [many[name].iloc[row] for name in COLUMNS]


def test_loads_share_the_tables_of_a_server(tabulated):
    fastflow.evaluate(*SERVER, "serve.concurrency=1")
    of_one_load = sum(tabulated)  # with what it would be without keys of SERVER
    tabulate._last.passes = None, None
    tabulated.clear()
    frame = fastflow.evaluate(*SERVER, "serve.concurrency=1,2,4", "engine.chunk=1")
    assert sum(tabulated) == of_one_load
    assert frame["tokens_per_s"].is_monotonic_increasing


@pytest.mark.parametrize(
    "key",
    ["server.all_reduce_backend=nccl,custom", "model.ffn=1024,2048", "serve.num_speculative_tokens=0,1"],
)
def test_keys_that_passes_depend_on_make_separate_tables(tabulated, key):
    frame = fastflow.evaluate(*SERVER, "serve.speculative_method=model", key)
    assert sum(tabulated) >= 2
    assert np.diff(frame["tpot_s"]) != 0.0
