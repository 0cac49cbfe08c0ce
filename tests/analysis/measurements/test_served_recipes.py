"""Recipes of served points: what their texts say, and which rows have them."""

import numpy as np
import pytest

from fastflow.analysis.measurements.served_recipes import (
    budget_of,
    drafting,
    recipes_of,
    settings_of,
    words_of,
)
from fastflow.core.errors import InputError


def settings(text):
    return recipes_of({"trtllm": text}, "serving.recipes")[0].settings


def test_texts_are_settings():
    assert settings("budget=prompt experts=dp rounds=10 waiting=1 graphs=batch server.block_size=64") == {
        "budget": "prompt", "experts": "dp", "rounds": "10", "waiting": "1", "graphs": "batch",
        "server.block_size": "64",
    }  # fmt: skip


@pytest.mark.parametrize(("tokens", "accepted"), [(1, "1.6"), (2, "1.9"), (3, "2.2"), (5, "2.2")])
def test_drafts_are_accepted_as_assumed(tokens, accepted):
    assert settings(f"drafts={tokens}") == drafting(tokens)
    assert drafting(tokens)["serve.mean_acceptance_length"] == accepted


@pytest.mark.parametrize(
    ("text", "allowed"),
    [
        ("budget=half", "budget=load or budget=prompt or budget=spare or budget=twice"),
        ("experts=all", "experts=tp or experts=ep or experts=dp"),
        ("drafts=few", "drafts=... or rounds=... or waiting=..."),
        ("graphs=all", "graphs=batch"),
        ("rounds", "drafts=... or rounds=... or waiting=..."),
        ("layout=tp", "KEY=VALUE, or experts=..."),
    ],
)
def test_other_texts_are_told(text, allowed):
    with pytest.raises(InputError) as told:
        settings(text)
    assert allowed in str(told.value)
    assert "serving.recipes.trtllm" in str(told.value)


def test_the_recipe_of_more_words_stands():
    table = {"trtllm deepseek dp8": "drafts=1", "trtllm deepseek": "drafts=3 budget=load"}
    recipes = recipes_of(table, "serving.recipes")
    assert settings_of(recipes, frozenset({"trtllm", "deepseek"})) == drafting(3) | {"budget": "load"}
    assert settings_of(recipes, frozenset({"trtllm", "deepseek", "dp8"})) == drafting(1) | {"budget": "load"}
    assert settings_of(recipes, frozenset({"trtllm", "llama"})) == {}


def test_words_of_a_row():
    words = words_of(["DeepSeek-R1-0528", "TRTLLM 1.2.0rc2"], {"tp": 8, "c": 64, "isl": 1024.0})
    assert {"deepseek", "trtllm", "0rc2", "tp8", "c64", "isl1024"} <= words


@pytest.mark.parametrize(
    ("rule", "tokens"),
    [("load", 8192), ("prompt", 1216), ("spare", 1024 + 32 + 1500), ("twice", 2048)],
)
def test_budgets(rule, tokens):
    longest, requests, verified = (np.array([value]) for value in (1024, 32, 4))
    assert budget_of(rule, longest, requests, verified).tolist() == [tokens]
