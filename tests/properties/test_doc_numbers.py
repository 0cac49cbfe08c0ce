"""Figures in prose, tables and drawings of the pages are what commands say today; new ones are bound."""

import pytest

from tests.support.doc_answers import DocError, Runner, join, written
from tests.support.doc_numbers import BY_HAND, LONG, QUICK, Page, alike
from tests.support.documents import ROOT, pages

FREE = {
    "backtest.md": "beside real chips and measurements: `python -m fastflow.backtest`",
    "calibration.md": "of measurements",
    "cluster.md": "times and sizes of machines",
    "columns.md": "generated",
    "equations.md": "constants",
    "measurements.md": "of measurements",
    **dict.fromkeys(
        (
            "model.md",
            "model_chips.md",
            "model_kernels.md",
            "model_layers.md",
            "model_network.md",
            "model_schedule.md",
            "model_workloads.md",
        ),
        "constants with their sources, and errors on measurements",
    ),
    "speed.md": "times of a machine",
    "storage.md": "times and sizes of a machine",
    "tilings.md": "`python bench/tilings.py`",
    "validation.md": "errors on measurements: `python bench/validation_table.py`",
}
"""Pages whose figures need no command, and why."""
BOUND = [page for page in pages() if page.name not in FREE]
MARKED = [page for page in pages() if any(True for _ in Page(page).marks("numbers"))]
DRAWN = [page for page in pages() if any(True for _ in Page(page).marks("figure"))]


def name_of(page):
    return page.relative_to(ROOT).as_posix()


@pytest.fixture(scope="module")
def runner(tmp_path_factory):
    return Runner(tmp_path_factory.mktemp("numbers"))


@pytest.fixture
def page(tmp_path):
    """A function from a page's text to the page."""

    def write(text):
        path = tmp_path / "page.md"
        path.write_text(text, encoding="utf-8")
        return Page(path)

    return write


def test_marks_suit_their_blocks():
    for path in pages():
        Page(path).check_marks()


def test_figures_are_bound_to_a_command_or_said_to_be_facts():
    free = [f"{name_of(path)}:{line}: {said}" for path in BOUND for line, said in Page(path).unbound()]
    assert not free, (
        "bind these to a command by `<!-- numbers ... -->` before their paragraph, or say why they are no"
        " results by `<!-- facts: WHY -->` (docs/about.md):\n" + "\n".join(free)
    )


def test_pages_that_need_no_command_are_there():
    assert set(FREE) <= {path.name for path in pages()}


def test_quick_figures_are_what_a_page_says_today(runner):
    """One page of each kind: a table by rows, sentences."""
    path = next(path for path in MARKED if path.name == "tutorial.md")
    assert not Page(path).refresh(runner, (QUICK,))[1]


@pytest.mark.long
@pytest.mark.parametrize("path", MARKED, ids=name_of)
def test_figures_are_what_commands_say_today(path, runner):
    stale = Page(path).refresh(runner, (QUICK, LONG))[1]
    assert not stale, "`python -m tests.support.doc_numbers --write` mends these:\n" + "\n".join(
        map(str, stale)
    )


@pytest.mark.long
@pytest.mark.parametrize("path", DRAWN, ids=name_of)
def test_drawings_are_what_commands_draw_today(path, runner):
    for file, drawn in Page(path).drawings(runner, (QUICK, LONG)):
        assert alike(file.read_text(encoding="utf-8"), drawn), f"{file.name}: another drawing"


PLAIN = """
<!-- numbers
few: python -m fastflow.sweep -m tech=n12,n7 mem=hbm3 parallel.strategy=d512
takes {few[0].time_s:s} at N12
some: {100 * few[0].time_s / few[1].time_s - 100:.0f}% more than at N7
each row in few: | {row.tech} | {row.time_s:.2f} s | {row.reason[:5]} |
-->
"""
TEXT = "An iteration takes 9 h at\nN12 and some: 1% more than at N7.\n"
TABLE = "| node | time | why |\n|---|---|---|\n| n12 | 1 s | |\n"


def test_what_is_stale_is_mended_once(page, runner):
    prose = "\n".join(line for line in PLAIN.splitlines() if not line.startswith("each")) + "\n"
    text, stale = page(prose + TEXT + "\nAfter it.\n").refresh(runner)
    assert [(one.shown, one.now) for one in stale] == [("9 h", "1.81 s"), ("1", "27")]
    assert "An iteration takes 1.81 s at\nN12 and some: 27% more than at N7.\n\nAfter it.\n" in text
    again = page(text).refresh(runner)
    assert again == (text, [])
    table = "\n".join(line for line in PLAIN.splitlines() if line[:1] not in ("t", "s")) + "\n"
    text, stale = page(table + TABLE + "\nAfter it.\n").refresh(runner)
    assert text.endswith("|---|---|---|\n| n12 | 1.81 s | needs |\n| n7 | 1.42 s | needs |\n\nAfter it.\n")
    assert [one.shown for one in stale] == ["| n12 | 1 s | |", "1 rows"]
    assert page(text).refresh(runner) == (text, [])


@pytest.mark.parametrize(
    ("mark", "text", "says"),
    [
        ("takes {1:.0f} s", "It took 3 s.", "stands 0 times in its block"),
        ("takes {1:.0f} s", "It takes 3 s, and takes 4 s.", "stands 2 times in its block"),
        ("takes {1:.0f}", "It takes 3 s.", "with words behind it"),
        ("takes some time", "It takes some time.", "no expression in braces"),
        ("takes {nothing:s} or", "It takes 3 s or more.", "nothing: NameError"),
    ],
)
def test_a_mark_that_does_not_suit_says_so(page, runner, mark, text, says):
    with pytest.raises(DocError, match=says):
        page(f"<!-- numbers\n{mark}\n-->\n{text}\n").refresh(runner)


def test_figures_without_a_command_are_found(page):
    def free(text):
        return [said for _, said in page(text).unbound()]

    assert free("It takes 1.43 s, 27% more, or 1.6 times; 3x of 2.5 GB/s.") == [
        "1.43 s", "27%", "1.6 times", "3x", "2.5 GB/s",
    ]  # fmt: skip
    assert free("On 512 devices of `850 mm2`, 7B parameters, a 2 x 4 mesh, [9 s](a-9%-b.md).") == ["9 s"]
    assert free("```\n3 s\n```\n\n    4 s\n") == []
    assert free("| a | 1,024 | 7 | 0.5 |\n") == ["1,024", "0.5"]
    assert free("<!-- facts: a choice -->\nIt takes 3 s.") == []
    assert free("<!-- facts (3 s): a choice -->\nIt takes 3 s or 4 s.") == ["4 s"]
    assert free("<!-- numbers\ntakes {1:.0f} s\n-->\nIt takes 3 s or 4 s.") == ["4 s"]


def test_how_figures_are_written():
    assert [written(*one) for one in ((0.0153, "s"), (0.4, "%"), (0.4, "pct"), (1.62, "x"), (3, ".1f"))] == [
        "15.3 ms", "40%", "40", "1.62x", "3.0",
    ]  # fmt: skip
    assert (join("8.9%", "38%"), join("0.96 s", "3 s"), join("9 ms", "3 s")) == (
        "8.9 to 38%", "0.96 to 3 s", "9 ms to 3 s",
    )  # fmt: skip
    assert alike('<path d="M 1.001 2.5"/>', '<path d="M 1.0 2.51"/>')
    assert not alike('<path d="M 1.0 2.5"/>', '<path d="M 1.0 2.6"/>')
    assert not alike("<text>1.0 s</text>", "<text>2.0 s</text>")


def test_by_hand_is_run_by_all_alone():
    kinds = {mark.kind for path in MARKED for _, mark in Page(path).marks("numbers")}
    assert BY_HAND in kinds
    assert kinds <= {QUICK, LONG, BY_HAND}
