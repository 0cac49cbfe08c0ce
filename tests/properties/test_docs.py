"""The documents: their links, and all that they tell a reader to type.

Every page's commands and Python blocks are run in order, in a folder of their own, with the files that the
page shows, and those of other pages that its commands name. Commands of fastflow run in this process, others
in a shell. A block of text right behind commands is what they print: its lines have to be there, in order.
`...` stands for lines that are left out. Blanks, and what each run has of its own (times of this machine, the
dated folder of a dataset), are not compared.
"""

import os
import re
import shlex
import shutil
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import fastflow
from fastflow.__main__ import COMMANDS
from fastflow.config import catalog
from fastflow.schema import (
    BACKTEST,
    BANDS,
    INPUTS,
    RESULTS,
    SEARCH,
    SENSITIVITY,
    SERVED,
    TRANSFORMER,
    VALIDATION,
)
from tests.support.documents import DOCS, MISTAKE, NOT_RUN, ROOT, blocks, pages, project_pages, prose

LINK = re.compile(r"(?<!`)!?\[[^\]]*\]\(([^)\s]+)\)")
LOADED = re.compile(
    r"""<(?:script|img|iframe|source|video|audio)[^>]*\ssrc=["'](?:https?:)?//[^>]*>"""
    r"""|<link[^>]*rel=["'](?:stylesheet|icon|preload|modulepreload|preconnect)[^>]*href=["'](?:https?:)?//[^>]*>"""
)
"""What a browser would fetch from a network."""
PATH = re.compile(r"(?<![\w/.:-])(?:fastflow|tests|bench)/[\w/.]*\w")
"""A file or a folder of this project that a text names."""
RUN = ("sh", "python")
MAX_NOT_RUN = 19
OWN = (
    (re.compile(r"outputs/\d{4}-\d\d-\d\d/\d\d-\d\d-\d\d-\d+"), "outputs/NOW"),
    (re.compile(r" in [\d.,]+ s: .*"), " in a time"),
    (re.compile(r"[─\s]+"), " "),
)
"""What differs between runs, and what it is read as."""


def name_of(page):
    return page.relative_to(ROOT).as_posix()


def anchors(page):
    """Return the anchors of a page's headings, as a code host and MyST make them."""
    found = []
    for title in re.findall(r"^#+ (.*)$", prose(page), re.MULTILINE):
        text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", title).replace("`", "")
        slug = re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-")
        found.append(slug if slug not in found else f"{slug}-{found.count(slug)}")
    return found


@pytest.mark.parametrize("page", [*pages(), *project_pages()], ids=name_of)
def test_links_lead_somewhere(page):
    for target in LINK.findall(re.sub(r"`[^`\n]*`", "", prose(page))):
        if target.startswith(("http://", "https://")):
            continue
        path, _, anchor = target.partition("#")
        there = (page.parent / path) if path else page
        if "generated" in there.parts:
            continue  # made when the site is built, which checks it
        assert there.exists(), f"{name_of(page)}: {target}"
        if anchor:
            assert anchor in anchors(there), f"{name_of(page)}: {target}"


def test_files_that_texts_name_are_there():
    texts = [*pages(), *project_pages(), *(ROOT / "conf").rglob("*.yaml")]
    texts += [path for name in ("fastflow", "tests", "bench") for path in (ROOT / name).rglob("*.py")]
    named = {(name, name_of(path)) for path in texts for name in PATH.findall(path.read_text("utf-8"))}
    assert len(named) > 50
    assert {(name, where) for name, where in named if not (ROOT / name).exists()} == set()


def test_every_page_is_in_a_table_of_contents():
    listed = {"index.md"}
    for page in pages()[1:]:
        for block in blocks(page):
            if block.language.startswith("{toctree}"):
                for line in block.text.splitlines():
                    entry = re.sub(r".*<(.*)>", r"\1", line.strip())
                    if entry and not entry.startswith(":"):
                        listed.add((page.parent / f"{entry}.md").relative_to(DOCS).as_posix())
    there = {page.relative_to(DOCS).as_posix() for page in pages()[1:]}
    assert there <= listed
    assert {name for name in listed if "*" not in name and not name.startswith("generated/")} <= there


def test_the_library_has_a_page_for_each_group():
    lines = (DOCS / "library.md").read_text(encoding="utf-8").splitlines()
    listed = {line.rpartition("/")[2] for line in lines if line.startswith("generated/library/")}
    assert set(catalog.groups()) <= listed


def test_marks_are_known():
    left_out = []
    for page in pages():
        for block in blocks(page):
            where = f"{name_of(page)}:{block.line}"
            if block.language in RUN and block.mark.startswith("not run: "):
                assert block.mark.removeprefix("not run: ") in NOT_RUN, where
                left_out.append(f"{where} {block.mark}")
            else:
                assert block.mark in ("", MISTAKE), where
    print(*left_out, sep="\n")
    assert len(left_out) <= MAX_NOT_RUN


def test_readme_holds_the_two_commands():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert len(re.findall(r"^python3 -m venv", text, re.MULTILINE)) == 2  # .ci/run reads them


def with_code():
    """Return the pages that have something to run."""
    return [page for page in pages() if any(block.language in RUN for block in blocks(page))]


def commands_of(text):
    """Yield the command lines of a block, continued ones as one."""
    for line in text.replace("\\\n", " ").splitlines():
        if line.strip() and not line.startswith("#"):
            yield line.strip()


def plain(line):
    """Return a line of output without what differs between runs."""
    for pattern, word in OWN:
        line = pattern.sub(word, line)
    return line.strip()


def assert_shown(shown, printed, where):
    """Check that lines are among those that were printed, in their order."""
    rest = iter(plain(line) for line in printed)
    for line in map(plain, shown.splitlines()):
        if line and line != "...":
            assert line in rest, f"{where}: not printed, or not in this order: {line}"


@pytest.mark.long
@pytest.mark.parametrize("page", with_code(), ids=name_of)
def test_what_a_page_says_can_be_typed(page, cli, monkeypatch, tmp_path, capsys):
    monkeypatch.setenv("COLUMNS", "110")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    namespace, variables, printed, expected = {}, {}, [], 0
    shown = {block.file: block.text for other in pages() for block in blocks(other) if block.file}

    def write(name, text):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")

    def expanded(word):
        return re.sub(r"\$(\w+)", lambda found: variables.get(found[1], found[0]), word)

    def run(line):
        """Run a command line; returns its exit code and the lines that it printed."""
        words = [expanded(word) for word in shlex.split(line, comments=True)]
        if len(words) == 1 and re.fullmatch(r"\w+=.*", words[0]):
            name, _, value = words[0].partition("=")
            variables[name] = value
            return 0, []
        if words[:2] == ["python", "-m"] and words[2].startswith("fastflow"):
            module, rest = words[2], words[3:]
        elif words[0] == "fastflow":
            module, rest = ("fastflow.__main__", words[1:])
        else:
            done = subprocess.run(["bash", "-c", line], capture_output=True, text=True)
            return done.returncode, done.stdout.splitlines() + done.stderr.splitlines()
        module = "fastflow.__main__" if module == "fastflow" else module
        code, out, err = cli(import_module(module).main, *rest)
        return code or 0, out + err

    for block in blocks(page):
        where = f"{name_of(page)}:{block.line}"
        if block.file and block.language not in RUN:
            write(block.file, block.text)
        elif block.mark.startswith("not run: "):
            printed = None
        elif block.language == "sh":
            expected, printed = (2 if block.mark == MISTAKE else 0), []
            for line in commands_of(block.text):
                for name in shown:
                    if name in line and not (tmp_path / name).exists():
                        write(name, shown[name])
                code, lines = run(line)
                assert code == expected, f"{where}: {line} ended with {code}:\n" + "\n".join(lines[-20:])
                printed += lines
        elif block.language == "python":
            exec(compile(block.text, where, "exec"), namespace)
            printed = capsys.readouterr().out.splitlines()
        elif block.language == "text" and printed:
            assert_shown(block.text, printed, where)
        if block.language not in ("sh", "python"):
            printed = []


@pytest.mark.long
def test_the_site_builds_and_works_offline(tmp_path):
    """One command, warnings as errors; nothing comes from a network, and generated pages are whole."""
    docs, site = tmp_path / "docs", tmp_path / "site"
    made = shutil.ignore_patterns("_build", "generated", "__pycache__")
    shutil.copytree(DOCS, docs, ignore=made)
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", str(docs), str(site)]
    done = subprocess.run(command, env=os.environ | {"PYTHONPATH": str(ROOT)}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr

    files = {path.relative_to(site).as_posix(): path for path in site.rglob("*.html")}
    html = {name: path.read_text(encoding="utf-8") for name, path in files.items()}
    for name, text in html.items():
        assert not LOADED.findall(text), name
    for path in (*site.rglob("*.css"), *site.rglob("*.js")):
        content = path.read_text(encoding="utf-8")
        assert not re.search(r"@import|url\([\"']?https?:|importScripts|fetch\([\"']https?:", content), path
    assert "<math" in html["equations.html"]

    for group in catalog.groups():
        page = html[f"generated/library/{group}.html"]
        titles = set(re.findall(r"<h2>(.*?)<a", page))
        assert set(catalog.choices(group)) == titles, group
    shown = re.compile(r'<span class="pre">(.*?)</span>')
    assert {column.name for column in INPUTS} <= set(shown.findall(html["generated/reference/keys.html"]))
    every = (*RESULTS, *TRANSFORMER, *SERVED, *SEARCH, *VALIDATION, *BACKTEST, *SENSITIVITY, *BANDS, *INPUTS)
    assert {column.name for column in every} <= set(shown.findall(html["columns.html"]))
    lines = html["generated/reference/command_lines.html"]
    for name in (*COMMANDS, "list", "show"):
        assert f"<h2>fastflow {name}<" in lines
    for name in fastflow.__all__:
        if name != "InputError":
            assert f'id="fastflow.{name}"' in html["python.html"], name
