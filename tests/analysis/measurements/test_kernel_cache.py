"""Which power runs find a compiled kernel: against an oracle that compares layouts in pairs."""

import numpy as np
import pytest

from fastflow.analysis.measurements.kernel_cache import CASES, Layout, finds_compiled, layout
from tests.naive import kernel_cache as naive


@pytest.mark.parametrize("n", [1, 128, 1000, 1536, 2048, 2560, 7168, 65536])
def test_the_kernels_of_power_runs_are_the_oracles(n):
    found = finds_compiled(np.array(CASES), np.full(len(CASES), n))
    assert found.tolist() == list(naive.found(CASES, n).values())


def test_power_runs_of_several_weights_are_those_of_each():
    m, n = np.array([2049, 2049, 17, 3841]), np.array([2048, 1024, 1024, 2048])
    assert finds_compiled(m, n).tolist() == [naive.found(CASES, b)[a] for a, b in zip(m, n, strict=True)]
    assert finds_compiled(m[:0], n[:0]).shape == (0,)


def test_power_runs_of_other_rows_are_the_next_cases():
    rows, n = np.array([100_000, 2100, 2304]), np.full(3, 2048)
    assert finds_compiled(rows, n).tolist() == finds_compiled(np.array([32768, 2304, 2304]), n).tolist()


def test_small_tiles_fill_one_wave():
    assert layout(128, 2048) == Layout(rows=16, columns=128, swapped=True, pairs=True)
    assert list(CASES) == sorted(set(CASES), reverse=True)
