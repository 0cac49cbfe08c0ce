"""Pages that are made of the program itself, when the site is built: the library, the keys, the command lines.

They are written to `docs/generated/`, which is not part of the repository.
"""

from __future__ import annotations

import io
import re
import sys
from collections.abc import Iterable, Sequence
from contextlib import redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING
from unittest.mock import patch

from fastflow.columns import INPUTS, find_input
from fastflow.configuration import shelf
from fastflow.configuration.cards import Figure, figures
from fastflow.configuration.composer import Composer
from fastflow.configuration.library import hydra_rules

if TYPE_CHECKING:
    from sphinx.application import Sphinx

FOLDER = "generated"
_PRIMARY = ("config", "search", "sensitivity", "validate", "calibrate", "backtest")
"""The configurations of commands; each adds its own keys to those of the first."""
_TITLES = {
    "tech": "Technologies", "scaling": "Scaling rules", "mem": "Memories", "net": "Networks", "links": "Links of real machines",
    "chip": "Chips", "pins": "Pins", "system": "Systems", "cost": "Costs", "model": "Models", "precision": "Precisions",
    "parallel": "Parallelism", "tiling": "Tilings", "framework": "Frameworks", "serve": "Loads of servers",
    "server": "Servers", "uncertainty": "Uncertainty", "engine": "Engines", shelf.STUDIES: "Studies",
}  # fmt: skip
"""Groups in the order of the pages, and their titles; a group that is not here comes last."""
_SAME = "as above"
_MARKUP = re.compile(r"([\\`*_{}\[\]<>#$|~])")


def escaped(text: str) -> str:
    """Return a text that Markdown shows as it is, also in a cell of a table."""
    return _MARKUP.sub(r"\\\1", " ".join(text.split()))


def code(text: str) -> str:
    """Return a text as code, also in a cell of a table."""
    return "`" + text.replace("|", "\\|") + "`" if text else ""


def table(titles: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Return the lines of a table; cells are Markdown."""
    lines = [f"| {' | '.join(titles)} |", "|" + "---|" * len(titles)]
    return [*lines, *(f"| {' | '.join(row)} |" for row in rows), ""]


def library_pages() -> dict[str, str]:
    """Return a page for each group of the library: its choices, and a card of each; by file name."""
    order = {group: i for i, group in enumerate(_TITLES)}
    groups = sorted(shelf.groups(), key=lambda group: order.get(group, len(order)))
    return {f"library/{group}.md": _page_of_group(group) for group in groups}


def _page_of_group(group: str) -> str:
    usual = shelf.usual().get(group, "")
    names = shelf.choices(group)
    said = {name: shelf.about(path) if (path := shelf.path_of(group, name)) else "" for name in names}
    way = f"`-m +sweeps=NAME`" if group == shelf.STUDIES else f"`{group}=NAME`"
    lines = [f"# {_TITLES.get(group, group)}", "", f"The group `{group}`: choose with {way}."]
    lines += [f"Without a choice it is [`{usual}`](#{usual})." if usual else "", ""]
    if group == "chip":
        lines += _table_of_chips(names)
    else:
        first = ((f"[`{name}`](#{_anchor(name)})", escaped(shelf.first_sentence(said[name]))) for name in names)
        lines += table((group, "what it is"), first)
    for name in names:
        lines += [f"## {name}", "", escaped(said[name]), "", *_card(group, name)]
    return "\n".join(lines)


def _anchor(name: str) -> str:
    return name.lower()


def _card(group: str, name: str) -> list[str]:
    """Return the figures of a choice with their sources; of a group that sets keys of others, its file."""
    found = _figures(group, name)
    if not found:
        path = shelf.path_of(group, name)
        assert path is not None, (group, name)
        return ["```yaml", path.read_text(encoding="utf-8").rstrip(), "```", ""]
    uncertain = any(figure.spread for figure in found)
    titles = ("key", "value", *(("uncertainty",) if uncertain else ()), "source")
    rows, before = [], ""
    for figure in found:
        source = _SAME if figure.source and figure.source == before else escaped(figure.source)
        before = figure.source
        spread = [escaped(figure.spread)] if uncertain else []
        rows.append([code(figure.key), escaped(figure.value), *spread, source])
    made = ["It comes to:", "", *(f"- {escaped(line)}" for line in _made(name, found)), ""] if group == "chip" else []
    return [*made, *table(titles, rows)]


def _figures(group: str, name: str) -> list[Figure]:
    """Return the figures of a choice that lie in its own section; none where it sets keys of others."""
    if group in (shelf.STUDIES, "links"):
        return []
    with hydra_rules():
        found = figures(Composer.of_library(), [f"{group}={name}"])
    return [one for one in found if one.key.startswith(f"{group}.")]


_OF_PRODUCTS = ("model=gemm", "system.devices=1", "uncertainty=off")
_RATE = "chip.rate."


def _made(name: str, found: Sequence[Figure]) -> list[str]:
    """Return what a chip comes to: its memories, and its rate in each data type."""
    from fastflow.api import evaluate
    from fastflow.show.library import made_of

    dtypes = [one.key.removeprefix(_RATE) for one in found if one.key.startswith(_RATE)]
    return made_of(evaluate(f"chip={name}", *_OF_PRODUCTS, f"model.dtype={','.join(dtypes)}"))


def _table_of_chips(names: Sequence[str]) -> list[str]:
    """Return the table of all chips with what they have."""
    from fastflow.api import evaluate
    from fastflow.show.tables import quantity, records

    shown = {"compute_flops": "fp16", "dram_capacity_B": "capacity", "dram_Bps": "rate", "l2_B": "L2"}
    keys = {"node": "tech.name", "memory": "mem.name", "die": "chip.die_area", "power": "chip.tdp"}
    frame = evaluate(f"chip={','.join(names)}", *_OF_PRODUCTS, "model.dtype=fp16")
    rows = []
    for name, row in zip(names, records(frame), strict=True):
        with hydra_rules():
            said = Composer.of_library().compose([f"chip={name}"]).leaves
        texts = [escaped(str(said[key])) for key in keys.values()]
        rows.append([f"[`{name}`](#{_anchor(name)})", *texts, *(quantity(key, row[key]) for key in shown)])
    return table(("chip", *keys, *shown.values()), rows)


def page_of_keys() -> str:
    """Return the page of all keys of a configuration: default, unit, what is allowed, meaning."""
    with hydra_rules():
        found = {name: figures(Composer.of_library(config_name=name), []) for name in _PRIMARY}
    values = {figure.key: figure.value for figure in found["config"]}
    lines = [
        "# Keys", "",
        "Every key that a command line, a file or a Python call can set. `*` is a name that you choose, `l*` a level of",
        "on-chip memory. The default is that of the usual choices (`tech=n12`, `mem=hbm2`, ...); other choices of the",
        "[library](../../library.md) have their own. Keys without a default are of other choices, or optional.", "",
    ]  # fmt: skip
    sections: dict[str, list[Sequence[str]]] = {}
    for column in INPUTS:
        default = values.get(column.name, "")
        if "*" in column.name:
            of_it = [value for key, value in values.items() if find_input(key) is column]
            default = ", ".join(dict.fromkeys(of_it))
        allowed = column.allowed() + (f"; or missing: {column.absent}" if column.absent else "")
        row = (code(column.name), escaped(default), escaped(allowed), escaped(column.meaning))
        sections.setdefault(column.name.partition(".")[0], []).append(row)
    for section, rows in sections.items():
        lines += [f"## {section}", "", *table(("key", "default", "allowed", "meaning"), rows)]
    lines += ["## Keys of the commands", "", "These are not inputs of the model: they say what a command does.", ""]
    seen = set(values)
    for name, of_it in found.items():
        own = [one for one in of_it if (name == "config" or one.key not in seen) and find_input(one.key) is None]
        seen |= {one.key for one in own}
        command = "sweep, and all others" if name == "config" else name
        rows = [(code(one.key), escaped(one.value)) for one in own]
        lines += [f"### {command}", "", *table(("key", "default"), rows)]
    return "\n".join(lines)


def page_of_command_lines() -> str:
    """Return the page of what every command says of itself under `--help`."""
    lines = ["# Command lines", "", "What each command prints under `--help`. `fastflow NAME` is `python -m fastflow.NAME`.", ""]
    for name, text in help_texts().items():
        lines += [f"## {name}", "", "```text", text.strip("\n"), "```", ""]
    return "\n".join(lines)


def help_texts() -> dict[str, str]:
    """Return what commands print under `--help`, by command."""
    from fastflow import __main__ as named
    from fastflow.cli.application import PRIMARY, run_application
    from fastflow.report import main as report

    texts = {"fastflow": _printed(lambda: named.main(["--help"]))}
    for name in named.COMMANDS:
        if name in PRIMARY:
            with patch.object(sys, "argv", [f"python -m fastflow.{name}", "--help"]):
                texts[f"fastflow {name}"] = _printed(lambda name=name: run_application(name))
        else:
            assert name == "report", f"a command whose help is not asked for: {name}"
            texts[f"fastflow {name}"] = _printed(lambda: report(["--help"]))
    for name in ("list", "show"):
        texts[f"fastflow {name}"] = _printed(lambda name=name: named.main([name, "--help"]))
    return texts


def _printed(run) -> str:  # type: ignore[no-untyped-def]
    """Return what a command prints before it ends."""
    out = io.StringIO()
    with redirect_stdout(out):
        try:
            run()
        except SystemExit as end:
            assert not end.code, end
    return out.getvalue()


def page_of_notebooks(folder: Path) -> str:
    """Return the page that lists the notebooks of a folder."""
    lines = ["# Notebooks", "", "Notebooks show fastflow from Python. They lie in `docs/notebooks/`, with the outputs that they had.", ""]
    there = [f"../notebooks/{path.stem}" for path in sorted(folder.glob("*.ipynb"))]
    return "\n".join([*lines, "```{toctree}", ":maxdepth: 1", "", *there, "```", ""] if there else lines)


def pages(docs: Path) -> dict[str, str]:
    """Return all pages, by file name; docs: the folder of the sources."""
    return library_pages() | {
        "reference/keys.md": page_of_keys(),
        "reference/command_lines.md": page_of_command_lines(),
        "notebooks.md": page_of_notebooks(docs / "notebooks"),
    }


def write(docs: Path) -> None:
    """Write the pages that have changed, and remove those that are no more; docs: the folder of the sources."""
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
