"""Result of a search as tables and files: ranking, Pareto front, and chip files of the best designs."""

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
from fastflow.analysis.search.run import SearchResult
from fastflow.config.chip_file import chip_text
from fastflow.config.composer import Composer
from fastflow.config.messages import key_of, pluralize
from fastflow.config.model_inputs import SEARCH_KEYS
from fastflow.core.errors import InputError
from fastflow.core.pareto import nondominated
from fastflow.core.tables import Bools, Floats, Ints
from fastflow.engine.dataset import kinds
from fastflow.engine.dataset.folder import FRONT, RANKING, folder_at, is_url
from fastflow.engine.dataset.schema import result_field
from fastflow.engine.dataset.store import PART
from fastflow.engine.grid.plan import overrides_of
from fastflow.physics.parallelism.strategy import AUTO
from fastflow.schema import find_input

BEST = "-best"
"""Suffix of the best designs, after the folder of their search's history."""


class BestChip(NamedTuple):
    """The best design of a group of competing candidates."""

    text: str  # of a file that `chip=FILE` accepts
    name: str  # distinguishes it from the best designs of other groups; "" for a single group
    overrides: tuple[str, ...]  # that predict it, together with `chip=FILE`


def ranked(result: SearchResult) -> Ints:
    """Return the candidates by group; within a group the best first, those left out last."""
    return in_order(result.candidates.group, result.score, result.is_left_out)


def ranking(result: SearchResult) -> pa.Table:
    """Return the best design of every candidate as a row, in the order of `ranked`."""
    order = ranked(result)
    group = result.candidates.group[order]
    rank = np.arange(order.size) - np.searchsorted(group, group) + 1
    history = result.history.table()
    best = history.take(result.best[order])
    first = history.take(order)
    configured = first["objective"].to_numpy()
    best_objective = best["objective"].to_numpy()
    searched = ~result.is_left_out[order]
    for name, texts in result.left_out.items():
        of_ranked = np.where(searched, best[name].to_pylist(), texts[order]).tolist()
        index = best.schema.get_field_index(name)
        best = best.set_column(index, best.schema.field(name), pa.array(of_ranked))
    columns = {
        "rank": rank,
        **{name: best[name] for name in best.schema.names if name not in ("design", "step")},
        "baseline_objective": configured,
        "baseline_feasible": first["feasible"],
        "gain": configured / best_objective,
        "gap": _gaps(best_objective, group, searched & (result.score[order] < LACKS_MEMORY)),
        "designs": result.num_scored[order],
    }
    of_history = best.schema.names
    fields = [best.schema.field(name) if name in of_history else result_field(name) for name in columns]
    of_objective = best.schema.field("objective").metadata[b"unit"]
    index = list(columns).index("baseline_objective")
    fields[index] = fields[index].with_metadata({**fields[index].metadata, b"unit": of_objective})
    arrays = [
        pa.array(column, type=field.type, from_pandas=True) if isinstance(column, np.ndarray) else column
        for field, column in zip(fields, columns.values(), strict=True)
    ]
    report = result.candidates.grid.report
    metadata = {**best.schema.metadata, **({"fastflow.report": report} if report else {})}
    metadata[KEY] = result.ranges.written
    table = pa.table(arrays, schema=kinds.with_kind(pa.schema(fields, metadata=metadata), kinds.RANKING))
    return with_chance_of_first(result, table, result.best[order])


def _gaps(objective: Floats, group: Ints, counts: Bools) -> Floats:
    """Return the relative gaps of objectives to the best of their group.

    counts: which candidates were searched, and fit the memory if any does; NaN for the others.
    """
    first = np.searchsorted(group, group)
    gaps = np.maximum(objective / objective[first] - 1.0, 0.0)
    return np.where(counts, gaps, np.nan)


def front(result: SearchResult) -> pa.Table:
    """Return the nondominated designs of both objectives, group after group.

    Infeasible designs count only in a group without feasible ones.
    """
    history = result.history.table()
    group = result.candidates.group[history["candidate"].to_numpy()]
    first, second = (history[name].to_numpy() for name in ("objective", "second_objective"))
    feasible = history["feasible"].to_numpy(zero_copy_only=False)
    rows: list[int] = []
    for number in np.unique(group):
        members = (group == number) & ~np.isnan(first)
        if (members & feasible).any():
            members &= feasible
        inside = np.flatnonzero(members)
        rows += inside[nondominated(first[inside], second[inside])].tolist()
    designs = history.take(np.array(rows, dtype=np.int64)).drop_columns("step")
    designs = designs.cast(kinds.with_kind(designs.schema, kinds.FRONT))
    return with_chance_on_front(result, designs)


def chips(
    result: SearchResult, composer: Composer, overrides: Sequence[str], spans: Mapping[str, Any] | None
) -> list[BestChip]:
    """Return the best design of every group of competing candidates, where it has a time."""
    order = ranked(result)
    group = result.candidates.group[order]
    heads = order[np.unique(group, return_index=True)[1]]
    labels = result.candidates.labels
    distinguishing = [
        name
        for name in result.candidates.grid.keys
        if name in labels and len({str(text) for text in labels[name][heads]}) > 1
    ]
    table = result.history.table()
    best_chips = []
    for candidate in heads.tolist():
        row = table.slice(int(result.best[candidate]), 1).to_pylist()[0]
        if row["time_s"] is None:
            continue
        texts = overrides_of(composer, overrides, spans, int(result.candidates.point[candidate]))
        section: Any = OmegaConf.to_container(composer.compose(texts).config["chip"], resolve=True)
        strategy = str(result.candidates.strategy[candidate])
        extra_choices = result.candidates.extra_choices
        kept = [text for text in texts if not _is_in_chip_file(text) and key_of(text) not in extra_choices]
        kept += [f"parallel.strategy={strategy}"]
        kept += [
            f"{key}={column[candidate]}"
            for key, column in extra_choices.items()
            if not _is_auto(key, column[candidate])
        ]
        kept += _template_choices(composer, kept, labels, candidate)
        shares = {key: row[key] for key in result.candidates.space.keys}
        name = "-".join(_file_part(key, labels[key][candidate]) for key in distinguishing)
        where = f"{row['devices']:,} devices, {row['tech']}, {row['mem']}, {row['net']}"
        description = f"{row['model']} on {where}, {strategy}, by {result.options.objective}"
        changed = [key for key in map(key_of, texts) if key.startswith("chip.")]
        text = chip_text(section, shares, description, _provenance(result, kept), changed)
        best_chips.append(BestChip(text=text, name=name, overrides=tuple(kept)))
    return best_chips


def _file_part(key: str, choice: Any) -> str:
    """Return the part of a file's name for a choice: of a group its name, of a leaf key and value."""
    text = f"{choice:g}" if isinstance(choice, float) else str(choice)
    text = re.sub(r"[^\w.]+", "_", Path(text).stem if text.endswith(".yaml") else text)
    return f"{key.rpartition('.')[2]}_{text}" if "." in key else text


def _is_auto(key: str, value: Any) -> bool:
    """Say whether a value of an input is its automatic default."""
    column = find_input(key)
    return value == AUTO or (column is not None and value == column.auto)


def _is_in_chip_file(text: str) -> bool:
    """Say whether an override is replaced by the chip's file, or of the search alone."""
    section = re.split(r"[.@]", key_of(text))[0]
    return (
        section in ("chip", "output", "engine", "report", *SEARCH_KEYS) or key_of(text) == "parallel.strategy"
    )


def _template_choices(
    composer: Composer, overrides: Sequence[str], labels: Mapping[str, NDArray[Any]], candidate: int
) -> list[str]:
    """Return the technologies and the tiling that the template chooses and a chip's file lacks."""
    choices = composer.compose((*overrides, "chip=pathfinding")).choices
    return [
        f"{group}={labels[group][candidate]}"
        for group in ("tech", "mem", "net", "tiling")
        if choices[group] != labels[group][candidate]
    ]


def _provenance(result: SearchResult, overrides: Sequence[str]) -> str:
    """Return the command line that found a design, and its search's budget."""
    rules, starts = result.options.rules, result.options.rules.starts
    budget = f"{pluralize(starts, 'start')} of {pluralize(rules.steps, 'step')}, seed {rules.seed}"
    return f"python -m fastflow.search {shlex.join(overrides)} ({rules.method}, {budget})"


def check_result_paths(output: str) -> None:
    """Refuse an output whose paths of results hold something else; raises InputError."""
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
    """Return the path of the best designs: next to a history, or in the working folder if that is a URL."""
    return Path((Path(output).name if is_url(output) else output.rstrip("/")) + BEST)


def write_chips(output: str, best_chips: Sequence[BestChip]) -> str:
    """Write a chip to a file, or several to a folder of files; returns the file or folder."""
    best = chips_at(output)
    is_single = len(best_chips) == 1
    folder = folder_at(best.parent if is_single else best)
    folder.make()
    for chip in best_chips:
        content = chip.text.encode()

        def into(file: IO[bytes], content: bytes = content) -> None:
            file.write(content)

        folder.write(f"{best.name if is_single else chip.name}.yaml", into)
    return f"{best}.yaml" if is_single else str(best)
