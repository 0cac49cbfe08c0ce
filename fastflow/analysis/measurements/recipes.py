"""What a row of a training run leaves unsaid, and its source or its recipe says.

A *source* is a publication with a model: tables `chunks` and `types`. A *recipe* is a framework's
configuration of a model for a device, in a year: tables `pipelines`, `expert_parallel`, `dispatchers` and
`hidden`. Adapters are in the name of a model: table `adapters` (section `training` of
conf/measurement_files.yaml).
"""

from __future__ import annotations

import re

import numpy as np

from fastflow.analysis.measurements.csv_file import InputColumn
from fastflow.analysis.measurements.system_runs import SystemRuns
from fastflow.config.messages import one_of
from fastflow.core.errors import InputError
from fastflow.core.tables import Ints
from fastflow.physics.parallelism.options import AUTO, DISPATCHER
from fastflow.physics.parallelism.pipeline_layout import KEY as LAYOUT
from fastflow.physics.parallelism.pipeline_layout import parse as parse_pipeline
from fastflow.physics.workload.models.transformer import lora

OVERLAP, HIDDEN = "parallel.overlap", ("tensor", "context", "expert", "data", "pipeline")
"""The section of overlap, and its exchanges."""
TABLES = ("adapters", "chunks", "types", "expert_parallel", "dispatchers", "hidden", "pipelines")
USUAL_RANK = 16  # of adapters whose name has none
_EXPERTS = "model.experts"  # of which each device has some: a number, as a degree is
_RANK = re.compile(r"(?i)\br(?:ank)?[ _=]?([0-9]+)\b")


class RecipeRuns(SystemRuns):
    """Training runs, with what their sources and recipes say."""

    def _of_source(self, table: str, key: str) -> list[str]:
        """Return what a table has for the source and the model of rows; as `_values_of`."""
        return self._values_of(table, key, "source", "model")

    def _of_recipe(self, table: str, key: str) -> list[str]:
        """Return what a table has for the framework, year, model and device of rows; as `_values_of`."""
        return self._values_of(table, key, "framework", "year", "model", self.device_column)

    def _values_of(self, table: str, key: str, *columns: str) -> list[str]:
        """Return the values of the names of a table that match cells side by side, "" for none.

        key: an input that allows the words of such a value, or the section of those that the words name.
        Raises InputError for others.
        """
        texts = [" ".join(cells) for cells in zip(*map(self._cells, columns), strict=True)]
        names = self._match_names(table, texts)
        values = {name: self.tables[table].get(name, "") for name in dict.fromkeys(names.tolist())}
        for name, value in values.items():
            for word in value.split():
                if key != OVERLAP:
                    self._convert_entry(table, name, key, word)
                elif word not in HIDDEN:
                    raise InputError(f"{self.section}.{table}.{name}", value, one_of(HIDDEN))
        return [values[name] for name in names]

    def _read_adapters(self) -> None:
        """Read adapters by the model's name: which products have them, and how wide they are."""
        targets = self._values_of("adapters", lora.TARGETS, "model")
        has = np.array(targets) != ""
        if not has.any():
            return
        matches = [_RANK.search(text) for text in self._cells("model")]
        ranks = [int(match[1]) if match else USUAL_RANK for match in matches]
        stated = {
            lora.RANK: InputColumn(np.array(ranks), has),
            lora.TARGETS: InputColumn(np.array(targets), has),
        }
        for key, column in self._with_adapters(stated).items():
            self._set_input(key, *column)

    def _read_pipelines(self, virtual: Ints) -> None:
        """Set the layout of a recipe that has as many virtual stages as a row, (rows,)."""

        def fitting(texts: str, stages: int) -> str:
            return next((text for text in texts.split() if len(parse_pipeline(text)) == stages), AUTO)

        of_rows = zip(self._of_recipe("pipelines", LAYOUT), virtual.tolist(), strict=True)
        layouts = np.array([fitting(*row) for row in of_rows])
        self._set_default(LAYOUT, layouts, layouts != AUTO)

    def _expert_degrees(self) -> Ints:
        """Return the expert parallelism of a recipe, 0 without one, (rows,)."""
        return np.array([int(text or 0) for text in self._of_recipe("expert_parallel", _EXPERTS)])

    def _read_dispatcher(self) -> None:
        """Set the dispatcher of experts' tokens that a recipe has."""
        dispatchers = np.array([text or AUTO for text in self._of_recipe("dispatchers", DISPATCHER)])
        self._set_default(DISPATCHER, dispatchers, dispatchers != AUTO)

    def _read_hidden(self) -> None:
        """Set the exchange that a recipe hides, in rows that say nothing of it."""
        hidden = np.array(self._of_recipe("hidden", OVERLAP))
        for name in HIDDEN:
            self._set_default(f"{OVERLAP}.{name}", np.ones(self.rows, np.bool_), hidden == name)
