"""What a contributor relies on: versions, make targets, hooks, and the page of the library's folders."""

import re
import tomllib

import yaml

from tests.support.paths import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def text(name):
    return (ROOT / name).read_text(encoding="utf-8")


def targets():
    """Return the commands of each make target."""
    found = {}
    for line in text("Makefile").splitlines():
        if match := re.match(r"([a-z-]+):(?!=)", line):
            commands = found[match[1]] = []
        elif line.startswith("\t"):
            commands.append(line.strip().removeprefix("@"))
    return found


def test_a_version_is_the_same_everywhere():
    released = re.findall(r"^## (\d\S*) - (\d{4}-\d\d-\d\d)$", text("CHANGELOG.md"), re.MULTILINE)
    citation = yaml.safe_load(text("CITATION.cff"))
    assert released[0] == (PROJECT["version"], str(citation["date-released"]))
    assert citation["version"] == PROJECT["version"]
    assert citation["license"] == PROJECT["license"]


def test_make_has_the_targets_that_texts_name():
    named = set()
    for page in ("CONTRIBUTING.md", ".github/PULL_REQUEST_TEMPLATE.md", "CHANGELOG.md"):
        for words in re.findall(r"(?:^|`)make((?: [a-z-]+)+)", text(page), re.MULTILINE):
            named.update(words.split())
    assert {"install", "check", "release"} <= named
    assert named <= targets().keys()


def test_hooks_are_make_targets():
    (repository,) = yaml.safe_load(text(".pre-commit-config.yaml"))["repos"]
    assert repository["repo"] == "local"
    entries = [hook["entry"].split() for hook in repository["hooks"]]
    assert all(words[:2] == ["make", "--silent"] for words in entries)
    assert {target for *_, target in entries} <= targets().keys()


def test_make_checks_what_the_pipeline_checks():
    pipeline = text(".ci/run").splitlines()
    made = targets()
    for target in ("ruff", "ruff-format", "types", "long", "bench"):
        (command,) = made[target]
        assert command in pipeline, target


def test_the_library_has_a_page_that_names_its_folders_and_files():
    folder = ROOT / "conf"
    named = set(re.findall(r"`([a-z_]+/|[a-z_]+\.yaml)`", text("conf/README.md")))
    there = {f"{path.name}/" if path.is_dir() else path.name for path in folder.iterdir()}
    assert named - {"sweeps/"} == there - {"README.md"}
