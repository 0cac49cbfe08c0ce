"""Measurements of real hardware: a sample that is part of the tests, and the whole files beside the project.

The whole files are not ours to ship. Without them, tests of the sample run alone; in CI (the environment
variable CI is set) a folder that stands there has to be whole.
"""

import os

import pytest

from tests.support.paths import DATA, ROOT

SAMPLE = DATA / "measured"
WHOLE = ROOT.parent / "shared" / "measurements"
FILES = (
    "allreduce_a100", "attention_a100", "attention_h100", "collectives_a100", "collectives_h100",
    "gemm_a100_40_fp32", "gemm_a100_fp16", "gemm_a100_llm", "gemm_h100_llm", "gemm_p100_fp32",
    "gemm_v100_deepbench", "gemm_v100_fp32", "linear_attention", "mla_a100", "sparse_attention",
    "mla_h100", "moe_a100", "moe_h100", "gemm_mi300x", "moe_mi300x",
    "memory_seqsel", "ops_v100_a100_fp32", "rnn_v100_fp32", "serving_h100_h200",
    "training", "transformer_megatron_2021",
)  # fmt: skip
"""Those that tests need."""


def in_ci():
    return os.environ.get("CI", "").lower() not in ("", "0", "false", "no")


def whole(name, folder=None):
    """Return the path of a whole file; skips the test where there is none, and in CI fails it for a gap."""
    path = (folder or WHOLE) / f"{name}.csv"
    if not path.is_file():
        if path.parent.is_dir() and in_ci():
            pytest.fail(f"{path.parent} lacks {path.name}: in CI the folder of measurements has to be whole")
        pytest.skip(f"no {path}: errors against all rows of it are not tested")
    return path
