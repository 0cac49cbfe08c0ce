"""The package's Python files, each parsed once for all tests that read them."""

import ast
from functools import cache
from pathlib import Path
from typing import NamedTuple

import fastflow

PACKAGE = Path(fastflow.__file__).parent


class Source(NamedTuple):
    """What a file has, wherever in the file."""

    words: frozenset[str]
    """Every name: of variables, attributes, parameters, functions, classes and imports."""
    imports: tuple[str, ...]
    """Dotted names of the modules that it imports."""
    compared: tuple[tuple[int, frozenset[object]], ...]
    """The line of every comparison, and its constants."""


def sources():
    """Return the package's files, without those of the library."""
    return sorted(path for path in PACKAGE.rglob("*.py") if "_library" not in path.parts)


@cache
def parsed(path):
    """Return what a file has."""
    words, imports, compared = set(), [], []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        for field in ("id", "attr", "arg", "name", "asname"):
            if isinstance(word := getattr(node, field, None), str):
                words.add(word)
        if isinstance(node, ast.Import):
            imports += (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are absolute"
            imports.append(node.module)
        elif isinstance(node, ast.Compare):
            texts = {part.value for part in ast.walk(node) if isinstance(part, ast.Constant)}
            compared.append((node.lineno, frozenset(texts)))
    return Source(frozenset(words), tuple(imports), tuple(compared))
