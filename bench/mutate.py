"""Draw mutants of a package at random, each run against the tests nearest to its module: see mutation.md."""

from __future__ import annotations

import argparse
import random
import re
import time
import tomllib
from pathlib import Path

from cosmic_ray.ast import ast_nodes, get_ast_from_path
from cosmic_ray.mutating import mutate_and_test
from cosmic_ray.plugins import get_operator, operator_names
from cosmic_ray.work_item import MutationSpec, TestOutcome

CONFIG = tomllib.loads(Path("bench/mutation.toml").read_text(encoding="utf-8"))["cosmic-ray"]
EXCLUDED = [re.compile(text) for text in CONFIG["filters"]["operators-filter"]["exclude-operators"]]
PYTEST = "python -m pytest -q -x -n 0 -p no:cacheprovider --tb=line"
# tests of the whole model that are cheap: they run after those of the module
PROPERTIES = [Path("tests", "properties", f"test_{name}.py") for name in ("chips", "table2", "doc_numbers")]


def mutants(package: Path) -> list[MutationSpec]:
    """Return every mutant of a package, in the order of files, operators and lines."""
    operators = [
        (name, get_operator(name))
        for name in sorted(operator_names())
        if not any(pattern.match(name) for pattern in EXCLUDED)
    ]
    specs = []
    for path in sorted(package.rglob("*.py")):
        nodes = list(ast_nodes(get_ast_from_path(path)))
        for name, operator in operators:
            if operator.arguments():
                continue
            positions = [position for node in nodes for position in operator().mutation_positions(node)]
            specs += [
                MutationSpec(path, name, occurrence, start, end)
                for occurrence, (start, end) in enumerate(positions)
            ]
    return specs


def nearest_tests(module: Path, most: int) -> list[Path]:
    """Return test files, nearest first: the mirror of a module, importing files, files of like path."""
    mirror = Path("tests", *module.parts[1:-1], f"test_{module.stem}.py")
    package = re.escape(".".join(module.parts[:-1]))
    imports = re.compile(
        rf"{package}\.{module.stem}\b|from {package} import (?:\([^)]*|[^\n]*)\b{module.stem}\b"
    )

    def distance(test: Path) -> tuple[bool, bool, int, str]:
        words = {*test.parts[1:-1], *test.stem.split("_")[1:]}
        shared = words & {*module.parts[1:-1], *module.stem.split("_")}
        text = test.read_text(encoding="utf-8")
        return test != mirror, not imports.search(text), -len(shared), str(test)

    tests = [test for test in Path("tests").rglob("test_*.py") if test.parts[1] != "properties"]
    return sorted(tests, key=distance)[:most] + PROPERTIES


def main() -> None:
    """Run the drawn mutants; print a line for each, and the difference of those that survive."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("package", type=Path, help="a folder such as fastflow/core")
    parser.add_argument("--draw", type=int, default=16, help="mutants in the sample")
    parser.add_argument("--seed", type=int, default=40, help="of the sample")
    parser.add_argument("--files", type=int, default=6, help="test files for a mutant, beside the properties")
    parser.add_argument("--only", type=int, nargs="*", help="numbers of mutants of the sample")
    parser.add_argument("--tests", help="test files to run instead of the nearest")
    arguments = parser.parse_args()
    specs = mutants(arguments.package)
    sample = random.Random(arguments.seed).sample(specs, min(arguments.draw, len(specs)))
    print(f"{arguments.package}: {len(specs)} mutants, {len(sample)} drawn with seed {arguments.seed}")
    killed = 0
    numbers = arguments.only or range(len(sample))
    for number in numbers:
        spec = sample[number]
        tests = arguments.tests or " ".join(map(str, nearest_tests(spec.module_path, arguments.files)))
        start = time.perf_counter()
        result = mutate_and_test([spec], f"{PYTEST} {tests}", CONFIG["timeout"])
        survived = result.test_outcome == TestOutcome.SURVIVED
        killed += not survived
        failed = re.search(r"^(?:FAILED|ERROR) (.*)|^timeout$", result.output, re.MULTILINE)
        line = (
            f"{number} {'survived' if survived else 'killed'} {time.perf_counter() - start:.0f} s "
            f"{spec.module_path}:{spec.start_pos[0]} {spec.operator_name}"
        )
        print(f"{line} {failed.group()[:150] if failed else ''}".rstrip(), flush=True)
        if survived:
            print(result.diff, tests, sep="\n", flush=True)
    print(f"{killed} of {len(numbers)} killed", flush=True)


if __name__ == "__main__":
    main()
