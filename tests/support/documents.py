"""The documents as tests read them: pages, their blocks of code, files that they show, what is not run."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tests.support.paths import ROOT

DOCS = ROOT / "docs"
NOT_RUN = {
    "needs a cluster",
    "makes an environment",
    "changes this shell",
    "needs files of yours",
    "takes long",
    "writes 60 MB",
}
"""Why a block may be left out, after `<!-- not run: ` on the line before its fence."""
MISTAKE = "a mistake"
"""What stands before a block that ends with exit code 2, and the line that it prints."""
_MARK = re.compile(r"<!-- (.*?) -->")
_NAMED = re.compile(r"`([\w./-]+\.(?:yaml|csv|jsonl|json|py))`:$")


class Block(NamedTuple):
    """One fenced block of a page."""

    line: int  # of its fence, from 1
    language: str
    text: str
    mark: str  # of the comment right before it, "" where there is none
    file: str  # that the paragraph before it names, "" where it names none


def pages() -> list[Path]:
    """Return the pages that are written by hand, README first."""
    found = (path for path in sorted(DOCS.rglob("*.md")) if _is_source(path))
    return [ROOT / "README.md", *found]


def project_pages() -> list[Path]:
    """Return the pages of the project itself, beside the documents: their commands are not run."""
    names = ("CONTRIBUTING.md", "CHANGELOG.md", "conf/README.md", "bench/mutation.md")
    return [ROOT / name for name in names]


def _is_source(path: Path) -> bool:
    return not {"_build", "generated", "notebooks"} & set(path.relative_to(DOCS).parts)


def blocks(page: Path) -> Iterator[Block]:
    """Yield the fenced blocks of a page."""
    before = mark = ""
    lines = iter(enumerate(page.read_text(encoding="utf-8").splitlines(), start=1))
    for number, line in lines:
        if line.startswith("```"):
            named = _NAMED.search(before)
            yield Block(number, line.strip("`").strip(), _inside(lines), mark, named[1] if named else "")
            before = mark = ""
        elif found := _MARK.fullmatch(line):
            mark = found[1]
        elif line.strip():
            before, mark = line, ""


def _inside(lines: Iterator[tuple[int, str]]) -> str:
    """Return the lines of a block, up to the end of it."""
    text = []
    for _, line in lines:
        if line.startswith("```"):
            return "\n".join(text) + "\n"
        text.append(line)
    raise AssertionError("a block without an end")


def prose(page: Path) -> str:
    """Return a page without its blocks of code."""
    return re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
