# Everything that a contributor runs. `make help` lists the targets. Each target sets up what it needs.
PYTHON ?= python3
PYTEST_ARGS ?=
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.stamp
RUN_STAMP := $(VENV)/.run-stamp

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help setup run test lint format check docs bench arena clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(STAMP) ## create .venv with all extras; repeated after a change of pyproject.toml or constraints.txt

# $(call install,what pip is to install,what a person reads while it does)
define install
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
	  echo "tuneloss needs Python 3.11 or newer; '$(PYTHON)' is $$($(PYTHON) --version 2>&1 | head -n 1)." >&2; \
	  echo "Name another one: make $(or $(MAKECMDGOALS),setup) PYTHON=python3.12" >&2; exit 1; }
	@echo "Installing $(2) in $(VENV) ..."
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e "$(1)"
endef

$(STAMP): pyproject.toml constraints.txt
	$(call install,.[all],all extras and tools of the project (3.3 GB; more if PyTorch comes with CUDA))
	@touch $@ $(RUN_STAMP)

$(RUN_STAMP): pyproject.toml constraints.txt
	$(call install,.[demo],what the demo needs (650 MB))
	@touch $@

run: $(RUN_STAMP) ## tune a loss between runs and inside one run, print a table, write a report
	$(BIN)/tuneloss demo

test: setup ## run all tests and doctests, in parallel (PYTEST_ARGS="-n 0 -x" for one process)
	$(BIN)/python -m pytest -n auto $(PYTEST_ARGS)

lint: setup ## run ruff (rules and format) and mypy --strict
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy --strict

format: setup ## let ruff rewrite the code: safe fixes and format
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

check: lint test ## run everything that must pass before a change goes in

docs: setup ## build the pages as HTML, in docs/_build
	$(BIN)/sphinx-build --quiet --fail-on-warning --keep-going -b html docs docs/_build
	@echo "Pages: docs/_build/index.html"

bench: setup ## measure the speed of learn_loss, the online tuner, the paper's trainer, all tuners and scikit-learn
	$(BIN)/python benchmarks/learn_loss.py
	$(BIN)/python benchmarks/online.py
	$(BIN)/python benchmarks/trainer.py
	$(BIN)/python benchmarks/tuners.py
	$(BIN)/python benchmarks/growth.py
	$(BIN)/python benchmarks/tuned_logistic.py

arena: setup ## compare methods on the reporting half of benchmarks/arena (records in results/arena.jsonl)
	$(BIN)/python -m benchmarks.arena --image docs/images/arena.png

clean: ## remove .venv, caches and builds
	rm -rf $(VENV) build dist docs/_build .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -not -path './.git/*' -prune -exec rm -rf {} +
