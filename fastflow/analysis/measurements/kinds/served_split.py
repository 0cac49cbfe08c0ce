"""Served operating points whose prefill and decode are on servers of their own.

Their recipes are in conf/served_splits.yaml. Where none fits, prefill has as many workers as the row says, or
one, and so has decode; attention ranks are those of the row.
"""

from __future__ import annotations

import numpy as np

from fastflow.analysis.measurements.closed_loop import TPOT, time_of_line
from fastflow.analysis.measurements.kind import register
from fastflow.analysis.measurements.kinds.serving import ServedPoints
from fastflow.analysis.measurements.served_recipes import UNVERSIONED, drafting, words_of
from fastflow.analysis.measurements.splits import (
    DATA,
    EXPERT,
    TENSOR,
    Split,
    Workers,
    by_speed,
    fitting,
    read_splits,
)
from fastflow.core.tables import Ints
from fastflow.physics.parallelism.strategy import TENSOR as PLAN
from fastflow.physics.parallelism.strategy import Strategy

_PHASES = ("prefill", "decode")
_PREFILL_DEVICES, _PREFILL_STRATEGY = "serve.prefill.devices", "serve.prefill.strategy"


@register
class SplitPoints(ServedPoints):
    """Operating points of servers of prefill and servers of decode, in a closed loop."""

    name = "served points, prefill and decode apart"
    needed = ("isl", "osl", "prefill_tp_size", "decode_tp_size")
    other_columns = (
        "system", "model", "precision", "mode", "backend", "backend_version",
        *(
            f"{phase}_{name}" for phase in _PHASES for name in (
                "batch_size", "num_workers", "tp_size", "pp_size", "attention_dp_size", "moe_tp_size",
                "moe_ep_size",
            )
        ),
        *ServedPoints.keys_of_columns,
    )  # fmt: skip
    alias_tables = (*ServedPoints.alias_tables, "splits")
    mode = "disaggregated"

    def _read_layout(self) -> None:
        """Read the workers of both phases from the recipe that fits a row."""
        loads = self._whole_numbers("concurrency", 0)
        unsaid = loads == 0
        batches = self._whole_numbers("decode_batch_size", 0) * self._phase("decode", "num_workers", 0)
        loads = np.where(unsaid, batches * self._phase("decode", "attention_dp_size"), loads)
        self.splits = self._find_splits(loads)
        strategies = [_strategy(split.decode) for split in self.splits]
        prefills = np.array([split.prefill.number * split.prefill.devices for split in self.splits])
        decodes = np.array([split.decode.number * split.decode.devices for split in self.splits])
        self.ranks = np.array([split.decode.strategy[2] for split in self.splits])
        self._set_input("serve.concurrency", loads)
        self._set_input("parallel.strategy", np.array(strategies))
        self._set_input("system.devices", prefills + decodes)
        self._set_input(_PREFILL_DEVICES, prefills)
        self._set_input(_PREFILL_STRATEGY, np.array([_strategy(split.prefill) for split in self.splits]))
        for row, split in enumerate(self.splits):
            if split.drafts:
                self.settings[row] = drafting(split.drafts) | self.settings[row]
        most = np.array([split.most * split.decode.strategy[2] for split in self.splits])
        self._set_input("serve.batch", most, most > 0)

    def _unranked(self) -> list[str]:
        return [""] * self.rows

    def _phase(self, phase: str, name: str, default: int = 1) -> Ints:
        return self._whole_numbers(f"{phase}_{name}", default)

    def _find_splits(self, loads: Ints) -> list[Split]:
        """Return the recipe of every row."""
        known = {
            frozenset(name.split()): read_splits(f"{self.section}.splits.{name}", text)
            for name, text in self.tables["splits"].items()
        }
        versions = [text or UNVERSIONED for text in self._cells("backend_version")]
        columns = (self._cells(name) for name in ("model", "backend", self.device_column, "precision"))
        tpot = time_of_line(self.file.line, self.part, self.measured, TPOT)
        said = [self._said(phase) for phase in _PHASES]
        keys, candidates = [], []
        for row, texts in enumerate(zip(*columns, versions, strict=True)):
            words = words_of(texts, {"isl": self.isl[row], "osl": self.osl[row]})
            of_row = [split for names, splits in known.items() if names <= words for split in splits]
            pairs = [tuple(int(column[row]) for column in phase) for phase in said]
            candidates.append(fitting(of_row, int(loads[row]), pairs))
            keys.append((words, int(loads[row]), *pairs))
        times: dict[object, list[float]] = {}
        for key, time in zip(keys, tpot.tolist(), strict=True):
            times.setdefault(key, []).append(time)
        return [
            by_speed(fits, time, times[key]) if fits else self._by_columns(row)
            for row, (fits, time, key) in enumerate(zip(candidates, tpot.tolist(), keys, strict=True))
        ]

    def _said(self, phase: str) -> tuple[Ints, Ints]:
        """Return the workers and the devices of a worker that rows say, 0 where they do not."""
        workers = self._phase(phase, "num_workers", 0)
        devices = self._phase(phase, "tp_size") * self._phase(phase, "attention_dp_size")
        return workers, np.asarray(devices)

    def _by_columns(self, row: int) -> Split:
        """Return the split that the columns of a row say."""

        def workers(phase: str) -> Workers:
            tensor, ranks, experts = (
                int(self._phase(phase, name)[row]) for name in ("tp_size", "attention_dp_size", "moe_ep_size")
            )
            kind = DATA if ranks > 1 else EXPERT if experts > 1 else TENSOR
            return Workers(int(self._phase(phase, "num_workers")[row]), kind, tensor * ranks)

        return Split(workers("prefill"), workers("decode"), 0, 0, frozenset())

    def _choices(self, row: int) -> dict[str, str]:
        return super()._choices(row) | {"serve": self.mode}


def _strategy(workers: Workers) -> str:
    """Write the layout of all workers of a phase in the notation of strategies."""
    tensor, experts, ranks = workers.strategy
    return str(Strategy(PLAN, tp=tensor, ep=experts, dp=ranks * workers.number, pp=1))
