# The one way in. `make` lists what there is; .ci/run calls the same targets.
.DEFAULT_GOAL := help
MAKEFLAGS += --warn-undefined-variables
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
PYTHON ?= python3
BIN := .venv/bin
PY := $(BIN)/python
CODE := protocol ledger p2pnode testnet
READY := .venv/ready
LEDGER_TESTS := tests/ledger tests/model tests/protocol tests/sim tests/test_tidy.py
NODE_TESTS := tests --ignore=tests/ledger --ignore=tests/model --ignore=tests/protocol --ignore=tests/sim --ignore=tests/test_tidy.py

.PHONY: help setup demo test cover quick live lint fix shows night lock

help: ## this list
	@grep -hE '^[a-z]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 10

$(READY): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 14))' || \
	  { echo "p2pnode needs Python 3.11, 3.12 or 3.13: make PYTHON=python3.12"; exit 1; }
	@bash .ci/headers $(PYTHON)
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --require-hashes -r requirements.lock
	$(BIN)/pip install --quiet --no-deps --no-build-isolation --editable .
	@touch $@

setup: $(READY) ## .venv with everything, from requirements.lock

demo: $(READY) ## set up, then run a whole network on this machine, once
	$(BIN)/p2pnode demo

test: $(READY) ## set up, then run all tests that need no socket, engine or GPU
	@# In two halves at once: as a rule there are two cores.
	export HYPOTHESIS_PROFILE=ci; \
	$(PY) -m pytest -q $(LEDGER_TESTS) & first=$$!; \
	$(PY) -m pytest -q $(NODE_TESTS) || second=$$?; \
	wait $$first; exit $${second:-0}

cover: $(READY) ## the same tests, twice as slow, and what of protocol and ledger they do not reach
	$(PY) -m coverage erase
	export HYPOTHESIS_PROFILE=ci; \
	$(PY) -m coverage run --parallel-mode -m pytest -q $(LEDGER_TESTS) & first=$$!; \
	$(PY) -m coverage run --parallel-mode -m pytest -q $(NODE_TESTS) || second=$$?; \
	wait $$first; exit $${second:-0}
	$(PY) -m coverage combine --quiet
	$(PY) -m coverage report

quick: $(READY) ## tests under a second each
	$(PY) -m pytest -q -m 'not live and not slow'

live: $(READY) ## tests with real sockets and processes on loopback, two files at a time
	bash .ci/live

lint: $(READY) ## style, types, async habits, import rules
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/flake8-async --enable=ASYNC1,ASYNC2,ASYNC900 --disable=ASYNC114,ASYNC124,ASYNC128 $$(git ls-files 'p2pnode/*.py' 'testnet/*.py')
	@# libp2p brings stubs of an old trio, which would hide the types of the one in use.
	@rm -rf .venv/lib/python3.*/site-packages/trio-stubs
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

fix: $(READY) ## format, and mend what can be mended without thinking
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

shows: $(READY) ## walk what this version promises, and say what holds
	bash .ci/shows

night: $(READY) ## what takes longer: many examples, many seeds, a bare Debian
	HYPOTHESIS_PROFILE=night $(PY) -m pytest -q -m 'not live' --timeout 3600 -o faulthandler_timeout=3600
	for seed in $$(seq 1 200); do $(PY) -m testnet world --seed $$seed | tail -n 1; done
	$(PY) -m testnet replicas
	bash .ci/bare
	$(MAKE) cover

lock: ## resolve requirements.lock anew
	$(BIN)/uv pip compile pyproject.toml --group dev --universal --python-version 3.11 \
	  --generate-hashes --no-header --no-emit-index-url --quiet -o requirements.lock
