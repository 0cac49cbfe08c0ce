"""Datasets of several parts: which of them a refusal names, and which kinds of table have one part alone."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fastflow.core.errors import InputError
from fastflow.engine.dataset.reader import find

GRID = {"point": pa.array([0, 1]), "tech": pa.array(["n7", "n5"])}
GAINS = {"workload": pa.array(["decode"]), "real_gain": pa.array([2.0])}
HISTORY = {"design": pa.array([0, 1]), "step": pa.array([0, 0])}


def write(folder, parts, columns, **about):
    """Write parts of a dataset, in which numbers of rows go on; returns the folder's name."""
    metadata = {f"fastflow.{key}": str(value) for key, value in ({"version": 1} | about).items()}
    for part in range(parts):
        numbers = {
            name: pa.array([2 * part, 2 * part + 1]) for name in columns if name in ("point", "design")
        }
        table = pa.table(columns | numbers).replace_schema_metadata(metadata)
        pq.write_table(table, folder / f"part-{part:05}.parquet")
    return str(folder)


@pytest.mark.parametrize("parts", [1, 2, 3])
@pytest.mark.parametrize(
    ("columns", "about", "has_parts"),
    [(GRID, {"points": 6}, True), (HISTORY, {"kind": "search"}, True), (GAINS, {}, False)],
)
def test_only_what_is_written_in_parts_has_several(tmp_path, columns, about, has_parts, parts):
    dataset = find(write(tmp_path, parts, columns, **about))
    if has_parts or parts == 1:
        assert len(dataset.read(list(columns))) == parts * len(next(iter(columns.values())))
        return
    with pytest.raises(InputError, match=f"it has {parts} parts and is written as one"):
        dataset.read(list(columns))


@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_refusal_names_the_part_that_it_is_of(tmp_path, place):
    """Parts are read in order, and the first of them says what the dataset is."""
    name = write(tmp_path, 3, GRID, points=6)
    part = tmp_path / f"part-{place:05}.parquet"
    whole = part.read_bytes()
    table = pq.read_table(part)
    about = table.schema.metadata
    tables = {
        "lacks some of its rows": (table.set_column(0, "point", pa.array([2 * place, 2 * place + 2])), about),
        "is of another one": (table, about | {b"fastflow.fingerprint": b"x"}),
        "with other columns": (table.set_column(1, "tech", pa.array([1, 2])), about),
        "fastflow did not write": (table, {}),
    }
    if place == 0:  # it is the other parts that differ from the first
        del tables["is of another one"], tables["with other columns"]
    else:  # and without metadata they differ, too
        del tables["fastflow did not write"]
    for says, (wrong, metadata) in tables.items():
        pq.write_table(wrong.replace_schema_metadata(metadata), part)
        with pytest.raises(InputError, match=says) as refused:
            find(name).read(["tech"])
        assert part.name in str(refused.value), says
    part.write_bytes(whole[:-9])
    with pytest.raises(InputError, match=f"{part.name} is damaged"):
        find(name).read(["tech"])
    part.write_bytes(whole)
    assert find(name).read(["point"])["point"].tolist() == list(range(6))
