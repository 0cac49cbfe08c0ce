"""A command whose kernels are compiled imports only what it uses."""

import subprocess
import sys

import pytest

HEAVY = (
    "pandas", "pint", "dask", "joblib", "scipy.linalg", "matplotlib", "pyarrow.dataset", "pyarrow.compute",
)  # fmt: skip
COMMANDS = {
    "grid": ("-m", "tech=n12,n7", "mem=hbm2,hbm3", "parallel.strategy=auto"),
    "point": ("tech=n7", "parallel.strategy=auto"),
}


@pytest.mark.parametrize("command", COMMANDS)
def test_a_warm_command_imports_nothing_heavy(command, tmp_path):
    code = f"""
import sys
from fastflow.cli.commands.sweep import main
assert main() == 0
print("imported", *(name for name in {(*HEAVY, "numba.np.linalg")} if name in sys.modules))
"""
    for time in range(2):  # the first one may compile, and compiling imports all that Numba can compile
        arguments = [*COMMANDS[command], f"output={tmp_path / str(time)}"]
        done = subprocess.run(
            [sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=True, cwd=tmp_path
        )
        if done.stdout.splitlines()[-1].strip() == "imported":
            return
    raise AssertionError(done.stdout.splitlines()[-1])
