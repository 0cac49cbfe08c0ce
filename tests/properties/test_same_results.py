"""The script that compares two recordings of results: what it finds, and what it leaves out."""

from __future__ import annotations

import re
import runpy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.support.paths import ROOT

SCRIPT = runpy.run_path(str(ROOT / "bench" / "same_results.py"))
COLUMNS = {"point": [0, 1, 2], "time_s": [1.0, None, -0.0], "reason": [None, "too large", "a DIGEST"]}
METADATA = {"fastflow.version": "0.1.0", "fastflow.fingerprint": "12ab", "fastflow.axes": '["tech"]'}
SCREEN = "3 points\nDataset: /a/out\n3 points in 0.23 s: 26 points/s; 6 compositions\nfastflow 0.1.0\n"

Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Return what writes a recording of a dataset and of a screen, into a folder of this name."""

    def _write(
        name: str, columns: dict[str, Any] = COLUMNS, schema: dict[str, str] = METADATA,
        unit: str = "s", screen: str = SCREEN, work: str = "/a",
    ) -> Path:  # fmt: skip
        recording = SCRIPT["Recording"](tmp_path / name, lambda text: SCRIPT["_hide"](text, Path(work)))
        table = pa.table(columns)
        fields = [
            field.with_metadata({"unit": unit if field.name == "time_s" else ""}) for field in table.schema
        ]
        recording.add_table("study/out", table.cast(pa.schema(fields, metadata=schema)))
        recording.add_text("study/screen", screen)
        recording.save()
        return tmp_path / name

    return _write


def compare(capsys: pytest.CaptureFixture[str], first: Path, second: Path, *options: str) -> tuple[int, str]:
    code = SCRIPT["main"](["compare", str(first), str(second), *options])
    return code, capsys.readouterr().out


def test_two_equal_recordings(write: Write, capsys: pytest.CaptureFixture[str]) -> None:
    code, shown = compare(capsys, write("a"), write("b"))
    assert (code, shown) == (0, "compared 1 datasets, 3 columns, 9 values, 1 texts: no difference\n")


@pytest.mark.parametrize(
    ("column", "values", "said"),
    [
        ("time_s", [1.0, None, 0.0], ["1 of 3 values differ", "row 2: -0.0 | 0.0"]),
        ("time_s", [1.0 + 2**-52, None, -0.0], ["row 0: 1.0 | 1.0000000000000002"]),
        ("time_s", [1.0, 0.0, -0.0], ["row 1: None | 0.0"]),
        ("time_s", [1.0, None], ["3 rows | 2 rows"]),
        ("reason", ["", "too large", "a DIGEST"], ["row 0: None | ''"]),
        ("point", pa.array([0, 1, 2], pa.int32()), ["type int64 | int32"]),
        ("point", [0, 2, 1], ["2 of 3 values differ", "row 1: 1 | 2", "row 2: 2 | 1"]),
    ],
)
def test_a_change_of_values(
    column: str, values: Any, said: list[str], write: Write, capsys: pytest.CaptureFixture[str]
) -> None:
    changed = {**COLUMNS, column: values}
    if len(values) == 2:
        changed = {name: list(kept)[:2] for name, kept in COLUMNS.items()}
    code, shown = compare(capsys, write("a"), write("b", changed), "--values")
    assert code == 1
    assert all(text in shown for text in said), shown
    assert shown.endswith("1 differences\n")


def test_a_renamed_column_is_the_same(write: Write, capsys: pytest.CaptureFixture[str]) -> None:
    cells = {
        "placement": ["dp-lp", None, "lp-dp"],
        "gemm_l2_stays": ["A", "B", "C"],
        "again_s": [0.0, 1.0, None],
    }
    new = {"placement": ["dp-pp", None, "pp-dp"], "gemm_l2_stationary": ["A", "B", "C"],
           "recompute_s": [0.0, 1.0, None]}  # fmt: skip
    first = write("a", COLUMNS | cells)
    code, shown = compare(capsys, first, write("b", COLUMNS | new))
    assert code == 0, shown
    assert "6 columns" in shown
    code, shown = compare(capsys, first, write("c", COLUMNS | new | {"recompute_s": [0.0, 1.5, None]}))
    assert code == 1
    assert "study/out: recompute_s: 1 of 3 values differ" in shown
    code, shown = compare(capsys, first, write("d", COLUMNS | new | {"placement": ["pp-dp", None, "pp-dp"]}))
    assert code == 1
    assert "study/out: placement: 1 of 3 values differ" in shown
    assert compare(capsys, first, write("e", COLUMNS | cells))[0] == 0


def test_renamed_keys_and_values_are_the_same(write: Write, capsys: pytest.CaptureFixture[str]) -> None:
    """In columns, cells, metadata and texts, whose tables grow wider with a longer name."""
    old = {"pins": ["kept", "none", None], "no_effect": ["parallel.zero: as without it", None, ""]}
    new = {"calibration": ["measured", "none", None],
           "no_effect": ["parallel.zero_stage: as without it", None, ""]}  # fmt: skip
    said, says = (
        {"fastflow.overrides": f'["{pair}"]'} for pair in ("pins=kept,none", "calibration=measured,none")
    )
    first = write("a", COLUMNS | old, METADATA | said, screen="pins  time\n────────\nnone   1 s\n")
    wide = "calibration  time\n───────────────\nnone          {} s\n"
    code, shown = compare(capsys, first, write("b", COLUMNS | new, METADATA | says, screen=wide.format(1)))
    assert code == 0, shown
    other = {"calibration": ["measured", "measured", None]}
    code, shown = compare(capsys, first, write("c", COLUMNS | new | other, screen=wide.format(2)))
    assert code == 1
    assert "study/out: calibration: 1 of 3 values differ\n    row 1: 'none' | 'measured'" in shown
    assert "text study/screen: a line differs\n    : 'none  1 s' | 'none  2 s'" in shown


def test_a_difference_of_several_datasets_is_printed_once(
    write: Write, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sides = []
    for name, unit in (("a", "s"), ("b", "ms")):
        recording = SCRIPT["Recording"].load(write(name, unit=unit))
        recording.datasets |= {"other/out": recording.datasets["study/out"]}
        recording.save()
        sides.append(recording.folder)
    code, shown = compare(capsys, *sides)
    assert code == 1
    assert "other/out: time_s: metadata unit (and in 1 more: study/out)\n    : 's' | 'ms'" in shown
    assert shown.endswith(": 1 differences\n")


def test_a_lost_column_and_a_changed_order(write: Write, capsys: pytest.CaptureFixture[str]) -> None:
    lost = {name: values for name, values in COLUMNS.items() if name != "reason"}
    code, shown = compare(capsys, write("a"), write("b", lost))
    assert code == 1
    assert "study/out: column reason: is not in the second recording" in shown
    code, shown = compare(capsys, write("c", lost), write("d"))
    assert code == 1
    assert "study/out: column reason: is not in the first recording" in shown
    code, shown = compare(capsys, write("e"), write("f", dict(reversed(COLUMNS.items()))))
    assert code == 1
    assert "another order" in shown


def test_a_lost_dataset_and_text(write: Write, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    SCRIPT["Recording"](tmp_path / "none").folder.mkdir()
    SCRIPT["Recording"](tmp_path / "none").save()
    code, shown = compare(capsys, write("a"), tmp_path / "none")
    assert code == 1
    assert "dataset study/out: is not in the second recording" in shown
    assert "text study/screen: is not in the second recording" in shown


def test_what_is_masked_is_no_difference(write: Write, capsys: pytest.CaptureFixture[str]) -> None:
    other = "3 points\nDataset: /b/out\n3 points in 9.1 s: 2 points/s; 6 compositions\nfastflow 0.2.1\n"
    schema = {**METADATA, "fastflow.version": "0.2.1", "fastflow.fingerprint": "99ff"}
    columns = {**COLUMNS, "reason": [None, "too large", "a 1daf7eb3222ae50b"]}
    code, shown = compare(capsys, write("a"), write("b", columns, schema, screen=other, work="/b"))
    assert code == 0, shown


def test_a_change_of_metadata_and_of_the_screen(write: Write, capsys: pytest.CaptureFixture[str]) -> None:
    changed = write(
        "b", schema={**METADATA, "fastflow.axes": "[]"}, unit="ms", screen=SCREEN.replace("6 c", "7 c")
    )
    code, shown = compare(capsys, write("a"), changed)
    assert code == 1
    assert "study/out: metadata fastflow.axes" in shown
    assert "study/out: time_s: metadata unit\n    : 's' | 'ms'" in shown
    assert "text study/screen: a line differs\n    : " in shown
    assert compare(capsys, write("c"), changed, "--values")[0] == 0


def test_digits_are_no_digest_and_predicted_times_no_time_of_a_run() -> None:
    for text in (
        "core: 0.303773683315941",
        "123456789012345",
        "served in 3.2 s of all",
        "tech=n12 in 4 layers",
    ):
        assert SCRIPT["_hide"](text, Path("/a")) == text


def test_renames(write: Write, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "renames.csv").write_text("time_s,iteration_s\n", encoding="utf-8")
    option = f"--renames={tmp_path / 'renames.csv'}"
    before, after = (SCREEN + f"1% more of {name}, time_sum\n" for name in ("time_s", "iteration_s"))
    first = write("a", screen=before)
    renamed = {"iteration_s" if name == "time_s" else name: values for name, values in COLUMNS.items()}
    second = write("b", renamed, unit="", screen=after)
    code, shown = compare(capsys, first, second, option)
    assert (code, "metadata unit" in shown, "1 differences" in shown) == (1, True, True), shown
    assert compare(capsys, first, second, option, "--values")[0] == 0
    changed = write("c", {**renamed, "iteration_s": [1.0, None, 3.0]}, screen=after)
    code, shown = compare(capsys, first, changed, option, "--values")
    assert code == 1
    assert "study/out: iteration_s: 1 of 3 values differ\n    row 2: -0.0 | 3.0" in shown


def test_hashes_alone_say_what_differs(write: Write, capsys: pytest.CaptureFixture[str]) -> None:
    first, second = write("a"), write("b", {**COLUMNS, "time_s": [2.0, None, -0.0]})
    for path in [*first.rglob("*.parquet"), *first.rglob("*.txt")]:
        path.unlink()
    code, shown = compare(capsys, first, second)
    assert code == 1
    assert "study/out: time_s: values differ, which a recording has no more" in shown


def test_the_list_has_every_study_and_model() -> None:
    words = set(re.split(r"[ ,=]", " ".join(SCRIPT["commands"]().values())))
    studies = {path.stem for path in (ROOT / "sweeps").glob("*.yaml")}
    models = {path.stem for path in (ROOT / "conf" / "model").glob("*.yaml")}
    assert studies <= words
    assert models - words == {"lstm_lm", "transformer", "served_pass"}  # the default, and two without sizes
