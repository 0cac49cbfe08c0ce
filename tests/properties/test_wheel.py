"""An installed wheel works from any folder, with its packaged library and a user's own files."""

import os
import subprocess
import sys
import zipfile

import pandas as pd
import pytest

from fastflow.config.library import library_root

pytestmark = pytest.mark.long  # a wheel compiles all kernels anew


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """Build the wheel and unpack it as an installer would, into a folder that goes on the path."""
    folder = tmp_path_factory.mktemp("wheel")
    pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
    subprocess.run([*pip, "--wheel-dir", folder, library_root()], check=True, capture_output=True)
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder / "site")
    return folder / "site"


def test_a_wheel_sweeps_from_any_folder(installed, tmp_path):
    (tmp_path / "mine" / "tech").mkdir(parents=True)
    (tmp_path / "mine" / "tech" / "lab.yaml").write_text("defaults: [n3, _self_]\nname: lab\ngeneration: 4\n")

    def python(*arguments):
        environment = os.environ | {"PYTHONPATH": str(installed)}
        command = [sys.executable, *arguments]
        return subprocess.check_output(command, cwd=tmp_path, env=environment, text=True)

    assert str(installed) in python("-c", "import fastflow; print(fastflow.__file__)")
    command = ("-m", "fastflow.sweep", "--config-dir", "mine", "-m", "model=gemm", "tech=n3,lab,n2")
    assert "3 points" in python(*command, "output=out")
    frame = pd.read_parquet(tmp_path / "out")
    assert frame["tech"].tolist() == ["n3", "lab", "n2"]
    assert frame["time_s"][1] == frame["time_s"][2] < frame["time_s"][0]


def test_users_types_are_checked_against_the_wheel(installed, tmp_path):
    assert (installed / "fastflow" / "py.typed").is_file()
    (tmp_path / "mine.py").write_text(
        "import fastflow\n"
        "reveal_type(fastflow.predict_gemm(64, 64, 64))\n"
        "reveal_type(fastflow.InputError)\n"
        "fastflow.evalute()\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--follow-imports=silent", "mine.py"],
        cwd=tmp_path,
        env=os.environ | {"MYPYPATH": "", "PYTHONPATH": str(installed)},
        capture_output=True,
        text=True,
    )
    lines = done.stdout.splitlines()
    assert "ndarray" in lines[0], done.stdout + done.stderr
    assert "InputError" in lines[1]
    assert 'has no attribute "evalute"' in lines[2]
    assert lines[3].startswith("Found 1 error")


def test_the_wheel_holds_the_whole_library(installed):
    root = library_root()
    for name in ("conf", "sweeps"):
        here = {path.relative_to(root) for path in (root / name).rglob("*.yaml")}
        there = {
            path.relative_to(installed / "fastflow" / "_library")
            for path in (installed / "fastflow" / "_library" / name).rglob("*.yaml")
        }
        assert here == there
        assert here
