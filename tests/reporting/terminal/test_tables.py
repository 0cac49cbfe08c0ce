"""Tables on the screen: nothing of them is cut, however narrow it is."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from rich.text import Text

from fastflow.reporting.terminal.tables import listing, new_sheet, print_parts
from tests.support.checks import cases

STRATEGIES = ["TP-8-c2-e64-d256-p16x2", "RC-16-32-d1024-p128x2", "TP-1-c4-e16-d4-p16"]
COLUMNS = [
    "model",
    "strategy",
    "time_s",
    "tokens_per_s_per_device",
    "mfu",
    "footprint_B",
    "train_usd",
    "reason",
]
ROWS = [
    {
        "point": number, "model": "llama3_405b", "strategy": strategy, "time_s": 12.3 * 10.0**number,
        "tokens_per_s_per_device": 1234.5, "mfu": 0.4123, "footprint_B": 7.1e10, "train_usd": 1.2e6,
        "reason": "needs 164.2 GB of memory a device, has 85.9 GB",
    }
    for number, strategy in enumerate(STRATEGIES)
]  # fmt: skip


def drawn(sheet, width):
    out = Console(width=width, highlight=False, color_system=None)
    with out.capture() as held:
        out.print(sheet)
    return held.get().splitlines()


LONG = "training, dense, on H100-SXM5-80GB (measured): mean error 13% of 173 rows, predicted/measured 0.99"
BELOW = 13 * " "


@pytest.mark.parametrize("width", [40, 60, 80, 119, 200])
@pytest.mark.parametrize(
    "label", ["Validation   ", "Assumed      ", "Bound by     ", BELOW, "[bold red]Not feasible[/] "]
)
def test_further_lines_begin_where_the_text_behind_a_label_does(label, width, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", str(width))
    print_parts([label + LONG])
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= width
    assert (len(lines) > 1) == (width < 13 + len(LONG))
    assert lines[0][:13] == Text.from_markup(label).plain
    assert all(line[:13] == BELOW and line[13] != " " for line in lines[1:])
    assert " ".join(line[13:] for line in lines) == LONG


@pytest.mark.parametrize(
    "line", [LONG, "Dataset: /tmp/" + 60 * "x", "The fastest is as fast as the others " + LONG]
)
def test_lines_without_a_label_are_not_indented(line, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "60")
    print_parts([line])
    assert not any(further.startswith(" ") for further in capsys.readouterr().out.splitlines())


@pytest.mark.parametrize("width", [40, 60, 80, 110, 200])
def test_strategies_are_whole_at_any_width(width):
    lines = drawn(listing("Points", COLUMNS, ROWS), width)
    text = "\n".join(lines)
    assert max(map(len, lines)) <= width
    assert "…" not in text
    assert "..." not in text
    for row in ROWS:
        assert len(re.findall(rf"(?<!\S){re.escape(row['strategy'])}(?!\S)", text)) == 1
    for head in ("model", "strategy", "tokens_per_s_per_device", "mfu", "footprint_B", "train_usd", "reason"):
        assert len(re.findall(rf"(?<!\S){head}(?!\S)", text)) == 1
    blocks = [line for line in lines if line.startswith("point ")]
    assert len(blocks) == {40: 5, 60: 3, 80: 2, 110: 2, 200: 1}[width]


@given(
    st.lists(
        st.lists(st.text("ab-_ ", min_size=1, max_size=24).map(str.strip), min_size=4, max_size=4),
        min_size=1, max_size=2,
    ),
    st.integers(34, 110),
)  # fmt: skip
@cases(25)
def test_every_word_of_every_cell_is_drawn(cells, width):
    sheet = new_sheet("", [("point", True), *((f"column_{k}", k == 1) for k in range(4))])
    for number, row in enumerate(cells):
        sheet.add_row(str(number), *row)
    lines = drawn(sheet, width)
    assert all(len(line) <= width for line in lines)
    words = " ".join(lines).split()
    assert all(word in words for row in cells for cell in row for word in cell.split())
