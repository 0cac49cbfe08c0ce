"""Splits of servers whose prefill and decode are apart: workers, layouts and draft tokens of public recipes.

Files of such points leave out most of a recipe. The table `splits` (conf/served_splits.yaml) has recipes by
the words of a row (`served_recipes.words_of`), as texts such as ``1xDEP4>5xTEP8 mtp3 b32 c10,15``: workers of
prefill and of decode with their devices, tokens drafted by MTP, the most requests of a decode worker, or of
an attention rank of it, and the requests in flight of the recipe. TP8: tensor parallelism on 8 devices; TEP8:
with whole experts; DEP8: attention ranks with whole experts; DTP8: with sharded experts.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from fastflow.core.errors import InputError

TENSOR, EXPERT, DATA, DATA_TENSOR = KINDS = ("TP", "TEP", "DEP", "DTP")
APART = 1.15
"""Ratio of times per token from which on two rows of the same load have different recipes."""
_WORKERS = re.compile(rf"([0-9]+)x({'|'.join(sorted(KINDS, key=len, reverse=True))})([0-9]+)")
_FORM = "WORKERSxKINDdevices>WORKERSxKINDdevices [mtpTOKENS] [bREQUESTS] cLOAD,LOAD,..., separated by ;"


class Workers(NamedTuple):
    """Workers of a phase."""

    number: int
    kind: str  # of KINDS
    devices: int  # of a worker

    @property
    def strategy(self) -> tuple[int, int, int]:
        """Its tensor parallelism, devices of its experts, and attention ranks."""
        if self.kind in (DATA, DATA_TENSOR):
            return 1, self.devices, self.devices
        return self.devices, self.devices if self.kind == EXPERT else 1, 1


class Split(NamedTuple):
    """A recipe."""

    prefill: Workers
    decode: Workers
    drafts: int  # tokens that a pass verifies besides the next one
    most: int  # requests of a decode worker, or of a rank of it; 0: unsaid
    loads: frozenset[int]  # requests in flight


def read_splits(where: str, text: str) -> list[Split]:
    """Return the recipes of a text of the table; raises InputError for a text that is none."""
    return [_read_split(where, part.strip()) for part in text.split(";") if part.strip()]


def _read_split(where: str, text: str) -> Split:
    first, *words = text.split()
    phases = [_WORKERS.fullmatch(part) for part in first.split(">")]
    marks = {"mtp": "0", "b": "0", "c": ""}
    for word in words:
        name = word.rstrip("0123456789,")
        if name not in marks or not word.removeprefix(name):
            raise InputError(where, text, _FORM)
        marks[name] = word.removeprefix(name)
    if len(phases) != 2 or not all(phases) or not marks["c"]:
        raise InputError(where, text, _FORM)
    prefill, decode = (Workers(int(match[1]), match[2], int(match[3])) for match in phases if match)
    loads = frozenset(int(load) for load in marks["c"].split(",") if load)
    return Split(prefill, decode, int(marks["mtp"]), int(marks["b"]), loads)


def fitting(splits: Iterable[Split], load: int, said: Sequence[tuple[int, ...]]) -> list[Split]:
    """Return the recipes of a load that fit most of what a row says, those without draft tokens first.

    said: pairs of workers and devices of a worker of both phases, 0 where it is not said.
    """

    def misses(split: Split) -> int:
        of_split = ((phase.number, phase.devices) for phase in (split.prefill, split.decode))
        pairs = zip(of_split, said, strict=True)
        return sum(value not in (0, mine) for both in pairs for mine, value in zip(*both, strict=True))

    of_load = [split for split in splits if load in split.loads]
    least = min(map(misses, of_load), default=0)
    return sorted(
        (split for split in of_load if misses(split) == least), key=lambda split: (split.drafts, -split.most)
    )


def by_speed(candidates: Sequence[Split], time: float, all_times: Sequence[float]) -> Split:
    """Return the recipe of a row among several that fit it, by its place among rows of the same load.

    all_times: measured times per token of rows with the same columns [s]. Recipes with draft tokens are the
    faster ones. Where all rows take about as long, they have the first recipe.
    """
    fastest, slowest = min(all_times), max(all_times)
    drafting = [split for split in candidates if split.drafts]
    if slowest < APART * fastest or not drafting or len(drafting) == len(candidates):
        return candidates[0]
    is_fast = time * time < fastest * slowest
    return drafting[-1] if is_fast else candidates[0]
