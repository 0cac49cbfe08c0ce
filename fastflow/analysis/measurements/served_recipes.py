"""What the recipe of a benchmark of servers says, which its rows leave unsaid.

The table `recipes` (section `serving` of conf/measurement_files.yaml) has names of words, and settings. A
name is of a row if the row has all of its words: of its server, version, model, chip, precision and load
(`words_of`). All names of a row apply, those of fewer words first. Settings are inputs, KEY=VALUE, and:

- *experts=tp*: tensor parallelism shards experts; *ep*: they are distributed over the devices; *dp*: so they
  are, and each device has requests of its own (attention data parallelism);
- *budget=load*: tokens of an iteration are 8,192, or the longest prompt with a token of each request and 64
  more; *prompt*: those of the longest prompt, of each request's verified tokens, and 64 more; both in whole
  64s; *spare*: the longest prompt, a token of each request and 1,500 more; *twice*: twice the longest prompt;
- *drafts=N*: N tokens are drafted, with the mean acceptance length of `ACCEPTED`;
- *rounds=N*: requests in all, over those in flight;
- *waiting=N*: so many of the requests in flight wait for the end of others, and no more run;
- *graphs=batch*: captured graphs decode at most as many requests as a rank has in flight.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import numpy as np

from fastflow.core.errors import InputError
from fastflow.core.tables import Ints

TENSOR, EXPERT, DATA = LAYOUTS = ("tp", "ep", "dp")
OF_LOAD, OF_PROMPT, OF_SPARE, OF_TWO = BUDGETS = ("load", "prompt", "spare", "twice")
GRAPHS, OF_BATCH = "graphs", "batch"
ALLOWED = {"experts": LAYOUTS, "budget": BUDGETS, GRAPHS: (OF_BATCH,)}
DRAFTS, ROUNDS, WAITING = NUMBERS = ("drafts", "rounds", "waiting")
"""Settings that are no inputs, and their values; the last three have whole numbers."""
ACCEPTED = {1: 1.6, 2: 1.9}
"""Mean acceptance length by the tokens that multi-token prediction drafts: assumed, as no recipe says it."""
ACCEPTED_OF_MORE = 2.2
UNVERSIONED, UNRANKED, RANKED = "unversioned", "unranked", "ranked"
"""Words of rows that do not say their version or their attention ranks, and of rows that say the latter."""
MANY_SPARE = 1500  # tokens (generator/rule_plugin/benchmark/*.rule of ai-dynamo/aiconfigurator)
USUAL_BUDGET, ROUNDED, SPARE = 8192, 64, 64  # tokens (benchmarks/*_trt*.sh of SemiAnalysisAI/InferenceX)
_WORD = re.compile(r"[a-z0-9]+")


class Recipe(NamedTuple):
    """A name of the table, and its settings."""

    words: frozenset[str]
    settings: Mapping[str, str]


def words_of(texts: Iterable[str], numbers: Mapping[str, float]) -> frozenset[str]:
    """Return the words of a row: those of its texts, and of numbers such as isl8192 and c64."""
    words = {word for text in texts for word in _WORD.findall(text.lower())}
    return frozenset(words | {f"{name}{value:.0f}" for name, value in numbers.items()})


def recipes_of(table: Mapping[str, str], section: str) -> list[Recipe]:
    """Return the recipes of a table, those of fewer words first; raises InputError for other settings."""
    recipes = []
    for name, text in table.items():
        settings: dict[str, str] = {}
        for word in text.split():
            settings |= _settings(f"{section}.{name}", word)
        recipes.append(Recipe(frozenset(_WORD.findall(name.lower())), settings))
    return sorted(recipes, key=lambda recipe: len(recipe.words))


def _settings(where: str, text: str) -> dict[str, str]:
    """Return the settings of a word; raises InputError for one that is none."""
    name, equals, value = text.partition("=")
    if name in NUMBERS and value.isdigit():
        return drafting(int(value)) if name == DRAFTS else {name: value}
    allowed = ALLOWED.get(name)
    if not equals or (allowed is None and "." not in name):
        names = (*ALLOWED, *NUMBERS)
        raise InputError(where, text, f"KEY=VALUE, or {' or '.join(f'{word}=...' for word in names)}")
    if allowed is not None and value not in allowed:
        raise InputError(where, text, " or ".join(f"{name}={word}" for word in allowed))
    return {name: value}


def drafting(tokens: int) -> dict[str, str]:
    """Return the settings of a recipe that drafts some tokens."""
    return {
        "serve.num_speculative_tokens": str(tokens),
        "serve.mean_acceptance_length": str(ACCEPTED.get(tokens, ACCEPTED_OF_MORE)),
    }


def settings_of(recipes: Iterable[Recipe], words: frozenset[str]) -> dict[str, str]:
    """Return the settings of a row; words: its own."""
    settings: dict[str, str] = {}
    for recipe in recipes:
        if recipe.words <= words:
            settings |= recipe.settings
    return settings


def budget_of(rule: str, longest: Ints, requests: Ints, verified: Ints) -> Ints:
    """Return the tokens of an iteration on a rank by a rule of `BUDGETS`.

    longest: tokens of the longest prompt; requests: of a rank; verified: tokens of each in a pass.
    """
    if rule == OF_TWO:
        return 2 * longest
    if rule == OF_SPARE:
        return longest + requests + MANY_SPARE
    tokens = longest + requests * (verified if rule == OF_PROMPT else 1) + SPARE
    rounded = -(-tokens // ROUNDED) * ROUNDED
    return rounded if rule == OF_PROMPT else np.maximum(rounded, USUAL_BUDGET)
