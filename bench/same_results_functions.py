"""Call the functions of `import fastflow`, and write what they return into the folder of the process.

`same_results.py` runs it; by hand: `python bench/same_results_functions.py` in an empty folder.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

import fastflow

explain_sharding, probability_better = (  # by their names of before 0.2.0, where there are no others
    getattr(fastflow, new if new in fastflow.__all__ else old)
    for new, old in (("explain_sharding", "explain_layout"), ("probability_better", "chances"))
)


def main() -> None:
    """Write a dataset of each answer."""
    for name, frame in _answers():
        fields, columns = [], []
        for column in frame.columns:
            columns.append(pa.array(frame[column], from_pandas=True))
            fields.append(
                pa.field(str(column), columns[-1].type, metadata={"dtype": str(frame[column].dtype)})
            )
        attrs = {key: json.dumps(value, default=str) for key, value in frame.attrs.items()}
        Path(name).mkdir()
        table = pa.Table.from_arrays(columns, schema=pa.schema(fields, metadata=attrs))
        pq.write_table(table, Path(name) / "part.parquet")


def _answers() -> Iterator[tuple[str, pd.DataFrame]]:
    """Yield frames of Python functions, each with its name."""
    draw = np.random.default_rng(0)
    m, k, n, batch = np.rint(2 ** draw.uniform(0, 14, (4, 300))).astype(np.int64)
    for chip, dtype in (("a100", "fp16"), ("h100_sxm", "fp8"), ("v100", "fp32"), ("mi300x", "bf16")):
        taken = fastflow.predict_gemm(m, k, n, chip, dtype, np.minimum(batch, 64))
        yield f"predict_gemm-{chip}", pd.DataFrame({"m": m, "k": k, "n": n, "time": taken})
    few, short, heads = np.minimum(batch, 64), np.minimum(m, 4096), 8 * (1 + n % 4)
    for phase, queries in (("prefill", short), ("decode", np.ones_like(short))):
        for window in (0, 512):
            taken = fastflow.predict_attention(
                few, queries, queries + k, heads, 8, 128, window, "h100_sxm", phase=phase
            )
            yield f"predict_attention-{phase}-{window}", pd.DataFrame({"kv": k, "time": taken})
    for chip, dtype, ep in (("a100", "bf16", 1), ("h100_sxm", "fp8", 8)):
        taken = fastflow.predict_experts(m, 4096, 1024, 64, 6, 1, ep, 1.2, chip, dtype)
        yield f"predict_experts-{chip}", pd.DataFrame({"tokens": m, "time": taken})
    size, ranks = np.repeat(2.0 ** np.arange(10, 31), 3), np.tile([2, 4, 8], 21)
    for kind in ("all-reduce", "reduce-scatter", "all-gather", "all-to-all", "broadcast", "point-to-point"):
        systems = ("dgx_a100", "superpod_h100", "torus", "mcm")
        taken = {
            system: fastflow.predict_collective(kind, size, ranks, f"system={system}") for system in systems
        }
        yield f"predict_collective-{kind}", pd.DataFrame({"size": size, "ranks": ranks, **taken})
    layouts = {
        "lstm": ["tech=n7", "parallel.strategy=RC-4-2-d32-p2", "parallel.softmax=RC-1-64"],
        "transformer": ["model=llama3_8b", "system=dgx_h100", "parallel.strategy=TP-2-c2-d2"],
        "mixture": ["model=mixtral_8x7b", "system=dgx_h100", "parallel.strategy=TP-1-e8-d8"],
    }
    for name, asked in layouts.items():
        yield f"explain_layout-{name}", explain_sharding(*asked)
    served = ("serve=continuous", "server=vllm", "model=llama3_8b", "system=dgx_h100")
    yield "evaluate", fastflow.evaluate(tech=["n12", "n7", "n3"], mem=["hbm2", "hbm3"], chip__tdp="300 W")
    yield "evaluate-served", fastflow.evaluate(*served, serve__concurrency=[4, 64])
    yield "rank_strategies", fastflow.rank_strategies("tech=n7", "mem=hbm3", "system.devices=16")
    yield "chances", probability_better("uncertainty=on", tech=["n5", "n3"], mem=["hbm3", "hbm4"])


if __name__ == "__main__":
    main()
