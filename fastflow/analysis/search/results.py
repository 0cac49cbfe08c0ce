"""Answer of a search as tables and files: ranking, Pareto front, and chip files of the best designs."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from omegaconf import OmegaConf

from fastflow.analysis.search.optimizers.objective import LACKS_MEMORY
from fastflow.analysis.search.probabilities import with_chance_of_first, with_chance_on_front
from fastflow.analysis.search.ranges import KEY, in_order
from fastflow.analysis.search.run import Answer
from fastflow.config.chip_file import chip_text
from fastflow.config.composer import Composer
from fastflow.config.messages import counted, key_of
from fastflow.config.model_inputs import SEARCH_KEYS
from fastflow.core.errors import InputError
from fastflow.core.pareto import nondominated
from fastflow.core.tables import Bools, Floats, Ints
from fastflow.engine.dataset.folder import FRONT, RANKING, folder_at, is_url
from fastflow.engine.dataset.schema import field_of
from fastflow.engine.dataset.store import PART
from fastflow.engine.grid.plan import overrides_of
from fastflow.physics.parallelism.strategy import AUTO
from fastflow.schema import find_input

BEST = "-best"
"""What the best designs are called after the folder of their search's history."""


class BestChip(NamedTuple):
    """The best design of candidates that compete."""

    candidate: int
    text: str  # of a file that `chip=FILE` accepts
    name: str  # what tells it from the best designs of others, "" where it is the only one
    overrides: tuple[str, ...]  # that predict it, beside `chip=FILE`


def ranked(answer: Answer) -> Ints:
    """Return the candidates, those that compete together, the best first, those left out last."""
    return in_order(answer.candidates.group, answer.score, answer.reason != "")


def ranking(answer: Answer) -> pa.Table:
    """Return the best design of every candidate as a row, in the order of `ranked`."""
    order = ranked(answer)
    group = answer.candidates.group[order]
    rank = np.arange(order.size) - np.searchsorted(group, group) + 1
    history = answer.history.table()
    best = history.take(answer.best[order])
    first = history.take(order)
    own = first["objective"].to_numpy()
    found = best["objective"].to_numpy()
    searched = answer.reason[order] == ""
    reason = np.where(searched, best["reason"].to_pylist(), answer.reason[order])
    best = best.set_column(
        best.schema.get_field_index("reason"), best.schema.field("reason"), pa.array(reason.tolist())
    )
    columns = {
        "rank": rank,
        **{name: best[name] for name in best.schema.names if name not in ("design", "step")},
        "own_objective": own,
        "own_feasible": first["feasible"],
        "gain": own / found,
        "gap": _gaps(found, group, searched & (answer.score[order] < LACKS_MEMORY)),
        "designs": answer.spent[order],
    }
    kinds = {
        "rank": "int",
        "own_objective": "float",
        "own_feasible": "bool",
        "gain": "float",
        "gap": "float",
        "designs": "int",
    }
    fields = [field_of(name, kinds[name]) if name in kinds else best.schema.field(name) for name in columns]
    of_objective = best.schema.field("objective").metadata[b"unit"]
    place = list(columns).index("own_objective")
    fields[place] = fields[place].with_metadata({**fields[place].metadata, b"unit": of_objective})
    arrays = [
        pa.array(column, type=field.type, from_pandas=True) if isinstance(column, np.ndarray) else column
        for field, column in zip(fields, columns.values(), strict=True)
    ]
    report = answer.candidates.grid.report
    about = {**best.schema.metadata, **({"fastflow.report": report} if report else {})}
    about[KEY] = answer.ranges.written
    table = pa.table(arrays, schema=pa.schema(fields, metadata=about))
    return with_chance_of_first(answer, table, answer.best[order])


def _gaps(objective: Floats, group: Ints, counts: Bools) -> Floats:
    """Return by how much objectives are above the first one of those that compete, relative to it.

    counts: which candidates were searched, and have the memory if any has; NaN for the others.
    """
    first = np.searchsorted(group, group)
    gaps = np.maximum(objective / objective[first] - 1.0, 0.0)
    return np.where(counts, gaps, np.nan)


def front(answer: Answer) -> pa.Table:
    """Return the designs that no other beats in both objectives, front after front of those that compete.

    Designs that are not feasible count only where a group has no other.
    """
    history = answer.history.table()
    group = answer.candidates.group[history["candidate"].to_numpy()]
    first, second = (history[name].to_numpy() for name in ("objective", "second_objective"))
    feasible = history["feasible"].to_numpy(zero_copy_only=False)
    rows: list[int] = []
    for one in np.unique(group):
        members = (group == one) & ~np.isnan(first)
        if (members & feasible).any():
            members &= feasible
        inside = np.flatnonzero(members)
        rows += inside[nondominated(first[inside], second[inside])].tolist()
    return with_chance_on_front(answer, history.take(np.array(rows, dtype=np.int64)).drop_columns("step"))


def chips(
    answer: Answer, composer: Composer, overrides: Sequence[str], spans: Mapping[str, Any] | None
) -> list[BestChip]:
    """Return the best design of every group of candidates that compete, where it has a time."""
    order = ranked(answer)
    group = answer.candidates.group[order]
    heads = order[np.unique(group, return_index=True)[1]]
    labels = answer.candidates.labels
    telling = [
        name
        for name in answer.candidates.grid.keys
        if name in labels and len({str(text) for text in labels[name][heads]}) > 1
    ]
    table = answer.history.table()
    found = []
    for candidate in heads.tolist():
        row = table.slice(int(answer.best[candidate]), 1).to_pylist()[0]
        if row["time_s"] is None:
            continue
        texts = overrides_of(composer, overrides, spans, int(answer.candidates.point[candidate]))
        section: Any = OmegaConf.to_container(composer.compose(texts).config["chip"], resolve=True)
        strategy = str(answer.candidates.strategy[candidate])
        beside = answer.candidates.beside
        own = [text for text in texts if not _replaced(text) and key_of(text) not in beside]
        own += [f"parallel.strategy={strategy}"]
        own += [
            f"{key}={column[candidate]}"
            for key, column in beside.items()
            if not _is_auto(key, column[candidate])
        ]
        own += _lost(composer, own, labels, candidate)
        shares = {key: row[key] for key in answer.candidates.space.keys}
        name = "-".join(_named(key, labels[key][candidate]) for key in telling)
        where = f"{row['devices']:,} devices, {row['tech']}, {row['mem']}, {row['net']}"
        about = f"{row['model']} on {where}, {strategy}, by {answer.options.objective}"
        changed = [key for key in map(key_of, texts) if key.startswith("chip.")]
        text = chip_text(section, shares, about, _how(answer, own), changed)
        found.append(BestChip(candidate=candidate, text=text, name=name, overrides=tuple(own)))
    return found


def _named(key: str, choice: Any) -> str:
    """Name a choice in a file's name: of a group by itself, of a leaf after its key."""
    text = f"{choice:g}" if isinstance(choice, float) else str(choice)
    text = re.sub(r"[^\w.]+", "_", Path(text).stem if text.endswith(".yaml") else text)
    return f"{key.rpartition('.')[2]}_{text}" if "." in key else text


def _is_auto(key: str, value: Any) -> bool:
    """Say whether a value of an input stands for what is usual."""
    column = find_input(key)
    return value == AUTO or (column is not None and value == column.auto)


def _replaced(text: str) -> bool:
    """Say whether an override says what the chip's file, or the search alone, does."""
    section = re.split(r"[.@]", key_of(text))[0]
    return (
        section in ("chip", "output", "engine", "report", *SEARCH_KEYS) or key_of(text) == "parallel.strategy"
    )


def _lost(
    composer: Composer, own: Sequence[str], labels: Mapping[str, NDArray[Any]], candidate: int
) -> list[str]:
    """Return the technologies and the tiling that the template chose, and a chip's file does not."""
    without = composer.compose((*own, "chip=pathfinding")).choices
    return [
        f"{group}={labels[group][candidate]}"
        for group in ("tech", "mem", "net", "tiling")
        if without[group] != labels[group][candidate]
    ]


def _how(answer: Answer, own: Sequence[str]) -> str:
    """Write how a design was found."""
    rules, starts = answer.options.rules, answer.options.rules.starts
    many = f"{counted(starts, 'start')} of {counted(rules.steps, 'step')}, seed {rules.seed}"
    return f"python -m fastflow.search {shlex.join(own)} ({rules.method}, {many})"


def check_beside(output: str) -> None:
    """Refuse an output beside which something else lies where the answers go; raises InputError."""
    for suffix in (RANKING, FRONT):
        folder = folder_at(output + suffix)
        for name in folder.names():
            if name != PART and not name.startswith(("_", ".")):
                allowed = f"a path with nothing else beside it; {folder.shown} holds {name}"
                raise InputError("output", output, allowed)
    best = chips_at(output)
    for path, right in ((best.with_name(f"{best.name}.yaml"), Path.is_file), (best, Path.is_dir)):
        if path.exists() and not right(path):
            raise InputError("output", output, f"a path with nothing else beside it; {path} is in the way")


def chips_at(output: str) -> Path:
    """Return where the best designs go: beside a history, or to the working folder if that is at a URL."""
    return Path((Path(output).name if is_url(output) else output.rstrip("/")) + BEST)


def write_chips(output: str, found: Sequence[BestChip]) -> str:
    """Write a chip to a file, or several to a folder of files; returns the file or folder."""
    best = chips_at(output)
    alone = len(found) == 1
    folder = folder_at(best.parent if alone else best)
    folder.make()
    for chip in found:
        content = chip.text.encode()

        def into(file: IO[bytes], content: bytes = content) -> None:
            file.write(content)

        folder.write(f"{best.name if alone else chip.name}.yaml", into)
    return f"{best}.yaml" if alone else str(best)
