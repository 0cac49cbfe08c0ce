"""Draw the sample in this folder from the whole files: python tests/data/measured/draw.py FOLDER.

Rows are copied as they are, in their order.
"""

import sys
from pathlib import Path

import numpy as np

SEED = 20261122
ROWS = {
    "gemm_a100_fp16": 150,
    "gemm_a100_llm": 60,
    "gemm_h100_llm": 60,
    "gemm_v100_deepbench": 120,
    "gemm_v100_fp32": 120,
    "gemm_p100_fp32": 120,
    "gemm_a100_40_fp32": 120,
    "rnn_v100_fp32": 60,
    "ops_v100_a100_fp32": 150,
    "collectives_a100": 60,
    "collectives_h100": 60,
    "collectives_b200": 60,
    "collectives_l40s": 60,
    "collectives_gb200": 110,
    "custom_allreduce": 120,
    "deepep": 120,
    "attention_a100": 120,
    "attention_h100": 180,
    "mla_a100": 120,
    "mla_h100": 120,
    "attention_b200": 180,
    "mla_b200": 120,
    "linear_attention": 180,
    "sparse_attention": 240,
    "moe_a100": 120,
    "moe_h100": 240,
    "gemm_mi300x": 120,
    "moe_mi300x": 60,
    "training": 80,
}
LICENSED = {"training": ("mosaicml/llm-foundry", "NVIDIA/", "pytorch/torchtitan")}
"""Of a file of several sources, those whose rows may be passed on; the source is in the second column."""


def drawn(name, lines):
    """Return the header and the rows of a file's sample; lines: of the whole file, with its header."""
    rows = [line for line in lines[1:] if line.split(",")[1].startswith(LICENSED.get(name, ""))]
    chosen = np.random.default_rng(SEED).choice(len(rows), ROWS[name], replace=False)
    return [lines[0], *(rows[i] for i in sorted(chosen.tolist()))]


def main(folder):
    for name in ROWS:
        lines = (Path(folder) / f"{name}.csv").read_text(encoding="utf-8").splitlines()
        text = "\n".join(drawn(name, lines)) + "\n"
        Path(__file__).with_name(f"{name}.csv").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1])
