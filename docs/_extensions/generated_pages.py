"""Pages that are made of the program itself when the site is built: the library, the keys, the command lines.

They are written to `docs/generated/`, which is not part of the repository.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from library_pages import library_pages
from reference_pages import page_of_command_lines, page_of_keys

if TYPE_CHECKING:
    from sphinx.application import Sphinx

FOLDER = "generated"
_NOTEBOOKS = """\
# Notebooks

Notebooks show fastflow from Python. They lie in `docs/notebooks/`, with the outputs that they had.
"""


def pages(docs: Path) -> dict[str, str]:
    """Return all pages, by file name; docs: the folder of the sources."""
    return {
        **{f"library/{group}.md": text for group, text in library_pages().items()},
        "reference/keys.md": page_of_keys(),
        "reference/command_lines.md": page_of_command_lines(),
        "notebooks.md": _page_of_notebooks(docs / "notebooks"),
    }


def _page_of_notebooks(folder: Path) -> str:
    """Return the page that lists the notebooks of a folder."""
    there = [f"../notebooks/{path.stem}" for path in sorted(folder.glob("*.ipynb"))]
    lists = ["```{toctree}", ":maxdepth: 1", "", *there, "```", ""] if there else []
    return "\n".join([_NOTEBOOKS, *lists])


def write(docs: Path) -> None:
    """Write the pages that have changed, and remove those that are no more; docs: where sources are."""
    folder, made = docs / FOLDER, pages(docs)
    for path in folder.rglob("*.md"):
        if path.relative_to(folder).as_posix() not in made:
            path.unlink()
    for name, text in made.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.is_file() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")


def setup(app: Sphinx) -> dict[str, bool]:
    """Write the pages before Sphinx looks for sources."""
    app.connect("builder-inited", lambda app: write(Path(app.srcdir)))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
