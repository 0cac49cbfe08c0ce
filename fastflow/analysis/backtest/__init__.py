"""The back-test: chips that exist, generated from their budgets."""
