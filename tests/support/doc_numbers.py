"""Figures in prose and tables of the pages, bound to the commands that they come from.

`python -m tests.support.doc_numbers` says which are stale, `--write` mends them in place, drawings too.
A comment before a paragraph, list or table, which neither Sphinx nor a code host shows, says what its figures
are:

    <!-- numbers
    grid: python -m fastflow.sweep -m tech=n12,n7 mem=hbm3 parallel.strategy=d512
    takes {grid[0].time_s:s} at N12
    each row in grid: | {row.tech} | {row.time_s:s} |
    -->

`NAME: COMMAND` runs a command, `NAME = EXPRESSION` is Python, both for the rest of the page. Any other line
is a template: words of the block, once there, and in braces Python expressions of what stands between them;
braces come first only where the block begins. `each` makes all rows of the block's table.
`<!-- numbers (long)` is left to long tests, `(by hand)` to `--all`. `<!-- figure: COMMAND -->` binds the
drawing of the block. `<!-- facts: WHY -->` says that figures of the block are no results,
`<!-- facts (20 ms; 9 us): WHY -->` that these are not.
"""

import re
import sys
import tempfile
from argparse import ArgumentParser
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain, zip_longest
from pathlib import Path
from typing import Any, NamedTuple

from tests.support.doc_answers import HELPERS, DocError, Runner, written
from tests.support.documents import DOCS, ROOT, pages

QUICK, LONG, BY_HAND = "quick", "long", "by hand"
KINDS = (QUICK, LONG, BY_HAND)
"""What runs a mark: quick tests, long ones, `--all` alone."""
_OPEN = re.compile(r"<!-- (numbers|figure|facts)(?: \(([^)]*)\))?(?:: (.*?))?(?: -->)?$")
_COMMAND = re.compile(r"(\w+): (python -m fastflow\.\w+|fastflow\.\w+)(?: (.*))?")
_ASSIGNED = re.compile(r"(\w+(?:, \w+)*) = .+")
_EACH = re.compile(r"each (\w+) in (.+?): (\|.*\|)")
_PLACE = re.compile(r"\{([^{}]+?)(?::([^:{}\]\[()\"']*))?\}")
_IMAGE = re.compile(r"!\[[^\]]*\]\((?:docs/)?([\w.]+\.svg)\)")
_UNIT = (
    r"%|x\b|/s\b|\s(?:[fpnumkMGTP]|[KMGT]i)?(?:B/s|flop/s|b/s|flop|Hz|Wh|s|B|J|W)\b"
    r"|\s(?:h|min|USD|times|points/s)\b"
)
FIGURE = re.compile(rf"(?<![\w.,/-])\d+(?:,\d{{3}})*(?:\.\d+)?(?:{_UNIT})")
"""A number with a unit."""
_CELL = re.compile(r"(?<=\| )-?(?:\d[\d,]*\.\d+|\d[\d,]*\d\d)(?= \|)")
"""A number of its own in a table, of three digits or with a point; the first column names rows."""


class Mark(NamedTuple):
    """A comment that says where figures come from."""

    line: int  # where it begins, from 1
    what: str  # numbers, figure or facts
    kind: str  # of KINDS; of facts which ones, "" for all
    lines: tuple[str, ...]


class Block(NamedTuple):
    """A paragraph, list or table with its marks; lines `first` to `last`, from 0, without the last."""

    first: int
    last: int
    marks: tuple[Mark, ...]


class Stale(NamedTuple):
    """A figure that is not what its command says today."""

    where: str
    shown: str
    now: str

    def __str__(self) -> str:
        return f"{self.where}: {self.shown!r}, now {self.now!r}"


def parse(text: str) -> list[Block]:
    """Return the blocks of a page outside of its code."""
    lines, found, marks, place = text.splitlines(), [], [], 0
    while place < len(lines):
        line = lines[place]
        if line.startswith("```"):
            place = _after(lines, place + 1, "```") + 1
            marks = []
        elif line.startswith("<!--"):
            end = place if line.endswith("-->") else _after(lines, place, "-->")
            if opened := _OPEN.match(line):
                inner = [opened[3]] if opened[3] else []
                inner += [one.strip() for one in lines[place + 1 : end] if one.strip()]
                kind = opened[2] or (
                    QUICK if opened[1] == "numbers" else LONG if opened[1] == "figure" else ""
                )
                marks.append(Mark(place + 1, opened[1], kind, tuple(inner)))
            place = end + 1
        elif line.strip():
            last = place
            while last < len(lines) and lines[last].strip() and not lines[last].startswith(("<!--", "```")):
                last += 1
            found.append(Block(place, last, tuple(marks)))
            place, marks = last, []
        else:
            place += 1
    return found


def _after(lines: list[str], place: int, end: str) -> int:
    for number in range(place, len(lines)):
        if lines[number].startswith(end) or lines[number].endswith(end):
            return number
    raise DocError(f"line {place + 1}: no {end} behind it")


class Template:
    """Words of a block with expressions in braces."""

    def __init__(self, text: str) -> None:
        """Raise DocError where there is nothing to find, or nothing to find it by."""
        self.text = text
        self.places = [(one[1], one[2] or "") for one in _PLACE.finditer(text)]
        literals = _literals(text)
        if not self.places or not literals[-1].strip():
            raise DocError(f"no expression in braces with words behind it: {text}")
        parts = [r"\s+".join(map(re.escape, re.split(r"\s+", one))) for one in literals]
        parts = [
            re.sub(r"^(\\\.|,)", r"\1(?!\\d)", one) for one in parts
        ]  # the end of a clause, no digits behind
        parts[0] = parts[0] or r"\A"
        self.pattern = re.compile(
            (r"([^\n]{1,90}?)" if text.startswith("|") else r"([^|]{1,90}?)").join(parts)
        )

    def find(self, block: str) -> re.Match[str]:
        """Return where the words stand; raises DocError unless they stand there once."""
        found = list(self.pattern.finditer(block))
        if len(found) != 1:
            raise DocError(f"stands {len(found)} times in its block, not once: {self.text}")
        return found[0]

    def values(self, names: Mapping[str, Any]) -> list[str]:
        """Return what stands in the places."""
        return [_value(expression, spec, names, self.text) for expression, spec in self.places]


def _literals(text: str) -> list[str]:
    found, end = [], 0
    for one in _PLACE.finditer(text):
        found.append(text[end : one.start()])
        end = one.end()
    return [*found, text[end:]]


def _value(expression: str, spec: str, names: Mapping[str, Any], text: str) -> str:
    try:
        return written(eval(expression, dict(names)), spec)
    except Exception as error:
        raise DocError(f"{text}: {expression}: {type(error).__name__}: {error}") from error


class Page:
    """A page, its figures, and what they are now."""

    def __init__(self, path: Path) -> None:
        """Read a page."""
        self.path = path
        self.text = path.read_text(encoding="utf-8")
        self.name = path.relative_to(ROOT).as_posix() if path.is_relative_to(ROOT) else path.name
        self.blocks = parse(self.text)

    def marks(self, what: str) -> Iterator[tuple[Block, Mark]]:
        """Yield the marks of one sort, each with its block."""
        for block in self.blocks:
            for mark in block.marks:
                if mark.what == what:
                    yield block, mark

    def block_text(self, block: Block) -> str:
        """Return the text of a block."""
        return "\n".join(self.text.splitlines()[block.first : block.last])

    def check_marks(self) -> None:
        """Raise DocError where a mark cannot be read, or does not suit its block."""
        for what in ("numbers", "figure"):
            for block, mark in self.marks(what):
                if mark.kind not in KINDS:
                    raise DocError(f"{self.name}:{mark.line}: {mark.kind!r}, not one of {', '.join(KINDS)}")
                if what == "figure" and not _IMAGE.search(self.block_text(block)):
                    raise DocError(f"{self.name}:{mark.line}: no drawing behind it")
                self._bound(block, mark)

    def _bound(self, block: Block, mark: Mark) -> Iterator[tuple[int, int]]:
        """Return where the figures of a mark stand in the text of its block."""
        text, found = self.block_text(block), []
        for line in mark.lines if mark.what == "numbers" else ():
            try:
                if _EACH.fullmatch(line):
                    found.append((len("\n".join(text.splitlines()[:2])), len(text)))
                elif not _COMMAND.fullmatch(line) and not _ASSIGNED.fullmatch(line):
                    there = Template(line).find(text)
                    found += [there.span(number + 1) for number in range(len(there.groups()))]
            except DocError as error:
                raise DocError(f"{self.name}:{mark.line}: {error}") from None
        return iter(found)

    def unbound(self) -> Iterator[tuple[int, str]]:
        """Yield figures that are bound to no command and not said to be facts: line and text."""
        for block in self.blocks:
            text = self.block_text(block)
            if text.startswith(("#", "    ")):
                continue
            facts = [mark for mark in block.marks if mark.what == "facts"]
            if any(not mark.kind for mark in facts):
                continue
            known = {one.strip() for mark in facts for one in mark.kind.split(";")}
            bound = [one for mark in block.marks for one in self._bound(block, mark)]
            plain = re.sub(r"`[^`]*`|\]\([^)]*\)", lambda one: re.sub(r"[^\n]", " ", one[0]), text)
            figures = [*FIGURE.finditer(plain), *(_CELL.finditer(plain) if text.startswith("|") else ())]
            for one in figures:
                said = " ".join(one[0].split())
                if said not in known and not any(
                    low < one.end() and one.start() < high for low, high in bound
                ):
                    yield block.first + 1 + text[: one.start()].count("\n"), said

    def refresh(self, runner: Runner, kinds: Iterable[str] = (QUICK,)) -> tuple[str, list[Stale]]:
        """Return the page with figures as they are today, and those that changed."""
        lines, stale = self.text.splitlines(), []
        names: dict[str, Any] = dict(HELPERS)
        shift = 0
        for block, mark in self.marks("numbers"):
            if mark.kind not in kinds:
                continue
            first, last = block.first + shift, block.last + shift
            where = f"{self.name}:{mark.line}"
            try:
                text = self._refreshed("\n".join(lines[first:last]), mark, names, runner, stale)
            except DocError as error:
                raise DocError(f"{where}: {error}") from None
            new = text.splitlines()
            lines[first:last] = new
            shift += len(new) - (last - first)
        return "\n".join(lines) + "\n", stale

    def _refreshed(
        self, text: str, mark: Mark, names: dict[str, Any], runner: Runner, stale: list[Stale]
    ) -> str:
        where = f"{self.name}:{mark.line}"
        for line in mark.lines:
            if command := _COMMAND.fullmatch(line):
                names[command[1]] = runner.answer(line.removeprefix(f"{command[1]}: "))
            elif each := _EACH.fullmatch(line):
                text = _with_rows(text, each, names, where, stale)
            elif _ASSIGNED.fullmatch(line):
                exec(line, names)
            else:
                template = Template(line)
                there = template.find(text)
                for number, now in reversed(list(enumerate(template.values(names), start=1))):
                    if " ".join(there[number].split()) != now:
                        stale.append(Stale(where, there[number], now))
                        text = text[: there.start(number)] + now + text[there.end(number) :]
        return text

    def drawings(self, runner: Runner, kinds: Iterable[str]) -> Iterator[tuple[Path, str]]:
        """Yield drawings as they are today: file and text."""
        for block, mark in self.marks("figure"):
            if mark.kind in kinds:
                image = _IMAGE.search(self.block_text(block))
                assert image is not None
                yield DOCS / image[1], runner.drawing(mark.lines[0], image[1])


def _with_rows(text: str, each: re.Match[str], names: dict[str, Any], where: str, stale: list[Stale]) -> str:
    """Return a table with its rows as they are today."""
    head, rule, *shown = text.splitlines()
    template, made = each[3], []
    literals, places = _literals(template), [(one[1], one[2] or "") for one in _PLACE.finditer(template)]
    for row in eval(each[2], dict(names)):
        known = names | {each[1]: row}
        parts = (_value(expression, spec, known, template) for expression, spec in places)
        made.append(
            " ".join("".join(chain.from_iterable(zip_longest(literals, parts, fillvalue=""))).split())
        )
    stale += [Stale(where, old, new) for old, new in zip(shown, made, strict=False) if old != new]
    if len(shown) != len(made):
        stale.append(Stale(where, f"{len(shown)} rows", f"{len(made)} rows"))
    return "\n".join([head, rule, *made])


def alike(one: str, other: str) -> bool:
    """Say whether two drawings show the same: the same words, numbers within the 50th of a point."""
    number = re.compile(r"-?\d+\.\d+")
    if number.sub("0", one) != number.sub("0", other):
        return False
    pairs = zip(number.findall(one), number.findall(other), strict=True)
    return all(abs(float(a) - float(b)) < 0.02 for a, b in pairs)


def main() -> int:
    """Check pages, or write what is stale; returns 1 where something is, and is not written."""
    parser = ArgumentParser(prog="python -m tests.support.doc_numbers", description=__doc__.split("\n\n")[0])
    parser.add_argument("--write", action="store_true", help="mend figures and drawings in place")
    parser.add_argument("--all", action="store_true", help="run what is marked (by hand), too: ten minutes")
    parser.add_argument("--folder", help="where datasets are kept between calls")
    parser.add_argument("pages", nargs="*", help="names such as cost.md; by default all")
    given = parser.parse_args()
    kinds = KINDS if given.all else (QUICK, LONG)
    chosen = [page for page in pages() if not given.pages or page.name in given.pages]
    count = wrong = 0
    with tempfile.TemporaryDirectory() as folder:
        runner = Runner(Path(given.folder or folder).resolve())
        for path in chosen:
            try:
                found = _mend(Page(path), runner, kinds, write=given.write)
            except DocError as error:
                print(error)
                wrong += 1
            else:
                print(*found, sep="\n", end="\n" if found else "", flush=True)
                count += len(found)
    print(
        f"{count} figures {'mended' if given.write else 'stale'}, {wrong} pages with marks that do not suit"
    )
    return int(wrong > 0 or (count > 0 and not given.write))


def _mend(page: Page, runner: Runner, kinds: Iterable[str], *, write: bool) -> list[Stale]:
    """Return what of a page is stale, and write it as it is today."""
    text, stale = page.refresh(runner, kinds)
    for file, drawn in page.drawings(runner, kinds):
        if not alike(file.read_text(encoding="utf-8"), drawn):
            stale.append(Stale(page.name, file.name, "another drawing"))
            if write:
                file.write_text(drawn, encoding="utf-8")
    if write and text != page.text:
        page.path.write_text(text, encoding="utf-8")
    return stale


if __name__ == "__main__":
    sys.exit(main())
