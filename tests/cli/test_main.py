"""`fastflow`: all commands under one name, what the library has, and completion."""

import os
import runpy
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from fastflow.__main__ import COMMANDS, main
from fastflow.cli.command import Command
from fastflow.config import catalog
from fastflow.config.cards import figures
from fastflow.config.composer import Composer
from fastflow.config.library import hydra_rules
from fastflow.core.version import version

SCRIPT = Path(sys.executable).with_name("fastflow")
PUBLIC = ("tech", "mem", "chip")
"""Groups of figures, each of which has a source."""


@pytest.fixture
def run(capsys, monkeypatch, tmp_path):
    """A function from arguments to the exit code and what is printed, in a folder of its own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", list(sys.argv))  # which a command sets
    monkeypatch.setenv("COLUMNS", "120")

    def call(*arguments):
        try:
            code = main(arguments)
        except SystemExit as stop:
            code = stop.code
        out, err = capsys.readouterr()
        return code, out, err

    return call


@pytest.mark.parametrize("typed", [(), ("--help",), ("-h",), ("help",)])
def test_help_names_every_command(run, typed):
    code, out, _ = run(*typed)
    assert code == 0
    assert all(f"\n  {name} " in out for name in (*COMMANDS, "list", "show", "completion"))


def test_completion_explains_itself(run):
    code, out, err = run("completion", "--help")
    assert (code, err) == (0, "")
    assert 'eval "$(fastflow completion bash)"' in out


@pytest.mark.parametrize("typed", [("--version",), ("sweep", "--version"), ("report", "--version")])
def test_the_version_is_fastflows(run, typed):
    assert run(*typed)[:2] == (0, f"fastflow {version()}\n")


def test_a_command_does_what_its_module_does(run):
    code, out, err = run("sweep", "-m", "tech=n7,n5", "mem=hbm3", "output=both")
    assert (code, "2 points: 2 tech" in err, "2 points" in out) == (0, True, True)
    code, out, _ = run("report", "both")
    assert (code, "Figure: both-report.svg" in out) == (0, True)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_runs_as_a_module_and_not_where_it_is_imported(name, monkeypatch):
    ran = []
    monkeypatch.setattr(Command, "main", lambda command: ran.append(command.name) or 7)
    with pytest.raises(SystemExit) as stop:
        runpy.run_module(f"fastflow.{name}", run_name="__main__")
    assert (ran, stop.value.code) == ([name], 7)
    runpy.run_module(f"fastflow.{name}")
    assert ran == [name]


@pytest.mark.parametrize(
    ("typed", "message"),
    [
        ("sweeep tech=n7", "did you mean sweep?"),
        ("tech=n7", "tech=n7: a command comes first: fastflow sweep tech=n7"),
        ("-m tech=n7,n5", "-m: a command comes first: fastflow sweep -m tech=n7,n5"),
        ("-m sweep tech=n7,n5", "-m: comes after the command: fastflow sweep -m tech=n7,n5"),
        (
            "sweep tech=n7 -m mem=hbm2,hbm3",
            "mem=hbm2,hbm3: stands after a switch, with overrides before it;"
            " -m comes first: fastflow sweep -m tech=n7 mem=hbm2,hbm3",
        ),
        ("sweep tech=n7,n5", "which needs -m"),
        ("list chps", "did you mean chips?"),
        ("list tech mem", "unrecognized arguments: mem; see fastflow list --help"),
        ("list --config-dir nowhere", "--config-dir=nowhere (from the command line) is invalid"),
        ("show", "see fastflow show --help"),
        ("show chip=h100", "chip=h100 (from the command line) is invalid: expected one of a10,"),
        ("show chip=h100_sxm chip.pind", "did you mean chip.pinned?"),
        ("show output=there", "expected a choice in one of calibration, carbon, chip"),
        ("completion csh", "completion=csh (from the command line) is invalid: expected one of bash"),
        ("completion", "completion=null"),
    ],
)
def test_a_mistake_is_one_line(run, typed, message):
    code, out, err = run(*typed.split())
    assert (code, out) == (2, "")
    assert message in err
    assert err.count("\n") == 1


def test_groups_are_listed_with_their_choices(run):
    code, out, _ = run("list")
    assert code == 0
    for group in catalog.groups():
        assert f"\n{group} " in out
    assert "h100_sxm" not in out.splitlines()[0]
    assert f" {len(catalog.choices('chip'))} " in next(line for line in out.splitlines() if "a100" in line)


@pytest.mark.parametrize("group", catalog.groups())
def test_every_choice_says_what_it_is(run, group):
    for name in catalog.choices(group):
        words = catalog.about(catalog.path_of(group, name))
        assert len(words) > len(name), f"{group}/{name}.yaml begins with no comment"
    if group != "chip":
        code, out, _ = run("list", group)
        assert code == 0
        assert all(f"\n{name} " in out for name in catalog.choices(group))


def test_chips_are_listed_with_what_they_have(run):
    code, out, _ = run("list", "chips")
    assert code == 0
    lines = {line.split()[0]: line for line in out.splitlines() if line.strip()}
    assert set(catalog.choices("chip")) <= set(lines)
    assert all(text in lines["h100_sxm"] for text in ("N5", "HBM3", "814 mm2", "700 W", "989 Tflop/s"))
    assert "nan" not in out


def test_a_narrow_terminal_has_all_of_it(run, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    for arguments, last in (
        (("list",), "sweeps "),
        (("list", "chips"), "v100_sxm "),
        (("show", "mem"), "mem.on_"),
    ):
        code, out, _ = run(*arguments)
        assert code == 0
        assert max(map(len, out.splitlines())) <= 80
        assert f"\n{last}" in out


def test_own_files_are_listed(run, tmp_path):
    (tmp_path / "mine" / "tech").mkdir(parents=True)
    (tmp_path / "mine" / "tech" / "lab.yaml").write_text(
        "# Our test chip.\ndefaults: [n7, _self_]\nname: lab\n"
    )
    code, out, _ = run("list", "tech", "--config-dir", "mine")
    assert (code, "lab   Our test chip" in out) == (0, True)
    code, out, _ = run("show", "tech=lab", "--config-dir", "mine")
    assert (code, "tech=lab\nOur test chip.\n" in out) == (0, True)


def test_a_card_has_figures_with_sources(run):
    code, out, _ = run("show", "chip=h100_sxm")
    assert code == 0
    assert "Memory 85.9 GB, at 3.35 TB/s, L2 52.4 MB, links 450 GB/s." in out
    assert "bf16 989 Tflop/s" in out
    assert any(line.split()[:3] == ["chip.tdp", "700", "W"] for line in out.splitlines())
    assert "NVIDIA H100 datasheet (2023)" in out
    code, out, _ = run("show", "mem=hbm3", "mem.price")
    assert (code, out.splitlines()[-1].split()[:4]) == (0, ["mem.price", "15", "USD/GB", "20%"])
    code, out, _ = run("show", "chip.tdp=500 W")
    assert (code, "chip=pathfinding\n" in out, " 500 W " in out) == (0, True, True)


@pytest.mark.parametrize("group", PUBLIC)
def test_every_figure_has_a_source(group):
    """Of technology, memory and real chips: what the backlog of a card would be."""
    with hydra_rules():
        composer = Composer.of_library()
        for name in catalog.choices(group):
            found = figures(composer, [f"{group}={name}"])
            own = [one for one in found if one.key.startswith(f"{group}.")]
            assert own
            assert not [one.key for one in own if not one.source], name


def completed(line):
    """Return how `fastflow` says that a line may go on, by argcomplete's protocol."""
    read, write = os.pipe()
    typed = {
        "_ARGCOMPLETE": "1", "_ARGCOMPLETE_IFS": "\n", "_ARGCOMPLETE_SHELL": "bash", "COMP_LINE": line,
        "COMP_POINT": str(len(line)), "COMP_TYPE": "9", "_ARGCOMPLETE_COMP_WORDBREAKS": " \t\n\"'><=;|&(:",
        "_ARGCOMPLETE_STDOUT_FILENAME": f"/dev/fd/{write}",
    }  # fmt: skip
    command = [sys.executable, "-m", "fastflow"]
    done = subprocess.run(command, env=os.environ | typed, pass_fds=[write], capture_output=True, text=True)
    os.close(write)
    with os.fdopen(read, encoding="utf-8") as answer:
        return done.returncode, done.stderr, [word.strip() for word in answer.read().split("\n")]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("fastflow s", ["search", "sensitivity", "show", "sweep"]),
        ("fastflow sweep chip=h100_", ["h100_hbm2e", "h100_nvl", "h100_pcie", "h100_sxm"]),
        ("fastflow sweep -m chip=a100,h200", ["a100,h200_sxm"]),
        ("fastflow sweep ch", ["chip="]),
        ("fastflow show tech=n7 tech.core.n", [
            "tech.core.nominal_area=", "tech.core.nominal_bundle=", "tech.core.nominal_frequency=",
            "tech.core.nominal_power=", "tech.core.nominal_voltage=",
        ]),
        ("fastflow sweep -m +sw", ["+sweeps="]),
        ("fastflow sweep -m +sweeps=fig0", ["fig01", "fig09"]),
        ("fastflow list ch", ["chip", "chips"]),
        ("fastflow completion ", ["bash", "fish", "zsh"]),
    ],
)  # fmt: skip
def test_a_line_is_completed(line, words):
    code, err, found = completed(line)
    assert (code, err, sorted(word for word in found if word)) == (0, "", words)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_shell_has_a_script(run, shell):
    code, out, _ = run("completion", shell)
    assert (code, "fastflow" in out, "_ARGCOMPLETE" in out) == (0, True, True)


@pytest.mark.long
@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash")
@pytest.mark.skipif(not SCRIPT.exists(), reason="fastflow is not installed beside this Python")
def test_bash_completes():
    """The script itself, as a user runs it."""
    line = "fastflow sweep tech=n1"
    script = f"""
        PATH={SCRIPT.parent}:$PATH
        eval "$(fastflow completion bash)"
        COMP_LINE='{line}' COMP_POINT={len(line)} COMP_TYPE=9
        COMP_WORDS=(fastflow sweep tech = n1) COMP_CWORD=4
        $(complete -p fastflow | sed 's/.*-F \\([^ ]*\\).*/\\1/') fastflow n1 =
        echo "${{COMPREPLY[@]}}"
    """
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, timeout=60)
    assert done.stdout.split() == ["n1", "n12", "n1_4"]


def test_the_line_that_a_search_prints_can_be_run(run, tmp_path):
    own = tmp_path / "mine"
    (own / "tech").mkdir(parents=True)
    (own / "tech" / "lab.yaml").write_text("defaults: [n12, _self_]\nname: lab\nsource: {default: a test}\n")
    code, out, _ = run("search", "--config-dir", str(own), "tech=lab", "steps=2", "output=found")
    assert code == 0
    line = next(line for line in out.splitlines() if line.startswith("python -m fastflow.sweep "))
    assert run("sweep", *shlex.split(line)[3:])[0] == 0


def test_a_figure_has_the_source_of_who_sets_it(run, tmp_path):
    (tmp_path / "chip").mkdir()
    (tmp_path / "chip" / "ours.yaml").write_text(
        "defaults: [pathfinding, _self_]\nname: ours\ndie_area: 425 mm2\n"
        "source: {default: our drawing, tdp: our rack}\n"
    )

    def sources(*typed):
        code, out, _ = run("show", "chip=ours", "--config-dir", str(tmp_path), *typed)
        assert code == 0
        rows = (line.split() for line in out.splitlines() if line.startswith("chip."))
        return {key: " ".join(rest) for key, *rest in rows}

    shown = sources()
    assert shown["chip.die_area"] == "425 mm2 area of the compute die our drawing"
    assert shown["chip.tdp"].endswith("our rack")  # of a value that another file sets
    assert "our drawing" not in shown["chip.node_area"]
    shown = sources("chip.tdp=500 W")
    assert shown["chip.tdp"].startswith("500 W power budget of the device")
    assert shown["chip.tdp"].endswith("the command line")
