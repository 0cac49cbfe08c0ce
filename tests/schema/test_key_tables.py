"""A key is explained once, in the registry: pages and YAML files do not say it in other words."""

import re

import pytest

from fastflow.config.library import library_root
from fastflow.schema import INPUTS, find_input
from fastflow.schema.__main__ import write
from fastflow.schema.key_tables import with_key_tables

ROOT = library_root()
PAGES = [path for path in sorted((ROOT / "docs").glob("*.md")) if path.name != "columns.md"]
COMMON = {
    "an", "and", "are", "as", "at", "be", "by", "each", "for", "from", "in", "is", "it", "its", "no", "none",
    "of", "on", "one", "or", "that", "the", "to", "where",
}  # fmt: skip
LEAVES = {column.name.split(".", 1)[1]: column for column in INPUTS if "." in column.name}
KEY = re.compile(r"`([a-z_]+(?:\.[a-z_0-9]+)*)`(?:, `[a-z_.]+`)*")


def words(text):
    return {word.rstrip("s") for word in re.findall(r"[a-z0-9_]{2,}", text.lower()) if word not in COMMON}


def repeats(text, meaning):
    """Say whether most words of a text are in the meaning of its key."""
    said = words(text)
    return len(said) > 2 and len(said & words(meaning)) > 0.6 * len(said)


def commented_keys(path):
    """Yield the keys of a YAML file that have a comment behind them."""
    lines = path.read_text(encoding="utf-8").splitlines()
    in_folder = path.parent != ROOT / "conf" and not lines[0].startswith("# @package _global_")
    parents = []
    for line in lines:
        if found := re.match(r"( *)(\w+):(.*)", line):
            depth = len(found[1])
            parents = [*((at, name) for at, name in parents if at < depth), (depth, found[2])]
            if comment := re.search(r"\s# (.*)", found[3]):
                yield ".".join([path.parent.name] * in_folder + [name for _, name in parents]), comment[1]


def test_tables_of_keys_are_those_of_the_registry():
    stale = [path.name for path in PAGES if with_key_tables(text := path.read_text(encoding="utf-8")) != text]
    assert not stale, "python -m fastflow.schema docs/*.md"
    shown = sum(path.read_text(encoding="utf-8").count("<!-- keys: ") for path in PAGES)
    assert shown >= 6


def test_no_other_table_explains_keys():
    """A table of values of keys may be written by hand; what the keys mean, not."""
    found = []
    for path in PAGES:
        by_hand = re.sub(r"<!-- keys: .*\n(\|.*\n)*", "", path.read_text(encoding="utf-8"))
        for row in re.findall(r"^\| (.*) \|$", by_hand, re.MULTILINE):
            first, *cells = row.split(" | ")
            key = KEY.fullmatch(first)
            column = key and (find_input(key[1]) or LEAVES.get(key[1]))
            prose = [re.sub(r"`[^`]*`", "", cell) for cell in cells]
            if column and any(repeats(cell, column.meaning) for cell in prose):
                found.append(f"{path.name}: {row}")
    assert not found, "use <!-- keys: NAMES --> and python -m fastflow.schema docs/*.md"


def test_no_comment_in_yaml_explains_a_key():
    """Comments say why a value was chosen."""
    found = [
        f"{path.relative_to(ROOT)}: {key}: {comment}"
        for path in sorted((ROOT / "conf").rglob("*.yaml"))
        for key, comment in commented_keys(path)
        if (column := find_input(key)) and repeats(comment, column.meaning)
    ]
    assert not found, "fastflow/schema/ has the meaning; fastflow show prints it"


def test_a_table_is_written_behind_its_comment(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("Keys:\n\n<!-- keys: chip.mcu.m, server.chunked_* -->\n| old |\n\nMore.\n")
    write([page])
    assert page.read_text() == (
        "Keys:\n\n<!-- keys: chip.mcu.m, server.chunked_* -->\n| key | values | meaning |\n|---|---|---|\n"
        "| `chip.mcu.m` | whole number ≥ 1 | rows of the matrix unit (dimension m) |\n"
        "| `server.chunked_prefill` | true, false | true: a prompt is cut where an iteration is full |\n"
        "\nMore.\n"
    )


def test_an_unknown_key_is_named():
    with pytest.raises(ValueError, match=r"'chip.mcu.q': no input"):
        with_key_tables("<!-- keys: chip.mcu.q -->\n")
