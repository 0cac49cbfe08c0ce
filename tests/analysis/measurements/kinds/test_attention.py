"""Attention as measurements: where values share the storage of keys."""

import numpy as np
import pytest

from fastflow.analysis.measurements.plan import plan_file
from fastflow.config.composer import Composer
from fastflow.config.library import hydra_rules

SIZES = {"batch": 64, "q_len": 1, "kv_len": 8192, "heads": 32, "kv_heads": 8, "head_dim": 128}
KEYS_AND_VALUES = 2 * 64 * 8192 * 8 * 128 * 2  # bytes in fp16
PEAK = 3.35e12  # of an H100 SXM [B/s]
NOTE = "values lie where the keys do: main memory is too slow to read both (model.shared=true)"


@pytest.mark.parametrize(
    ("columns", "over_peak", "is_shared", "is_noted"),
    [
        ({"phase": "decode"}, 1.04, False, False),
        ({"phase": "decode"}, 1.06, True, True),
        ({"phase": "prefill", "q_len": 8192}, 2.0, False, False),
        ({"phase": "decode", "shared": "true"}, 2.0, True, False),
        ({"phase": "decode", "shared": "false"}, 2.0, False, False),
    ],
)
def test_what_reads_keys_and_values_too_fast_shares_them_and_says_so(
    tmp_path, columns, over_peak, is_shared, is_noted
):
    """A file that says itself what is shared needs no inference; no clock is as fast as 5% over the peak."""
    row = SIZES | columns | {"time_s": KEYS_AND_VALUES / (over_peak * PEAK)}
    path = tmp_path / "some.csv"
    path.write_text("\n".join(",".join(map(str, cells)) for cells in (row, row.values())) + "\n")
    with hydra_rules():
        composer = Composer.of_library(config_name="validate")
        measurements, run = plan_file(composer, (f"measurements={path}", "chip=h100_sxm"))
    ((_, inputs),) = measurements.points(run.grid, np.arange(1))
    assert inputs["model.shared"].tolist() == [is_shared]
    assert (NOTE in measurements.notes()) == is_noted
