"""A search's folder: whose designs it may resume from."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fastflow.analysis.search.history import History
from fastflow.core.errors import InputError

WRITTEN = {"fastflow.version": "0.2.0", "fastflow.model": "ab", "fastflow.search": "compare=software"}


def schema_of(about):
    return pa.schema([("score", pa.float64())], metadata=about)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        (
            {"fastflow.version": "0.1.0", "fastflow.model": "cd", "fastflow.search": "compete=software"},
            r"another fastflow \(version 0\.1\.0, model cd\): .* choose a new folder$",
        ),
        ({"fastflow.search": "compare=all"}, "this one belongs to compare=all$"),
    ],
)
def test_the_history_of_another_search_or_fastflow_is_refused(changed, said, tmp_path):
    """What another fastflow wrote has its own words for the same search."""
    about = WRITTEN | changed | {"fastflow.fingerprint": "1"}
    pq.write_table(schema_of(about).empty_table(), tmp_path / "part-00000.parquet")
    with pytest.raises(InputError, match=said):
        History(str(tmp_path), schema_of(WRITTEN | {"fastflow.fingerprint": "2"}))
