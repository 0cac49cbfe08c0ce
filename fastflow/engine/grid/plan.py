"""Plan of a grid: from terms to axes, compositions and input columns."""

from __future__ import annotations

import hashlib
import itertools
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from omegaconf import OmegaConf

from fastflow.config.composer import Composer
from fastflow.config.engine_settings import settings
from fastflow.config.hydra_composer import Composition, related
from fastflow.config.list_keys import COLUMNS, joined
from fastflow.config.messages import one_of
from fastflow.config.model_inputs import FILES, Scalar
from fastflow.config.uncertainty import refuse_sweep, sampling, uncertainty_of
from fastflow.core.errors import InputError
from fastflow.core.tables import Ints
from fastflow.core.uncertainty.sampling import Uncertainty
from fastflow.engine.grid.compose import INTERPOLATED, Composed, compose_all, keys_of_texts
from fastflow.engine.grid.grid import Axis, Block, Grid, Provenance, Unset, batches_of
from fastflow.engine.grid.overrides import Term, axes_of, combinations, grids_of, read_terms
from fastflow.engine.grid.run import Run
from fastflow.performance.accuracy.table import digest as accuracy_digest
from fastflow.physics.workload import point_has_layer_runs
from fastflow.schema import ALL, SOME
from fastflow.schema.results import ASSUMPTIONS
from fastflow.schema.serving import NO_SERVING
from fastflow.schema.studies import STUDIES

_REFERENCE = re.compile(r"\$\{([^{}]*)\}")
_OUTPUT_KEYS = ("output", "trace", "picture", "html", COLUMNS)
"""Keys of output files, and of the columns that tables show."""
_MODE, _LOAD_KEY = "serve.mode", "serve.isl"
CHOICES = ("tech", "mem", "net", "chip", "system", "model", "tiling")
"""The groups whose choice is a result column of every dataset."""


def overrides_of(
    composer: Composer, overrides: Sequence[str], sweeper: Mapping[str, Any] | None, point: int
) -> tuple[str, ...]:
    """Return the overrides of one point of the grid that overrides span, as `plan` takes them."""
    for terms in grids_of(composer, overrides, sweeper):
        axes = axes_of(terms)
        points = prod(axis.size for axis in axes)
        if point < points:
            return next(itertools.islice(combinations(terms, axes), point, None))
        point -= points
    raise IndexError(point)


def plan(
    composer: Composer,
    overrides: Sequence[str],
    sweeper: Mapping[str, Any] | None = None,
    say: Callable[[str], None] = lambda line: None,
) -> Run:
    """Plan the grid that overrides span; raises InputError.

    sweeper: the section `hydra.sweeper` (`params`, `zip`, `union`), which precede
    the overrides; by default that of the composed configuration. say: prints the status of slow steps.
    """
    grids = grids_of(composer, overrides, sweeper)
    composed = [compose_all(composer, terms, say) for terms in grids]
    as_texts = keys_of_texts(composed)
    composed = [
        compose_all(composer, terms, say, as_texts) if as_texts & block.columns.keys() else block
        for terms, block in zip(grids, composed, strict=True)
    ]
    first = composed[0].first[0]
    _check_output(first, composed)
    with composer.naming_origins(first):
        options = settings(first.selected("engine"))
        served = _served(composed)
    blocks = _blocks(composed)
    inputs = [point for block in composed for point in block.inputs]
    batches, batch, row = batches_of(inputs)
    uncertainty = _uncertainty(composer, composed, batch, row)
    labels = _labels(composed)
    written = [tuple(term.written for term in terms if term.is_input) for terms in grids]
    grid = Grid(
        blocks=blocks,
        batches=batches,
        batch=batch,
        row=row,
        labels=labels,
        compositions=composer.compositions,
        levels=max(_levels(of_keys.columns) for of_keys in batches),
        has_layer_runs=any(map(point_has_layer_runs, inputs)),
        served=served,
        report=_report(composer, first),
        uncertainty=uncertainty,
        unset=_unset(composed),
        stock=np.array([stock for block in composed for stock in block.stock], dtype=np.bool_),
        provenance=Provenance(
            overrides=written[0] if len(written) == 1 else tuple(" ".join(texts) for texts in written),
            user_overrides=_user_overrides(composer, overrides) if _is_of_a_study(grids) else (),
            fingerprint=_fingerprint(inputs, labels, blocks, uncertainty),
        ),
    )
    outputs = composer.resolved(first, _OUTPUT_KEYS.__contains__)
    output, *others = (joined(outputs.get(key)) for key in _OUTPUT_KEYS)
    return Run(grid, options, output, first, *others)


def _is_of_a_study(grids: Sequence[Sequence[Term]]) -> bool:
    """Say whether a study pairs values or joins grids."""
    return len(grids) > 1 or any(term.zipped >= 0 for terms in grids for term in terms)


def _user_overrides(composer: Composer, overrides: Sequence[str]) -> tuple[str, ...]:
    """Return the user's overrides of inputs, as written."""
    terms = read_terms(composer, overrides, composer.origin_of_overrides)
    return tuple(term.written for term in terms if term.is_input)


def _uncertainty(
    composer: Composer, composed: Sequence[Composed], batch: Ints, row: Ints
) -> Uncertainty | None:
    """Return the uncertainty of a grid's inputs, None where results are not sampled; raises InputError."""
    refuse_sweep([term.key for block in composed for axis in block.axes for term in axis.terms])
    sampled = sampling(composer, composed[0].first[0])
    if sampled is None:
        return None
    return uncertainty_of(sampled, [point for block in composed for point in block.stated], batch, row)


def check_path(key: str, composition: Composition) -> None:
    """Refuse a list or a mapping in place of a path; raises InputError."""
    content = composition.content
    value: Any = content.get(key) if isinstance(content, dict) else content._get_node(key, False)
    is_node = OmegaConf.is_config(value) and not value._is_none() and not value._is_interpolation()
    if is_node or isinstance(value, dict | list):
        raise InputError(key, value, "a path or a URL")


def _check_output(first: Composition, composed: Sequence[Composed]) -> None:
    """Refuse an output folder that depends on a swept key: a grid is one dataset."""
    check_path("output", first)
    written = str(first.leaves.get("output"))
    references = [
        name for reference in _REFERENCE.findall(written) for name in INTERPOLATED.findall(reference)
    ]
    for key in (term.key for block in composed for axis in block.axes for term in axis.terms):
        if any(related(key, name) for name in references):
            raise InputError("output", written, f"a folder that does not depend on {key}, which is swept")


def _report(composer: Composer, first: Composition) -> str:
    """Return the study of the paper that a grid is judged as, "" for none; raises InputError."""
    name = str(first.selected("report") or "")
    if name and name not in STUDIES:
        raise InputError("report", name, f"null or {one_of(STUDIES)}", composer.origin("report", first))
    return name


def _served(composed: Sequence[Composed]) -> str:
    """Return which points serve, as `Grid.served`.

    Raises InputError where `serve` is none and its mode is not, or the other way round: a mode has the keys
    of its choice.
    """
    serves = []
    for block in composed:
        for point in block.inputs:
            serves.append(_LOAD_KEY in point)
            for mode in map(str, block.columns.get(_MODE, [point.get(_MODE, NO_SERVING)])):
                if (mode != NO_SERVING) != serves[-1]:
                    raise InputError(_MODE, mode, "none with serve=none, another mode with any other choice")
    return ALL if all(serves) else SOME if any(serves) else ""


def _levels(inputs: Iterable[str]) -> int:
    """Count the on-chip memory levels among input keys."""
    return len({key.split(".")[2] for key in inputs if key.startswith("chip.memory.")})


def _blocks(composed: Sequence[Composed]) -> tuple[Block, ...]:
    """Return the blocks, with the first point and combination of each."""
    blocks: list[Block] = []
    points = combinations = 0
    for block in composed:
        axes = tuple(
            Axis(tuple(term.key for term in axis.terms), axis.size, axis.terms[0].key in block.composed)
            for axis in block.axes
        )
        blocks.append(
            Block(axes=axes, columns=block.columns, first_point=points, first_combination=combinations)
        )
        points, combinations = points + blocks[-1].points, combinations + len(block.inputs)
    return tuple(blocks)


def _unset(composed: Sequence[Composed]) -> dict[int, Unset]:
    """Return the inputs without each of the user's keys, by combination of all blocks."""
    first = np.cumsum([0, *(len(block.inputs) for block in composed)]).tolist()
    return {
        start + index: values
        for start, block in zip(first, composed, strict=False)
        for index, values in block.unset.items()
    }


def _labels(composed: Sequence[Composed]) -> dict[str, NDArray[np.str_]]:
    """Name the choice of every combination: in the groups of every dataset, and of keys that are no input.

    A key that is no input somewhere, as a pin that only some combinations have, is a text everywhere.
    """
    all_choices = [choices for block in composed for choices in block.choices]
    labels = {group: [choices.get(group, "") for choices in all_choices] for group in CHOICES}
    for key in keys_of_texts(composed) - labels.keys():
        labels[key] = [text for block in composed for text in block.texts_of(key)]
    labels[ASSUMPTIONS.name] = [text for block in composed for text in block.assumptions]
    return {name: np.array(values, dtype=np.str_) for name, values in labels.items()}


def _digests(inputs: Sequence[Mapping[str, Scalar]], blocks: Sequence[Block]) -> dict[str, str]:
    """Return the SHA-256 of every file that an input names: its path does not identify its content."""
    names = {str(point[key]) for point in inputs for key in FILES if key in point}
    names |= {str(name) for block in blocks for key in FILES for name in block.columns.get(key, ())}
    return {name: hashlib.sha256(Path(name).read_bytes()).hexdigest() for name in sorted(names)}


def _fingerprint(
    inputs: Sequence[Mapping[str, Scalar]],
    labels: Mapping[str, NDArray[np.str_]],
    blocks: Sequence[Block],
    uncertainty: Uncertainty | None,
) -> str:
    """Return the SHA-256 of all inputs of the results."""
    content: dict[str, object] = {
        "axes": [[axis[:] for axis in block.axes] for block in blocks],
        "files": _digests(inputs, blocks),
        "accuracy": accuracy_digest(),
        "inputs": inputs,
        "labels": {name: values.tolist() for name, values in labels.items()},
    }
    if uncertainty is not None:
        content["uncertainty"] = uncertainty.content()
    digest = hashlib.sha256(json.dumps(content, sort_keys=True, separators=(",", ":")).encode())
    for block in blocks:
        for key, values in sorted(block.columns.items()):
            digest.update(f"{key} {values.dtype} {values.size} ".encode())
            digest.update(values.tobytes())
    return digest.hexdigest()
