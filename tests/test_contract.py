"""The rules of the house: who may import whom, where every number comes from (DESIGN.md)."""

import ast
from pathlib import Path

import pytest
import yaml

import fastflow
from fastflow.columns import INPUTS, RESULTS, find_input, result_order

PACKAGE = Path(fastflow.__file__).parent
LIBRARY = next(
    folder for folder in (PACKAGE / "_library" / "conf", PACKAGE.parent / "conf") if folder.is_dir()
)

# From the roof to the cellar; a room imports its own and what lies below.
FLOORS = [
    {"sweep", "search", "validate", "calibrate", "report", "__init__", "__main__", "_plugins"},
    {"engine"},
    {"optimize", "figures", "studies"},
    {"results", "trace"},
    {"crossflow"},
    {"limits"},
    {"network"},
    {"parallelism"},
    {"timing"},
    {"hardware"},
    {"workload"},
    {"distinct"},
    {"columns", "units", "errors", "tables"},
    {"_jit"},
]
DEPTH = {room: depth for depth, rooms in enumerate(FLOORS) for room in rooms}
# What knows the physics knows nothing of configurations, files and screens.
MODEL = {
    "hardware", "workload", "parallelism", "network", "timing", "crossflow", "limits", "results", "trace",
    "optimize", "figures",
    "distinct", "columns", "tables", "units", "errors", "_jit",
}  # fmt: skip
SERVICES = {"hydra", "omegaconf", "pandas", "pyarrow", "joblib", "rich", "hydra_plugins"}


def room_of(path):
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def sources():
    return sorted(path for path in PACKAGE.rglob("*.py") if "_library" not in path.parts)


def imports(path):
    """Every module that a file imports, wherever in the file, as dotted absolute names."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    package = ["fastflow", *path.relative_to(PACKAGE).parts[:-1]]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            yield module
            # `from fastflow import units` imports a room too
            yield from (f"{module}.{alias.name}" for alias in node.names if module == "fastflow")


def rooms_imported(path):
    for name in imports(path):
        parts = name.split(".")
        if parts[0] == "fastflow" and len(parts) > 1 and parts[1] in DEPTH:
            yield parts[1]


def test_the_walk_sees_all_rooms():
    rooms = {room_of(path) for path in sources()}
    assert rooms >= MODEL
    unknown = rooms - DEPTH.keys()
    assert not unknown, f"give these a floor: {unknown}"
    assert "numba" in set(imports(PACKAGE / "_jit.py"))
    assert {"tables", "hardware"} <= set(rooms_imported(PACKAGE / "crossflow.py"))


@pytest.mark.parametrize("path", sources(), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_run_downwards(path):
    room = room_of(path)
    # a floor with several rooms lets them read each other
    allowed = {other for other in DEPTH if DEPTH[other] >= DEPTH[room]}
    assert set(rooms_imported(path)) <= allowed


@pytest.mark.parametrize(
    "path",
    [path for path in sources() if room_of(path) in MODEL],
    ids=lambda path: str(path.relative_to(PACKAGE)),
)
def test_the_model_knows_no_services(path):
    assert not {name.split(".")[0] for name in imports(path)} & SERVICES


def test_only_one_file_knows_numba():
    knowing = [path.name for path in sources() if "numba" in {name.split(".")[0] for name in imports(path)}]
    assert knowing == ["_jit.py"]


def test_importing_the_model_loads_no_service():
    """What a worker loads to evaluate a range of points."""
    import subprocess
    import sys

    code = "import sys, fastflow.crossflow, fastflow.results; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=PACKAGE.parent
    )
    loaded = {name.split(".")[0] for name in done.stdout.split()}
    assert "fastflow" in loaded
    assert not loaded & SERVICES


def leaves(node, prefix=""):
    """Yield dotted key and value of the leaves of one file, and of its `source` mappings apart."""
    for name, value in node.items():
        key = f"{prefix}.{name}" if prefix else name
        if name in ("source", "defaults"):
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
    for key, value in leaves(content):
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
    # DESIGN.md, "Result columns"
    promised = (
        "point tech mem net chip model strategy time_s forward_s backward_s update_s compute_s comm_s "
        "exposed_comm_s bound_by compute_bound_frac l2_bound_frac dram_bound_frac flop mfu energy_J "
        "footprint_B dram_capacity_B compute_flops dram_Bps l2_B l2_Bps l1_B l1_Bps l0_B l0_Bps "
        "intra_Bps inter_Bps core_V core_Hz mcus feasible reason"
    )
    assert set(promised.split()) <= set(result_order(3))
