"""The picture of the packages, docs/house.svg: `python docs/_extensions/house.py` draws it from the package.

A layer holds the packages that import those below it, a box inside a sub-package with the first line of its
docstring, and the names of packages inside it. An arrow is an import. Where A imports B and B imports C, an
arrow from A to C is left out. A test holds the file against the package.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cache
from html import escape
from pathlib import Path
from textwrap import wrap

import fastflow
from fastflow.core.jit import MODEL

FILE = Path(__file__).parents[1] / "house.svg"
PACKAGE = Path(fastflow.__file__).parent
FILES = [PACKAGE / "__init__.py", PACKAGE / "__main__.py"]
WIDTH, GUTTER, MARGIN, GAP, PAD = 900, 24, 8, 13, 8
NAME, TEXT, LINE, CHIP = 13, 11.5, 16, 20  # sizes of fonts, heights of lines [px]
OF_NAME, OF_TEXT = 7.5, 5.5  # mean width of a letter [px]
INK, GREY, ARROW = "#1d2b38", "#3d4f60", "#4a5a69"
COLOURS = {True: ("#e4efe6", "#7d9c86"), False: ("#f5ecdc", "#b7a27a")}
"""Fill and line of packages that predictions follow from, and of the others."""
LEGEND = (
    "Green: what predictions follow from, which knows nothing of Hydra, pandas and Parquet. "
    "An arrow is an import; where A → B → C, none is drawn from A to C."
)
HEAD = f"""\
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {{height}}" width="{WIDTH}" height="{{height}}" \
font-family="Helvetica, Arial, sans-serif">
<!-- made by python docs/_extensions/house.py -->
<rect width="100%" height="100%" fill="#ffffff"/>
<defs><marker id="a" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="6" markerHeight="6" orient="auto">\
<path d="M0,0 L8,4 L0,8 z" fill="{ARROW}"/></marker></defs>
"""

Imports = dict[str, set[str]]
"""By the name of a package, the names of those beside it that it imports."""


@dataclass
class Box:
    """A package on the page: its texts, the boxes inside it, and where it stands [px]."""

    path: Path
    width: float
    lines: list[str] = field(default_factory=list)
    """Of its text; the first one stands behind its name."""
    chips: list[list[str]] = field(default_factory=list)
    """Names of packages inside a sub-package, by lines."""
    rows: list[list[Box]] = field(default_factory=list)
    imports: Imports = field(default_factory=dict)
    x: float = 0.0
    y: float = 0.0

    @property
    def beside(self) -> bool:
        """Say whether its only line of names stands behind its only line of text."""
        names = sum(chip_width(name) for line in self.chips for name in line)
        taken = len(self.lines[0].rstrip()) * OF_TEXT + names + 4 * PAD
        return len(self.lines) == len(self.chips) == 1 and taken < self.width

    @property
    def head(self) -> float:
        """Return the height of its texts."""
        return LINE * len(self.lines) + CHIP * len(self.chips[self.beside :]) + PAD

    @property
    def height(self) -> float:
        """Return its height, boxes inside it included."""
        inside = sum(tallest(row) + GAP for row in self.rows)
        return self.head + (inside - GAP + PAD + 2 if self.rows else 0)


def tallest(row: Iterable[Box]) -> float:
    """Return the height of a row."""
    return max(box.height for box in row)


def folders(folder: Path) -> list[Path]:
    """Return the packages inside a package."""
    return sorted(path.parent for path in folder.glob("*/__init__.py"))


@cache
def imported(path: Path) -> set[str]:
    """Return what a file imports, or all files of a folder: dotted names."""
    if path.is_dir():
        return set().union(*map(imported, path.rglob("*.py")))
    names = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return names


def imports_of(paths: Iterable[Path]) -> Imports:
    """Return the imports between packages that stand side by side, without those that follow from others."""
    dotted = {path.stem: ".".join(path.relative_to(PACKAGE.parent).parts) for path in paths if path.is_dir()}
    imports = {
        path.stem: {
            name
            for name, prefix in dotted.items()
            if name != path.stem and any(f"{used}.".startswith(f"{prefix}.") for used in imported(path))
        }
        for path in paths
    }

    def reached(name: str) -> set[str]:
        return imports[name].union(*map(reached, imports[name]))

    return {a: {b for b in used if not any(b in reached(c) for c in used)} for a, used in imports.items()}


def layers(paths: Iterable[Path], imports: Imports) -> list[list[Path]]:
    """Return packages in rows, so that each stands above those that it imports, and not far above."""
    depth = {path.stem: 0 for path in paths}
    for _ in depth:
        for name in depth:
            depth |= {other: max(depth[other], depth[name] + 1) for other in imports[name]}
    last = max(depth.values(), default=0)
    free = depth.keys() - set().union(*imports.values())  # nothing here imports them
    for name in free:
        depth[name] = min((depth[other] for other in imports[name]), default=last + 1) - 1
    rows = ([path for path in paths if depth[path.stem] == level] for level in range(last + 1))
    return [_in_order(row, free) for row in rows if row]


def _in_order(row: list[Path], free: set[str]) -> list[Path]:
    """Return a row with those in the middle that others import."""
    outer = [path for path in row if path.stem in free]
    middle, half = [path for path in row if path not in outer], (len(outer) + 1) // 2
    return [*outer[:half], *middle, *outer[half:]]


def name_of(path: Path) -> str:
    """Return what a box is called."""
    return f"{path.name}/" if path.is_dir() else path.name


def lines_of(path: Path, width: float) -> list[str]:
    """Return the first line of a package's docstring in lines; the first one stands behind its name."""
    file = path / "__init__.py" if path.is_dir() else path
    text = ast.get_docstring(ast.parse(file.read_text(encoding="utf-8"))) or ""
    text = text.partition("\n")[0].replace("`", "").removesuffix(".")
    taken = round((len(name_of(path)) + 2) * OF_NAME / OF_TEXT)
    return wrap(text, int((width - 2 * PAD) / OF_TEXT), initial_indent=" " * taken) or [""]


def chips_of(folder: Path, width: float) -> list[list[str]]:
    """Return the names of the packages inside a sub-package, in lines."""
    inside = sorted(path.parent for path in folder.rglob("*/__init__.py"))
    lines: list[list[str]] = []
    left = 0.0
    for name in (path.relative_to(folder).as_posix() for path in inside if path != folder):
        if left < chip_width(name):
            lines.append([])
            left = width - 2 * PAD
        lines[-1].append(name)
        left -= chip_width(name)
    return lines


def chip_width(name: str) -> float:
    """Return the width of the box of a name, with the space behind it [px]."""
    return len(name) * 5.7 + 20


def sub_package(path: Path, width: float) -> Box:
    """Return a sub-package as a box of some width."""
    return Box(path, width, lines_of(path, width), chips_of(path, width))


def package(path: Path, width: float) -> Box:
    """Return a package as a box of some width, with those of its sub-packages."""
    inside = folders(path)
    box = Box(path, width, lines_of(path, width), imports=imports_of(inside))
    for row in layers(inside, box.imports):
        share = (width - 2 * PAD - GAP * (len(row) - 1)) / len(row)
        box.rows.append([sub_package(folder, share) for folder in row])
    return box


def page() -> Box:
    """Return all packages, below the two files of `fastflow/`."""
    packages = folders(PACKAGE)
    whole = Box(PACKAGE, WIDTH - GUTTER - MARGIN, imports=imports_of([*FILES, *packages]))
    for row in [FILES, *layers(packages, imports_of(packages))]:
        parts = [2 + len(folders(path)) for path in row]
        free = whole.width - GAP * (len(row) - 1)
        widths = (free * part / sum(parts) for part in parts)
        whole.rows.append([package(path, width) for path, width in zip(row, widths, strict=True)])
    return whole


def place(box: Box, x: float, y: float) -> None:
    """Say where the boxes inside a box stand; x, y: of the first one."""
    for row in box.rows:
        left = x
        for inner in row:
            inner.x, inner.y = left, y
            place(inner, left + PAD, y + inner.head + 2)
            left += inner.width + GAP
        y += tallest(row) + GAP


def drawn(box: Box, height: float, fill: str, line: str) -> Iterator[str]:
    """Yield the elements of a box without those inside; height: of its row."""
    yield rect(box.x, box.y, box.width, height, fill, line)
    for number, text in enumerate(box.lines):
        bold = f'<tspan font-size="{NAME}" font-weight="bold" fill="{INK}">{name_of(box.path)}</tspan>'
        start, space = ("", 0) if number else (bold, 8)
        span = f'<tspan dx="{space}" font-size="{TEXT}" fill="{GREY}">{escape(text.strip())}</tspan>'
        yield f'<text x="{box.x + PAD:.0f}" y="{box.y + LINE * (number + 1) - 1:.0f}">{start}{span}</text>'
    y = box.y + 4 + (0 if box.beside else LINE * len(box.lines))
    for names in box.chips:
        x = box.x + (box.width - sum(map(chip_width, names)) if box.beside else PAD)
        for name in names:
            yield rect(x, y, chip_width(name) - 6, CHIP - 4, fill, line)
            yield f'<text x="{x + 6:.0f}" y="{y + 12:.0f}" font-size="11" fill="{INK}">{name}</text>'
            x += chip_width(name)
        y += CHIP


def rect(x: float, y: float, width: float, height: float, fill: str, line: str) -> str:
    """Return a rectangle."""
    size = f'x="{x:.0f}" y="{y:.0f}" width="{width:.0f}" height="{height:.0f}" rx="4"'
    return f'<rect {size} fill="{fill}" stroke="{line}"/>'


def arrows(box: Box) -> Iterator[str]:
    """Yield an arrow for each import between the boxes inside a box."""
    at = {inner.path.stem: (inner, number) for number, row in enumerate(box.rows) for inner in row}
    for name, used in sorted(box.imports.items()):
        upper, row = at[name]
        bottom = upper.y + tallest(box.rows[row])
        for lower, below in (at[other] for other in sorted(used)):
            left, right = max(upper.x, lower.x), min(upper.x + upper.width, lower.x + lower.width)
            if below > row + 1:  # past the rows between
                path = f"M{upper.x:.0f},{upper.y + 11:.0f} h-12 V{lower.y + 11:.0f} h12"
            elif right > left:
                path = f"M{(left + right) / 2:.0f},{bottom:.0f} V{lower.y:.0f}"
            else:
                path = f"M{left:.0f},{bottom:.0f} L{right:.0f},{lower.y:.0f}"
            title = f"<title>{name} imports {lower.path.stem}</title>"
            yield f'<path d="{path}" fill="none" stroke="{ARROW}" marker-end="url(#a)">{title}</path>'


def picture() -> str:
    """Return the picture, an SVG."""
    whole = page()
    place(whole, GUTTER, MARGIN)
    parts: list[str] = []
    for row in whole.rows:
        for box in row:
            fill, line = COLOURS[box.path.name in MODEL]
            parts += drawn(box, tallest(row), fill, line)
            for inside in box.rows:
                for inner in inside:
                    parts += drawn(inner, tallest(inside), "#ffffff", line)
            parts += arrows(box)
    parts += arrows(whole)
    bottom = MARGIN + sum(tallest(row) + GAP for row in whole.rows) + 8
    parts.append(f'<text x="{GUTTER}" y="{bottom:.0f}" font-size="{TEXT}" fill="{GREY}">{LEGEND}</text>')
    return HEAD.format(height=round(bottom + 12)) + "\n".join(parts) + "\n</svg>\n"


if __name__ == "__main__":
    FILE.write_text(picture(), encoding="utf-8")
