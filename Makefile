# One entry for all that a contributor runs: `make` lists it, CONTRIBUTING.md explains it.
# Tools come from .venv, which `make install` makes, or else from the environment that is active.
SHELL := bash
export PATH := $(CURDIR)/.venv/bin:$(PATH)
VERSION := $(shell sed -n 's/^version = "\(.*\)"/\1/p' pyproject.toml)

.DEFAULT_GOAL := help
.PHONY: help install check lint ruff ruff-format imports format types test long bench docs release

help:         ## list the targets
	@sed -n 's/^\([a-z-]*\):.*##/\1\t/p' $(MAKEFILE_LIST) | expand -t 14

install:      ## make .venv with fastflow and all tools, and set up git's hooks
	python3 -m venv .venv
	pip install -e '.[dev]'
	if [ -e .git ]; then pre-commit install; fi

check: lint types test long docs bench  ## all checks, the quick ones first

lint: ruff ruff-format imports  ## style, format, and who may import whom

ruff:
	ruff check .

ruff-format:
	ruff format --check .

imports:
	lint-imports

format:       ## mend style and format
	ruff check --fix .
	ruff format .

types:        ## mypy
	mypy

test:         ## the quick tests, on all cores
	pytest

long:         ## the long tests: whole commands, killed processes, a cluster, a wheel
	pytest -m long -q

bench:        ## benchmarks, held against bench/baseline.json
	bench/run.sh

docs:         ## the site, in docs/_build; a warning is an error
	python -m sphinx -q -W --keep-going docs docs/_build

release:      ## wheel, source archive and site, in dist/
	pip install --quiet --no-deps --no-build-isolation -e .  # the site says which version is installed
	rm -rf dist docs/_build
	$(MAKE) docs
	hatchling build
	tar -C docs/_build -czf dist/fastflow-$(VERSION)-site.tar.gz .
	@ls -l dist
