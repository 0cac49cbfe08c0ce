"""The rules of the house: who may import whom, how large a folder is, where every number comes from.

Layers and circles are contracts of import-linter, in pyproject.toml.
"""

import importlib
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import grimp
import pytest
import yaml
from importlinter.api import read_configuration

from fastflow.cli.commands import COMMANDS
from fastflow.config.model_inputs import ALTERNATIVE
from fastflow.core import jit
from fastflow.schema import INPUTS, RESULTS, find_input, result_order
from tests.support.sources import PACKAGE, parsed, sources

LIBRARY = next(
    folder for folder in (PACKAGE / "_library" / "conf", PACKAGE.parent / "conf") if folder.is_dir()
)
LARGEST = 1 / 6  # of the package, of a folder's own files
SERVICES = {"hydra", "omegaconf", "pandas", "pyarrow", "joblib", "rich", "hydra_plugins"}


def test_imports_run_downwards_and_in_no_circle():
    done = subprocess.run(
        [Path(sys.executable).with_name("lint-imports"), "--no-cache"],
        capture_output=True,
        text=True,
        check=False,
        cwd=PACKAGE.parent,
    )
    contracts = read_configuration(str(PACKAGE.parent / "pyproject.toml"))["contracts_options"]
    assert done.returncode == 0, done.stdout
    assert f"{len(contracts)} kept, 0 broken" in done.stdout


def test_the_top_of_the_package_can_be_taken_in_at_a_glance():
    hidden = ("__pycache__", "_library", "py.typed")
    there = {path.name for path in PACKAGE.iterdir() if path.name not in hidden}
    assert len(there) <= 12
    assert {name for name in there if name.endswith(".py")} == {"__init__.py", "__main__.py"}


def test_no_folder_is_a_hall():
    lines = dict.fromkeys({path.parent for path in sources()}, 0)
    for path in sources():
        lines[path.parent] += len(path.read_text(encoding="utf-8").splitlines())
    assert {folder for folder in lines if lines[folder] > LARGEST * sum(lines.values())} == set()


RETIRED = {
    "undealt", "misfit", "misordered", "misasked", "undivided", "unsent", "unnumbered", "unsuited",
    "unrented", "unschedulable", "once_a_kind", "look_up", "in_blocks", "is_repeated", "lies_as_pass",
    "Dealing", "Facts", "Crew", "Watch", "Whom", "Told", "Stretch", "Question", "hindsight", "shelf",
    "one", "own", "found", "place", "asked", "told", "held", "again", "beside", "stays",
    "stacked", "STACKED", "first_of", "explaining", "counted", "repeated", "varied", "Spread", "Explained",
    "Along", "Exchanged", "MOST", "FEWEST", "LARGEST",
}  # fmt: skip
"""Names that had to be learnt, or that stood in for a noun; today's are the field's."""


def test_retired_words_name_nothing():
    assert not RETIRED & set().union(*(parsed(path).words for path in sources()))


def test_the_plugin_for_hydra_imports_what_finds_and_reads_the_library_and_the_commands():
    """Its folder is no package that import-linter would read: Hydra asks for a namespace."""
    (path,) = (PACKAGE / "cli" / "_plugins").rglob("*.py")
    ours = {name for name in parsed(path).imports if name.split(".")[0] == "fastflow"}
    assert ours == {"fastflow.config.library", "fastflow.config.file_cache", "fastflow.cli"}


def test_results_follow_from_the_packages_that_name_them():
    """What a prediction may import, and every kernel, is in the hash that datasets have of the model."""
    graph = grimp.build_graph("fastflow", cache_dir=None)
    model = {"fastflow.performance"}
    below = model | {name for start in model for name in graph.find_upstream_modules(start, as_package=True)}
    assert {name.split(".")[1] for name in below} == set(jit.MODEL)
    with_kernels = graph.find_modules_that_directly_import("fastflow.core.jit")
    others = {name.split(".")[1] for name in with_kernels} - set(jit.MODEL)
    assert not any(uses_kernels(PACKAGE / package) for package in others)


def uses_kernels(package):
    texts = (path.read_text() for path in package.rglob("*.py"))
    return any("@kernel" in text or "@lean_kernel" in text for text in texts)


def test_an_edit_of_what_is_said_on_screen_leaves_the_model_as_it_is(copied):
    package, run = copied

    def digest():
        return run("from fastflow.core.jit import MODEL_DIGEST; print(MODEL_DIGEST)")

    before = digest()
    assert before.strip() == jit.MODEL_DIGEST
    for path in ("cli/run/point.py", "reporting/trace.py", "analysis/search/optimizers/cma_es.py"):
        with (package / path).open("a") as file:
            file.write("# a comment\n")
    assert digest() == before
    with (package / "physics" / "timing" / "roofline.py").open("a") as file:
        file.write("# a comment\n")
    assert digest() != before


def test_importing_the_model_loads_no_service():
    """What a worker loads to evaluate a range of points."""
    code = "import sys, fastflow.performance.crossflow, fastflow.performance.results; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=PACKAGE.parent
    )
    loaded = {name.split(".")[0] for name in done.stdout.split()}
    assert "fastflow" in loaded
    assert not loaded & SERVICES


def architecture():
    """The tables of the page on architecture: of packages, and of commands; by their first cells."""
    text = (PACKAGE.parent / "docs" / "architecture.md").read_text(encoding="utf-8")
    lines = [line for line in text.split("Beside the package:")[0].splitlines() if line.startswith("| `")]
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines]
    return {row[0].strip("`"): row[1:] for row in rows}


def test_the_page_on_architecture_names_every_module_and_no_other():
    there = {}
    for path in sources():
        folder = path.relative_to(PACKAGE).parent.as_posix()
        if folder != "." and "_plugins" not in folder:
            there.setdefault(f"{folder}/", set()).update({path.stem} - {"__init__", "__main__"})
    rows = architecture().items()
    told = {name: set(re.findall(r"`(\w+)`", row[-1])) for name, row in rows if name.endswith("/")}
    assert told == there


def test_commands_name_the_files_that_make_them():
    root, rows = PACKAGE.parent, architecture()
    assert [name for name in rows if not name.endswith("/")] == [*COMMANDS]
    for name, command in COMMANDS.items():
        assert command.name == name
        assert not command.config or (root / "conf" / f"{command.config}.yaml").is_file()
        files = (command.run, command.computes, command.columns, command.table, command.chart, command.page)
        assert all((PACKAGE / file).exists() for file in (command.line, *files))
        config = f"conf/{command.config}.yaml" if command.config else ""
        assert [cell.strip("`") for cell in rows[name]] == [config, *files]
        assert find_spec(f"fastflow.{name}").origin == str(PACKAGE / "cli" / "commands" / f"{name}.py")


def test_the_picture_is_of_these_packages(monkeypatch):
    """It is what its script draws, and names every package; arrows are imports, and lead to all others."""
    monkeypatch.syspath_prepend(PACKAGE.parent / "docs" / "_extensions")
    house = importlib.import_module("house")
    drawn = house.FILE.read_text(encoding="utf-8")
    assert drawn == house.picture(), "python docs/_extensions/house.py draws it anew"
    folders = [path.parent.relative_to(PACKAGE).parts for path in PACKAGE.rglob("*/__init__.py")]
    for parts in filter(None, folders):
        name = f">{parts[-1]}/<" if len(parts) < 3 else f">{'/'.join(parts[2:])}<"
        assert name in drawn, parts
    packages = {parts[0] for parts in folders if parts}
    pairs = {
        (path.relative_to(PACKAGE).parts[0], used) for path in sources() for used in parsed(path).imports
    }
    pairs = {(a, used.split(".")[1]) for a, used in pairs if used.startswith("fastflow.")}
    imports = {(a, b) for a, b in pairs if a != b and a in packages}
    arrows = {(a, b) for a, b in re.findall(r"<title>(\w+) imports (\w+)</title>", drawn) if a in packages}
    arrows = {(a, b) for a, b in arrows if b in packages}
    assert arrows <= imports
    while further := {(a, d) for a, b in arrows for c, d in arrows if b == c} - arrows:
        arrows |= further
    assert imports <= arrows


def leaves(node, prefix=""):
    """Yield dotted key and value of the leaves of one file, and of its `source` mappings apart."""
    for name, value in node.items():
        key = f"{prefix}.{name}" if prefix else name
        if name in ("source", "defaults", "uncertainty"):  # tests/core/test_uncertainty.py reads these
            continue
        if isinstance(value, dict):
            yield from leaves(value, key)
        elif value is not None:
            yield key, value


def source_of(node, path):
    """Return the source of a leaf: in the nearest section that has one for its key, or a default."""
    sections = [node]
    for name in path[:-1]:
        sections.append(sections[-1][name])
    for depth in range(len(sections) - 1, -1, -1):
        source = sections[depth].get("source")
        if isinstance(source, str):
            return source
        if isinstance(source, dict):
            parts = path[depth:]
            for length in range(len(parts), 0, -1):
                found = source.get(".".join(parts[:length]))
                if found:
                    return found
            if source.get("default"):
                return source["default"]
    return None


FILES = sorted(path for group in ("tech", "mem", "net") for path in (LIBRARY / group).glob("*.yaml"))


def test_the_library_is_whole():
    names = {
        group: {path.stem for path in FILES if path.parent.name == group} for group in ("tech", "mem", "net")
    }
    assert names["tech"] >= {"n12", "n7", "n5", "n3", "n2", "n1_4", "n1"}
    assert names["mem"] >= {"hbm2", "hbm2e", "hbm3", "hbm4"}
    assert names["net"] >= {"ndr_x8", "xdr_x8", "gdr_x8"}


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_every_number_of_the_library_has_a_source(path):
    content = yaml.safe_load(path.read_text(encoding="utf-8"))
    for key, value in leaves({name: part for name, part in content.items() if name != ALTERNATIVE}):
        column = find_input(f"{path.parent.name}.{key}")
        assert column is not None, f"{key} is no registered input"
        if column.kind in ("str", "bool"):
            continue
        source = source_of(content, key.split("."))
        assert source, f"{key} = {value} has no source"
        assert len(source) >= 5


@pytest.mark.parametrize(
    "path",
    [*FILES, *sorted((LIBRARY / "chip").glob("*.yaml"))],
    ids=lambda path: f"{path.parent.name}/{path.stem}",
)
def test_every_source_is_of_something(path):
    """A renamed key leaves no source behind, and a comma in a flow mapping cuts no source short."""
    content = yaml.safe_load(path.read_text(encoding="utf-8"))

    def check(node, where):
        for name, value in node.items():
            if name == "source" and isinstance(value, dict):
                inside = {key for key, _ in leaves(node)}
                for key in value.keys() - {"default"}:
                    known = any(f"{leaf}.".startswith(f"{key}.") for leaf in inside)
                    # a later file of a family may say where a value comes from that it inherits
                    inherited = (
                        "defaults" in content and find_input(f"{path.parent.name}{where}.{key}") is not None
                    )
                    assert known or inherited, f"{where}.source.{key}"
            elif isinstance(value, dict):
                check(value, f"{where}.{name}")

    check(content, "")


def test_registry_is_sound():
    for table in (INPUTS, RESULTS):
        names = [column.name for column in table]
        assert len(names) == len(set(names))
        assert all(column.meaning and not column.meaning.endswith(".") for column in table)
    assert [name for name in result_order(3) if name.startswith("l2")] == [
        "l2_bound_frac",
        "l2_B",
        "l2_Bps",
        "l2_banks",
    ]
    # columns that other programs rely on
    promised = (
        "point tech mem net chip model strategy time_s forward_s backward_s update_s compute_s comm_s "
        "exposed_comm_s bound_by compute_bound_frac l2_bound_frac dram_bound_frac flop mfu energy_J "
        "footprint_B dram_capacity_B compute_flops dram_Bps l2_B l2_Bps l1_B l1_Bps l0_B l0_Bps "
        "intra_Bps inter_Bps core_V core_Hz mcus feasible reason"
    )
    assert set(promised.split()) <= set(result_order(3))
