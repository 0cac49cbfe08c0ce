"""What a row of a training run leaves unsaid, and its source or its recipe says.

A *source* is a publication with a model: tables `chunks` and `types`. A *recipe* is a framework's
configuration of a model for a device, in a year: tables `pipelines`, `dispatchers` and `hidden`. Adapters are
in the name of a model: table `adapters` (section `training` of conf/measurement_files.yaml).
"""

from __future__ import annotations

import re

import numpy as np

from fastflow.analysis.measurements.system_runs import SystemRuns
from fastflow.core.tables import Ints
from fastflow.physics.parallelism.options import AUTO, DISPATCHER
from fastflow.physics.parallelism.pipeline_layout import KEY as LAYOUT
from fastflow.physics.parallelism.pipeline_layout import parse as parse_pipeline
from fastflow.physics.workload.models.transformer import lora
from fastflow.physics.workload.models.transformer.lora import DEFAULTS as ADAPTERS

OVERLAP = "parallel.overlap"
TABLES = ("adapters", "chunks", "types", "dispatchers", "hidden", "pipelines")
USUAL_RANK = 16  # of adapters whose name has none
_RANK = re.compile(r"(?i)\br(?:ank)?[ _=]?([0-9]+)\b")


class RecipeRuns(SystemRuns):
    """Training runs, with what their sources and recipes say."""

    def _of_source(self, table: str) -> list[str]:
        """Return what a table has for the source and the model of rows, "" for nothing."""
        return self._values_of(table, "source", "model")

    def _of_recipe(self, table: str) -> list[str]:
        """Return what a table has for the framework, year, model and device of rows, "" for nothing."""
        return self._values_of(table, "framework", "year", "model", self.device_column)

    def _values_of(self, table: str, *columns: str) -> list[str]:
        """Return the values of the names of a table that match cells side by side, "" for none."""
        texts = [" ".join(cells) for cells in zip(*map(self._cells, columns), strict=True)]
        return [self.tables[table].get(name, "") for name in self._match_names(table, texts)]

    def _read_adapters(self) -> None:
        """Read adapters by the model's name: which products have them, and how wide they are."""
        targets = self._values_of("adapters", "model")
        has = np.array(targets) != ""
        if not has.any():
            return
        ranks = [_RANK.search(text) for text in self._cells("model")]
        stated = {lora.RANK: [int(rank[1]) if rank else USUAL_RANK for rank in ranks], lora.TARGETS: targets}
        for key, default in ADAPTERS.items():
            self._set_input(key, np.array(stated.get(key, [default] * self.rows)), has)

    def _read_pipelines(self, virtual: Ints) -> None:
        """Set the layout of a recipe that has as many virtual stages as a row, (rows,)."""

        def fitting(texts: str, stages: int) -> str:
            return next((text for text in texts.split() if len(parse_pipeline(text)) == stages), AUTO)

        of_rows = zip(self._of_recipe("pipelines"), virtual.tolist(), strict=True)
        layouts = np.array([fitting(*row) for row in of_rows])
        said, unsaid = self.inputs.get(LAYOUT), ~self._is_set(LAYOUT)
        values = layouts if said is None else np.where(unsaid, layouts, said.values)
        self._set_input(LAYOUT, values, ~unsaid | (layouts != AUTO))

    def _read_dispatcher(self) -> None:
        """Set the dispatcher of experts' tokens that a recipe has."""
        dispatchers = np.array([text or AUTO for text in self._of_recipe("dispatchers")])
        self._set_input(DISPATCHER, dispatchers, dispatchers != AUTO)

    def _read_hidden(self) -> None:
        """Set the exchange that a recipe hides, in rows that say nothing of it."""
        hidden = np.array(self._of_recipe("hidden"))
        for name in {*hidden.tolist()} - {""}:
            key = f"{OVERLAP}.{name}"
            column = self.inputs[key]
            unsaid = (hidden == name) & ~column.is_set
            self._set_input(key, np.where(unsaid, True, column.values), column.is_set | unsaid)
