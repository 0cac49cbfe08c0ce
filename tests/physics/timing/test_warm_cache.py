"""What the last cache holds of repeated products and of the passes before them."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fastflow
from fastflow.physics.timing.warm_cache import hit_rates, hit_rates_of_passes
from tests.naive import warm_cache as naive
from tests.support.checks import cases, near

sizes = st.floats(1.0, 2e8)
caches = st.sampled_from([0.0, 6e6, 4e7, 1e8])


@given(st.integers(0, 6), sizes, sizes, sizes, caches, st.sampled_from([1, 2, 4]), st.integers(1, 6))
@cases(200)
def test_hit_rates_are_the_oracle(copies, a, b, c, cache, parts, readers):
    rates = hit_rates(float(copies), a, b, c, cache, cache / parts, float(readers))
    expected = naive.product(copies, a, b, c, cache, cache / parts, readers)
    assert all(near(got, wanted) for got, wanted in zip(rates, expected, strict=True))
    table = [np.array([1.0 * x]) for x in (copies, a, b, c, cache, cache / parts)]
    read_by_all = hit_rates(float(copies), a, b, c, cache, cache / parts, 4.0)
    assert hit_rates_of_passes(*table)[0] == read_by_all[0]


def product(*overrides, chip="l40s"):
    return fastflow.evaluate("model=gemm", f"chip={chip}", *overrides)


def test_five_small_weights_stay_in_a_large_cache():
    """In bf16 4096 x 2048 are 16 MiB, five times 80 of 96; 4096 x 3584 are 28, four times 112."""
    size = ("model.dtype=bf16", "model.m=16", "model.k=4096", "model.copies=0,5")
    cold, warm = product(*size, "model.n=2048").time_s
    assert cold > 2.5 * warm
    cold, warm = product(*size, "model.n=3584").time_s
    assert warm < cold < 1.05 * warm


def test_nothing_comes_from_main_memory_where_all_stays():
    rows = product("model.dtype=fp8", "model.m=16", "model.k=4096", "model.n=1024", "model.copies=0,5")
    assert rows.gemm_dram_moved_B.tolist() == [16 * 4096 + 4096 * 1024 + 2 * 16 * 1024, 0.0]


def test_a_partitioned_cache_holds_what_a_partition_has_room_for():
    """Five copies of 10 MiB of weights in 50 MiB: H100's partitions have 25."""
    size = ("model.dtype=fp8", "model.m=1", "model.k=10240", "model.n=1024", "model.copies=0,5")
    cold, warm = product(*size, chip="h100_sxm").gemm_dram_moved_B
    assert warm == pytest.approx(cold, rel=0.01)
    cold, warm = product(*size, "chip.memory.l2.partitions=1", chip="h100_sxm").gemm_dram_moved_B
    assert warm == pytest.approx(0.5 * cold, rel=0.01)


def test_a_repeated_layer_stays_in_a_cache_without_partitions():
    """A cache of 33 MiB on L40S; H100's has partitions."""
    sizes = ("model=attention", "model.phase=decode", "model.q_len=1", "model.kv_len=4096", "model.batch=2")
    for chip, ratio in (("l40s", 1.5), ("h100_sxm", 1.0)):
        cold, warm = fastflow.evaluate(*sizes, f"chip={chip}", "model.copies=0,1").time_s
        assert cold >= ratio * warm
        assert chip == "l40s" or cold == warm


@pytest.mark.parametrize("phase", ["prefill", "decode"])
def test_a_layer_that_exceeds_the_cache_is_cold(phase):
    sizes = ("model=attention", f"model.phase={phase}", "model.kv_len=16384", "chip=l40s")
    queries = "model.q_len=1" if phase == "decode" else "model.q_len=16384"
    cold, warm = fastflow.evaluate(*sizes, queries, "model.batch=8", "model.copies=0,1").time_s
    assert cold == warm


def test_a_file_of_kernels_turns_through_five_copies_unless_it_says_how_many(tmp_path):
    path = tmp_path / "gemms.csv"
    row = "NVIDIA L40S,bf16,16,2048,4096,0.00001"
    path.write_text(f"device,dtype,m,n,k,time_s,copies\n{row},\n{row},5\n{row},0\n")
    unsaid, five, none = fastflow.validate(f"measurements={path}", "chip=l40s").rows.predicted_s
    assert unsaid == five < none
    path.write_text(f"device,dtype,m,n,k,time_s,trans_a,trans_b\n{row},N,N\n")
    assert fastflow.validate(f"measurements={path}", "chip=l40s").rows.predicted_s.item() == none
